"""Reports: the kit of all, and the report of a run."""
