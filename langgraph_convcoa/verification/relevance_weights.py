"""Weights of `answer_relevance`: a logistic regression of right answers against other answers of the same passage.

Fitted on 3,000 questions of SQuAD 2.0's training split, 826 of Abg-CoQA's, and 566 of QuAC's of 35% of the conversations, each
data set counting the same, by

    convcoa evaluate guesses DATA/squad2 DATA/abg_coqa DATA/quac_dev --fit

What is reported is SQuAD's development split and the other 65% of QuAC's conversations. "repeated" weighs what it weighs in
such pairs, where three of four wrong answers of a QuAC follow-up were given before; 1 to 5% of right answers were, in QuAC,
Abg-CoQA, PACIFIC and MTRAG. A right guess that is taken for a repetition costs a correction.
"""

from __future__ import annotations

RELEVANCE_WEIGHTS: dict[str, float] = {
    "better": -1.238,
    "bias": 0.179,
    "context": 0.469,
    "following": 0.96,
    "missed": -1.27,
    "more: any": -0.638,
    "more: bare name": -0.788,
    "more: bare number": 0.827,
    "more: length": 0.93,
    "name: any": -0.217,
    "name: bare name": 0.458,
    "name: bare number": -3.246,
    "name: length": 0.505,
    "name: name": 0.361,
    "near": 2.124,
    "nothing new": -2.018,
    "of best": 0.613,
    "other: any": 0.478,
    "other: bare name": -0.208,
    "other: bare number": -1.437,
    "other: length": 0.213,
    "person: any": 0.768,
    "person: bare name": 0.569,
    "person: bare number": -3.936,
    "person: length": -0.799,
    "person: name": 0.863,
    "place: any": 0.803,
    "place: bare name": -0.472,
    "place: bare number": -3.233,
    "place: length": -0.969,
    "place: name": 1.326,
    "quantity: any": -0.842,
    "quantity: bare name": -1.019,
    "quantity: bare number": 0.114,
    "quantity: length": -0.126,
    "quantity: quantity": 2.13,
    "reason: any": -2.111,
    "reason: bare name": -4.718,
    "reason: bare number": -4.065,
    "reason: length": 1.852,
    "repeated": -4.475,
    "share": -1.761,
    "thing: any": 0.005,
    "thing: bare name": -0.023,
    "thing: bare number": -1.148,
    "thing: length": 0.352,
    "time: any": -0.11,
    "time: bare name": -1.102,
    "time: bare number": -0.006,
    "time: date": 2.28,
    "time: length": -0.728,
    "time: quantity": 0.906,
    "way: any": -0.501,
    "way: bare name": -1.783,
    "way: bare number": -1.54,
    "way: length": 0.768,
}
"""By feature: "bias", those of the place and of the conversation, and "KIND: SHAPE" of question and guess."""
