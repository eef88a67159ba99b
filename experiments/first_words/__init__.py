"""First words and tokens of turns whose answers are a data set's references."""
