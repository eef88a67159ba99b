"""The evidence graph over passages: what they name, what that links, and the walk along it."""
