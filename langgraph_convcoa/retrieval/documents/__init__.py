"""Documents: reading files, and splitting into passages and windows."""
