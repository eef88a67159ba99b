"""Speed of encoding, of a question and of trainings; an engine against the exact search."""
