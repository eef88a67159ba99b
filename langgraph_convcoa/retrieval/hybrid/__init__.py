"""BM25 and ANN indexes over a corpus that changes."""
