"""The measures of answers against scorers written here from the published definitions, and against libraries."""

from __future__ import annotations

import itertools
import random
import string

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.evaluation.metrics import (
    MEASURES,
    Sample,
    answer_metrics,
    bootstrap_interval,
    ndcg,
    paired_test,
    recall,
    reciprocal_rank,
)
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.matching import normalise_answer

# What this library marks answers with is no part of the published definitions.
PIECES = st.sampled_from([*"the The a an An cat cats U.S. us it's its 1,000 1000 no yes — é - .".split()])  # noqa: SIM905
TEXT = st.one_of(
    st.lists(PIECES, max_size=7).map(" ".join),
    st.lists(PIECES, max_size=5).map("".join),
    st.text(st.characters(exclude_characters="…[]", exclude_categories=["Cs"]), max_size=20),
)


class Published:
    """SQuAD's definition: "lower text and remove punctuation, articles and extra whitespace"."""

    @staticmethod
    def tokens(text: str) -> list[str]:
        kept = [letter for letter in text.lower() if letter not in set(string.punctuation)]
        words: list[str] = []
        word = ""
        # Articles are words between anything that is no letter, digit or underscore.
        for letter in [*kept, " "]:
            if letter.isalnum() or letter == "_":
                word += letter
                continue
            words += [" " if word in ("a", "an", "the") else word, letter]
            word = ""
        return "".join(words).split()

    @classmethod
    def exact(cls, answer: str, gold: str) -> float:
        return 1.0 if cls.tokens(answer) == cls.tokens(gold) else 0.0

    @classmethod
    def f1(cls, answer: str, gold: str) -> float:
        said, right = cls.tokens(answer), cls.tokens(gold)
        if not said or not right:
            return 1.0 if said == right else 0.0
        left, same = list(right), 0
        for token in said:
            if token in left:
                left.remove(token)
                same += 1
        if same == 0:
            return 0.0
        precision, recall = same / len(said), same / len(right)
        return 2 * precision * recall / (precision + recall)

    @classmethod
    def best(cls, measure: str, answer: str, golds: list[str]) -> float:
        return max(getattr(cls, measure)(answer, gold) for gold in golds)


HAND_MADE = [
    ("The Duke of York", "duke of york", 1.0, 1.0),
    ("the U.S.", "US", 1.0, 1.0),
    ("1,000", "1000", 1.0, 1.0),
    ("in the year 1815", "1815", 0.0, 0.5),
    ("cat cat dog", "cat", 0.0, 0.5),
    ("cat", "cat cat cat", 0.0, 0.5),
    ("Paris", "Lyon", 0.0, 0.0),
    ("", "Lyon", 0.0, 0.0),
    ("the", "a.", 1.0, 1.0),
    ("the", "Lyon", 0.0, 0.0),
    ("théâtre", "theatre", 0.0, 0.0),
    ("an apple, a pear", "apple pear", 1.0, 1.0),
    ("another", "other", 0.0, 0.0),
    ("It was 1815 [1].", "it was 1815", 1.0, 1.0),
]


@pytest.mark.parametrize(("answer", "gold", "exact", "f1"), HAND_MADE)
def test_hand_made_pairs(answer: str, gold: str, exact: float, f1: float) -> None:
    found = answer_metrics(answer, [gold])
    assert (found["em"], found["f1"]) == (exact, pytest.approx(f1))
    shown = without_marks(answer)
    assert (Published.exact(shown, gold), Published.f1(shown, gold)) == (exact, pytest.approx(f1))


@given(TEXT, st.lists(TEXT.filter(str.strip), min_size=1, max_size=4))
def test_several_references_agree_with_the_published_scorers(answer: str, golds: list[str]) -> None:
    assert normalise_answer(answer).split() == Published.tokens(answer)
    found = answer_metrics(answer, golds)
    assert found["em"] == Published.best("exact", answer, golds)
    assert found["f1"] == pytest.approx(Published.best("f1", answer, golds))
    assert {*found} == {*MEASURES}
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in found.values())
    assert found["cover_em"] >= found["em"] or not normalise_answer(answer)


@pytest.mark.parametrize(
    ("answer", "gold", "held"),
    [
        ("…it was in 1982 [1]. Later [2].", "in 1982.", True),
        ("It was the Eiffel [1] Tower.", "Eiffel Tower", True),
        ("It was 1983 [1982].", "1982", False),
        ("Anything.", "the", False),
        ("That is not known.", "no", False),
        ("No, it is not.", "no", True),
        ("Yesterday.", "Yes.", False),
        ("", "x", False),
    ],
)
def test_covers(answer: str, gold: str, held: bool) -> None:
    assert answer_metrics(answer, [gold])["cover_em"] == held


