"""The query side: the state of the conversation, the query encoder and trained models."""
