"""Training of a small verifier on labelled claims, and on pairs made from SQuAD's questions and sentences."""
