"""A corpus in a search engine. The engine names candidates, and the exact score ranks them here."""
