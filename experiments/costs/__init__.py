"""Costs of methods under one scripted model."""
