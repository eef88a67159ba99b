"""Actions: named ways of looking something up."""
