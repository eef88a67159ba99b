"""Questions about a collection as a whole."""
