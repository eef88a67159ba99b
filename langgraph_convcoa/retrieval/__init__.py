"""Retrieval: documents into memory sets, their scoring, the conversational state and the retriever."""
