"""Exact search over shards: indexes that are searched side by side and ranked as one."""
