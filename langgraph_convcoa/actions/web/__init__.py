"""The action over the web: searches, guarded fetching, pages."""
