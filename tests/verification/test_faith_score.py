import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification import conv_mrfs, faith_score

CANDIDATE = "david had an apple and a banana"
REFERENCE = "david is a good person, and he got an apple, a banana, and oranges."


def test_figure_5_of_the_paper():
    found = faith_score(CANDIDATE, REFERENCE, items="tokens")
    assert found.precision == 6 / 7
    assert found.recall == 6 / 14
    assert found.average_word_length == 25 / 7
    assert found.score == pytest.approx(0.4 * 6 / 7 + 0.4 * 6 / 14 + 0.2 * 25 / 70)


def test_tokens_count_a_repeated_word_once_as_the_figure_does():
    assert faith_score("the cat the cat", "the cat", items="tokens").precision == 0.5


def test_content_words_are_stemmed_and_clipped():
    found = faith_score("The networks store networks.", "A network stores it.")
    assert (found.precision, found.recall) == (2 / 3, 1.0)
    assert found.average_word_length == (8 + 5 + 8) / 3


def test_word_length_enters_scaled_and_never_above_one():
    weights = (0.0, 0.0, 1.0)
    assert faith_score("cats", "cats", weights=weights).score == pytest.approx(0.4)
    assert faith_score("internationalisation", "cats", weights=weights).score == 1.0


@pytest.mark.parametrize("text", ["", "  \n", "?!...", "—", "🎉🎉"])
@pytest.mark.parametrize("items", ["content", "tokens"])
def test_a_text_without_words_scores_nothing(text, items):
    assert faith_score(text, REFERENCE, items=items).score == 0.0
    assert faith_score(CANDIDATE, text, items=items).score == 0.0


@pytest.mark.parametrize("text", ["no", "To be, or not to be", "The Who"])
def test_a_text_of_function_words_is_compared_by_them(text):
    assert faith_score(text, text).precision == 1.0


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ("東京は首都", "大阪の港"), ("الشبكة العصبية", "كتاب جديد"), ("שלום עולם", "ספר חדש"), ("नमस्ते दुनिया", "किताब"),
        ("party 🎉", "work"),
    ],
)  # fmt: skip
def test_other_scripts(same, other):
    assert faith_score(same, same).precision == 1.0
    assert faith_score(same, other).precision == 0.0


@pytest.mark.parametrize(
    "weights", [(0.5, 0.5, 0.5), (1.5, -0.5, 0.0), (1.0, 0.0), (math.nan, 0.5, 0.5), (math.inf, 0.0, 0.0), (0.0, 0.0, 0.0)]
)
def test_bad_weights(weights):
    with pytest.raises(InputError, match="sum to 1"):
        faith_score("a", "b", weights=weights)


def test_unknown_items():
    with pytest.raises(InputError, match="items must be"):
        faith_score("word", "word", items="letters")


texts = st.text(alphabet="abc XYZ12.,'é東\n", max_size=60)


@given(
    texts, texts, st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), st.sampled_from(["content", "tokens"])
)
def test_score_is_the_weighted_sum_and_in_the_unit_interval(candidate, reference, raw, items):
    weights = tuple(w / sum(raw) for w in raw)
    found = faith_score(candidate, reference, weights=weights, items=items)
    assert 0 <= found.precision <= 1
    assert 0 <= found.recall <= 1
    assert 0 <= found.score <= 1
    length = min(found.average_word_length / 10, 1)
    expected = weights[0] * found.precision + weights[1] * found.recall + weights[2] * length
    assert found.score == pytest.approx(expected, abs=1e-9)


@given(texts, texts)
def test_precision_and_recall_change_places_with_the_texts(one, other):
    assert faith_score(one, other).precision == faith_score(other, one).recall


# conv_mrfs ------------------------------------------------------------------------------------------------------------

EVIDENCE = ["The Tay Bridge was opened in 1878.", "The bridge collapsed in a storm on 28 December 1879."]
lists = st.lists(st.text(max_size=60), max_size=4)


def test_the_best_reference_counts():
    candidate = "The bridge collapsed in a storm"
    found = conv_mrfs(candidate, EVIDENCE)
    assert found.score == faith_score(candidate, EVIDENCE[1], items="tokens").score
    assert (found.reference, found.quote) == (1, EVIDENCE[1])
    content = conv_mrfs(candidate, EVIDENCE, items="content", weights=(1.0, 0.0, 0.0))
    assert content.score == 1


def test_what_the_history_holds_is_evidence():
    found = conv_mrfs("It was rebuilt in 1887.", EVIDENCE, history=[("When was it rebuilt?", "It was rebuilt in 1887.")])
    assert (found.faithful, found.reference) == (True, 2)


def test_the_threshold_is_the_papers():
    found = conv_mrfs(EVIDENCE[0], EVIDENCE)
    assert found.threshold == 0.75
    assert found.faithful
    assert not conv_mrfs(EVIDENCE[0], EVIDENCE, threshold=1.0).faithful


@pytest.mark.parametrize("references", [[], [""], ["..."]])
def test_no_evidence(references):
    found = conv_mrfs("It was opened in 1878.", references)
    assert (found.score, found.faithful, found.reference, found.quote) == (0.0, False, None, "")


def test_bad_arguments():
    with pytest.raises(InputError, match="sum to 1"):
        conv_mrfs("a", ["a"], weights=(0.5, 0.5, 0.5))
    with pytest.raises(InputError, match="items"):
        conv_mrfs("a", ["a"], items="letters")


@given(st.text(max_size=60), lists, lists)
def test_more_references_never_lower_the_score(candidate, references, more):
    assert conv_mrfs(candidate, references + more).score >= conv_mrfs(candidate, references).score


@given(st.text(max_size=60), lists)
@example("half a character \ud83d", ["half a character \ud83d"])
@example("\udc00", ["\udc00"])
def test_the_score_is_a_share(candidate, references):
    assert 0 <= conv_mrfs(candidate, references).score <= 1
