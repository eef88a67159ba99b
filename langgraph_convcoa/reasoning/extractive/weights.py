"""Weights of the sentence ranking and of the quotes, fitted on questions of SQuAD 2.0's training part.

Weights of sentences (1,700 questions, `python -m experiments.sentence_ranking DATA/squad2`): all sentences of ten passages
retrieved from the whole corpus are compared. Right sentences are in the gold passage and hold the answer. The loss of a
question is the negative log of the right sentences' share of a softmax, and an L2 penalty. Weights of words: logistic
regression on the words of right sentences; words of the answer are right. No question of the dev part was used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from langgraph_convcoa.text.questions import AnswerType

Weights = NDArray[np.float64]

_SENTENCE = {
    # feature: (words alone, with an encoder)
    "question words in the sentence": (5.45, 4.22),
    "question words in the sentence and its neighbours": (1.25, 1.31),
    "adjacent question words adjacent in the sentence": (1.07, 0.86),
    "names of the question in the sentence": (-0.08, -0.61),
    "a word of the wanted type": (1.18, 1.31),
    "rank of the passage": (1.84, 1.14),
    "score of the passage, as a share of the best one": (2.24, 1.56),
    "in the best window of the passage": (0.88, 0.52),
    "question words in the passage and its title": (1.24, 1.49),
    "question words, not weighted, in the sentence, its neighbours or title": (2.14, 1.8),
    "lacks the name, time or number that is asked for": (-1.21, -0.78),
    "terms of the question in the passage": (2.55, 2.34),
    "similarity": (0.0, 4.47),
}
SENTENCE_FEATURES = tuple(_SENTENCE)
SENTENCE_WEIGHTS: Weights = np.array([words for words, _ in _SENTENCE.values()])
SENTENCE_WEIGHTS_ENCODER: Weights = np.array([both for _, both in _SENTENCE.values()])

_KINDS: tuple[AnswerType, ...] = ("date", "number", "person", "owner", "place", "reason", "thing")
_TOKEN = {
    # feature: one weight for each of _KINDS
    "in the question": (-1.41, -1.66, -2.58, -2.58, -2.12, -2.21, -2.21),
    "no content": (-0.54, -1.55, -1.01, -1.01, -1.23, -1.86, -1.86),
    "of the wanted kind": (1.86, 1.53, 1.39, 1.39, 1.1, 0.0, 0.0),
    "name": (0.5, -0.95, 1.39, 1.39, 1.1, 1.15, 1.15),
    "number": (2.16, 1.53, -0.15, -0.15, 0.54, 0.18, 0.18),
    "near question words": (1.15, 0.26, 1.6, 1.6, 1.49, 1.75, 1.75),
    "close before a question word": (-1.06, 0.96, -0.55, -0.55, -0.44, -0.06, -0.06),
    "between question words": (-0.56, 0.05, -0.45, -0.45, -0.25, -0.67, -0.67),
    "before all question words": (0.52, 0.05, 0.2, 0.2, -0.66, 0.05, 0.05),
    "question words of the clause": (0.78, 1.74, 1.01, 1.01, 1.29, 1.29, 1.29),
}
TOKEN_WEIGHTS: dict[AnswerType, Weights] = dict(zip(_KINDS, np.array(list(_TOKEN.values())).T, strict=True))
"""Weights of the features of a word, in the order of `quotes.answer_chances`."""
