"""First words of turns on a simulated clock."""
