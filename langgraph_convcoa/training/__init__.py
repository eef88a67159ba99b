"""Training of the retriever, the planner and the verifier. Only `cli` and `evaluation` import this package."""
