"""Documents: reads files, and splits documents into passages and windows."""
