"""Measurements of verification: human ratings, right and wrong guesses."""
