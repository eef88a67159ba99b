"""Fuzz tests: 200 examples each in the suite, 10,000 by `make fuzz`."""

from hypothesis import HealthCheck, settings

fuzzed = settings(max_examples=max(200, settings().max_examples), deadline=None, suppress_health_check=list(HealthCheck))
