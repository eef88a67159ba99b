"""The history memory of a conversation (papers/004) and what it is asked for: views, recalled answers, earlier evidence."""
