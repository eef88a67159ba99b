"""Limits of uploads."""

UPLOAD_BYTES = 100_000_000  # Maximum number of bytes of an upload request (--max-upload-mb).
MOST_FILES = 500  # Maximum number of files of one upload.
MOST_SOURCES = 20_000  # Maximum number of files of one collection.
MOST_TEXT = 50_000_000  # Maximum number of bytes of the text of one file.
MOST_TEXTS = 100_000  # Maximum number of rows, pages or parts of one file.
FILE_SECONDS = 30.0  # Processor time for reading one file, whatever its size.
