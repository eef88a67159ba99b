"""Reports: tables, the base of all reports, and the report of a run."""
