"""The engine PostgreSQL with pgvector."""
