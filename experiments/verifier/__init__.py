"""The training of a small verifier: labelled claims, and pairs made of SQuAD's questions and sentences."""