def test_what_the_library_adds_is_no_part_of_an_answer() -> None:
    assert normalise_answer("The  U.S. Navy's (an) Apple…") == "us navys apple"
    assert without_marks("a b [1]. c [2][13].") == "a b. c."
    assert answer_metrics("Ada [1] Lovelace [2].", ["Ada Lovelace."]) == dict.fromkeys(MEASURES, pytest.approx(1.0))


def test_rows_without_a_reference_have_no_measures() -> None:
    assert answer_metrics("x", []) == answer_metrics("x", ["", " "]) == {}
    assert answer_metrics("", ["x"]) == dict.fromkeys(MEASURES, 0.0)


def test_rouge_is_the_librarys() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    answer, golds = "The cats were sitting on a mat", ["A cat sat on the mat", "cats sitting on mats"]
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    expected = max(scorer.score(gold, answer)["rougeL"].fmeasure for gold in golds)
    assert answer_metrics(answer, golds)["rouge_l"] == expected
    assert answer_metrics("", golds)["rouge_l"] == 0.0


def test_a_refusal_counts_nothing_even_if_its_nearest_passage_has_the_answer() -> None:
    refusal = "I found nothing about this in the documents. The nearest passage is “Oslo is large” [1]."
    assert answer_metrics(refusal, ["Oslo"]) == dict.fromkeys(MEASURES, 0.0)


RANKING = ["a", "b", "c", "d"]


def test_no_gold_is_an_error():
    for measure in (recall, ndcg):
        with pytest.raises(ValueError, match="gold"):
            measure(RANKING, [], 1)


def test_the_measures_agree_with_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    generator = random.Random(1)
    documents = [f"d{n}" for n in range(150)]
    for _ in range(20):
        ranking = generator.sample(documents, 120)
        gold = generator.sample(documents, generator.randint(1, 5))
        judged = [ir_measures.Qrel("q", identity, 1) for identity in gold]
        scored = [ir_measures.ScoredDoc("q", identity, -float(rank)) for rank, identity in enumerate(ranking)]
        theirs = ir_measures.calc_aggregate([ir_measures.RR, ir_measures.R @ 10, ir_measures.nDCG @ 10], judged, scored)
        assert reciprocal_rank(ranking, gold) == pytest.approx(theirs[ir_measures.RR])
        assert recall(ranking, gold, 10) == pytest.approx(theirs[ir_measures.R @ 10])
        assert ndcg(ranking, gold, 10) == pytest.approx(theirs[ir_measures.nDCG @ 10])


def sample(values, conversations=None):
    column = np.asarray(values, dtype=float)[:, None]
    return Sample(column, conversations or [str(n) for n in range(len(column))])


def test_the_interval_is_the_known_one_of_a_mean():
    values = np.random.default_rng(1).normal(0.5, 0.2, 400)
    low, high = bootstrap_interval([sample(values)], resamples=4000)
    half = 1.96 * values.std() / 20
    assert low[0] == pytest.approx(values.mean() - half, abs=0.003)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.003)


def test_questions_of_one_conversation_are_drawn_together():
    # Ten conversations of ten equal questions are ten numbers, not a hundred.
    values = np.repeat(np.random.default_rng(1).normal(0.5, 0.2, 10), 10)
    alone = bootstrap_interval([sample(values)])
    together = bootstrap_interval([sample(values, [str(n // 10) for n in range(100)])])
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])


def test_a_macro_interval_weighs_sources_alike():
    many, few = sample(np.zeros(1000)), sample(np.ones(10))
    assert [end[0] for end in bootstrap_interval([many, few])] == [0.5, 0.5]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
@example([0, 0, -2, -3, 2, 3])
def test_the_test_tries_all_signs_of_few_conversations(differences):
    values = np.asarray(differences, dtype=float)
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((-1, 1), repeat=len(values))]
    expected = np.mean([total >= abs(values.sum()) - 1e-9 for total in sums])
    assert paired_test([sample(values)])[0] == pytest.approx(expected)


def test_a_real_difference_is_found_and_none_is_not():
    generator = np.random.default_rng(1)
    noise, shift = generator.normal(0, 0.3, 300), generator.normal(0.1, 0.3, 300)
    both = Sample(np.stack([noise, shift], axis=1), [str(n) for n in range(300)])
    none, some = paired_test([both])
    assert none > 0.05
    assert some < 0.001
    # The same in one long conversation is one observation.
    assert paired_test([Sample(both.values, ["a"] * 300)]).tolist() == [1.0, 1.0]
    assert paired_test([sample(np.zeros(5))]).tolist() == [1.0]
