"""The commands that train a planner."""
