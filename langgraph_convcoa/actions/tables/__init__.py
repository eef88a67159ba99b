"""The action over tables: checked, read-only SQL."""
