"""Retrieval: documents split into multi-vector passages, their scores, the conversation state and the retriever."""
