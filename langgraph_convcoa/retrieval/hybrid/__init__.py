"""BM25 over a corpus that changes."""
