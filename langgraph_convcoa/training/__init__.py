"""Training of the retriever. The library never imports this package."""
