"""Conversational retrievers with the ideas of other papers, over the same passages and encoder."""
