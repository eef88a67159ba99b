"""A corpus in an engine that clusters: it names candidates, and the exact score ranks them here."""
