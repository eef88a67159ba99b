"""The reasoner without a model: answers are sentences of the evidence."""
