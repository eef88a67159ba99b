"""The query side: state of the conversation, query encoder, trained models."""
