import numpy as np
import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification import conv_mrfs
from langgraph_convcoa.verification.calibration import Calibration, Example, calibrate

EVIDENCE = ["The network was described by John Hopfield in 1982.", "It stores patterns as minima of an energy function."]
TRUE = ["It was described in 1982.", "It stores patterns.", "Patterns are stored as minima.", "John Hopfield described it."]
FALSE = ["It was described in 1999.", "It bakes bread daily.", "Cats are stored as dogs.", "Marie Curie found radium."]


@pytest.mark.parametrize("mode", ["default", "plain"])
def test_the_threshold_separates_what_can_be_separated(mode):
    examples = [Example(text, EVIDENCE) for text in TRUE + FALSE]
    found = calibrate(examples, [4, 3, 4, 3, 1, 2, 1, 1], faithful_from=3, mode=mode)
    assert sum(found.weights) == pytest.approx(1)
    assert found.auc == 1.0
    assert found.balanced_accuracy == 1.0
    verdicts = [
        conv_mrfs(e.candidate, EVIDENCE, weights=found.weights, threshold=found.threshold, mode=mode).faithful
        for e in examples
    ]
    assert verdicts == [True] * 4 + [False] * 4


def test_recall_gets_weight_where_it_alone_tells():
    evidence = ["one two three four five six seven eight"]
    examples = [
        Example(text, evidence) for text in ("two three four five six seven eight", "two three", "three four", "five six")
    ]
    assert calibrate(examples, [1, 0, 0, 0], tolerance=0.0).weights[1] > 0


def test_questions_are_used():
    examples = [Example("1982", EVIDENCE, "When was the network described?"), Example("1982", EVIDENCE, "What are minima of?")]
    assert calibrate(examples, [True, False]).auc == 1.0


def test_scores_of_the_result_are_those_of_conv_mrfs():
    examples = [Example(text, EVIDENCE) for text in TRUE + FALSE[::-1]]
    found = calibrate(examples, [1, 1, 0, 1, 0, 1, 0, 0])
    scores = np.array([conv_mrfs(e.candidate, EVIDENCE, weights=found.weights).score for e in examples])
    right = np.array([1, 1, 0, 1, 0, 1, 0, 0], dtype=bool)
    accuracy = ((scores[right] > found.threshold).mean() + (scores[~right] <= found.threshold).mean()) / 2
    assert accuracy == pytest.approx(found.balanced_accuracy)


def test_constant_scores_are_at_chance():
    found = calibrate([Example("nothing", EVIDENCE)] * 2, [1, 0])
    assert isinstance(found, Calibration)
    assert (found.auc, found.spearman) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("ratings", "more", "message"),
    [
        ([1], {}, "as many ratings"),
        ([1, 1], {}, "both sides"),
        ([4, 3], {"faithful_from": 3}, "both sides"),
        ([1, 0], {"step": 0}, "step must be"),
    ],
)
def test_what_cannot_be_calibrated(ratings, more, message):
    with pytest.raises(InputError, match=message):
        calibrate([Example(text, EVIDENCE) for text in TRUE[:2]], ratings, **more)


def test_no_examples():
    with pytest.raises(InputError):
        calibrate([], [])
