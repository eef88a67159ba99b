"""The engine Milvus, on servers of its own or in a file."""
