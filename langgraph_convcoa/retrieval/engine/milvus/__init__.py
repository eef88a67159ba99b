"""The engine Milvus, on a server or in a file."""
