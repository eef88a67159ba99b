"""The weights of the sentence ranking of answers without a model."""
