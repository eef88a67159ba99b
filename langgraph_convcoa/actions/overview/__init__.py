"""The action that answers questions about a collection as a whole: its documents, their number and topics."""
