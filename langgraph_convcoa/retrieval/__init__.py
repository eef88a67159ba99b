"""Retrieval: documents into multi-vector passages, their scoring, the conversation state and the retriever."""
