"""The evidence graph over passages: the names in them, the links by these names, and the walk along the links."""
