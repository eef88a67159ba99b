"""The training of the package's verifier: labelled claims, and pairs made of SQuAD's questions and sentences."""
