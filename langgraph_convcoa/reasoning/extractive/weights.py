"""Weights of the sentence ranking, by logistic regression on questions of SQuAD 2.0's training part.

The positives are the sentences of the gold passage that hold the answer, among all sentences of ten passages retrieved from
the whole corpus. No question of the dev part was used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]

_SENTENCE = {
    # feature: (words alone, with an encoder)
    "question words in the sentence": (0.57, 0.88),
    "question words in the sentence and its neighbours": (1.38, 0.78),
    "question words in the passage and its title": (0.21, -0.03),
    "adjacent question words adjacent in the sentence": (1.87, 1.31),
    "names of the question in the sentence": (-0.37, -1.38),
    "names of the question in the passage and its title": (1.27, 1.49),
    "a word of the wanted type": (0.31, 0.2),
    "first passage": (-0.48, 0.18),
    "rank of the passage": (3.94, 2.22),
    "log of the length": (0.0, 0.26),
    "question words in the sentence, less the best sentence's": (4.72, 3.43),
    "similarity": (0.0, 2.8),
    "similarity, less the best sentence's": (0.0, 5.99),
    "constant": (-6.1, -6.1),
}
SENTENCE_FEATURES = tuple(_SENTENCE)
SENTENCE_WEIGHTS: Weights = np.array([words for words, _ in _SENTENCE.values()])
SENTENCE_WEIGHTS_ENCODER: Weights = np.array([both for _, both in _SENTENCE.values()])
