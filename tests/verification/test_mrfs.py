import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification import References, conv_mrfs, faith_score
from langgraph_convcoa.verification.mrfs import GUESS_THRESHOLD, THRESHOLD

EVIDENCE = [
    "John Hopfield, a physicist at Caltech, described the Hopfield network in 1982. It was built on work by Amari in 1972.",
    "Ada Lovelace wrote the first published program in 1843 for the Analytical Engine. The engine was never finished.",
]
WHEN = "When was the Hopfield network described?"


def guess(text, question=WHEN, **more):
    return conv_mrfs(text, EVIDENCE, question=question, **more)


@pytest.mark.parametrize(
    "text",
    [
        "1982",
        "in 1982",
        "1982 [1]",
        "It was described in 1982.",
        "The Hopfield network was described in 1982 by John Hopfield.",
    ],
)
def test_a_right_guess_is_kept_however_it_is_put(text):
    found = guess(text)
    assert found.faithful
    assert found.reference == 0
    assert found.quote.startswith("John Hopfield")


def test_another_number_of_the_same_passage_fails():
    assert guess("1982").score > guess("1972").score
    assert not guess("1972").faithful


@pytest.mark.parametrize(
    "text",
    [
        "1984",
        "The Hopfield network was described in 1984.",
        "The Hopfield network was described in 1982 by Paul Kohonen",
        "1982 or 1984",
    ],
)
def test_a_number_or_name_that_the_evidence_does_not_hold_fails(text):
    assert not guess(text).faithful


def test_what_the_history_holds_is_evidence():
    assert not guess("1979", "When did Hinton join?").faithful
    found = guess("1979", "When did Hinton join?", history=[("When did Hinton join?", "Hinton joined in 1979.")])
    assert found.faithful
    assert found.reference == 2


def test_a_guess_that_repeats_the_question_fails():
    assert not guess("The Hopfield network").faithful


def test_a_guess_of_another_kind_fails():
    assert not guess("a physicist at Caltech").faithful


@pytest.mark.parametrize("text", ["It was not described in 1982.", "It was never described in 1982."])
def test_a_negated_guess_fails(text):
    assert not guess(text).faithful


@pytest.mark.parametrize(
    ("text", "faithful"), [("No", True), ("no.", True), ("Yes", False), ("Yes, the engine was finished", False)]
)
@pytest.mark.parametrize("question", ["Was the engine finished?", "Was the Analytical Engine finished?"])
def test_yes_and_no_stand_for_the_question(text, faithful, question):
    assert guess(text, question).faithful is faithful


@pytest.mark.parametrize(
    ("question", "faithful"), [("Was the program written in 1843?", False), ("Did Ada write the program in 1843?", True)]
)
def test_yes_needs_the_verb_and_the_polarity_of_the_question(question, faithful):
    evidence = ["Ada did write the program in 1843. The program was not written in 1842."]
    assert conv_mrfs("Yes", evidence, question=question).faithful is faithful
    assert not conv_mrfs("Yes", evidence, question=question.replace("1843", "1844")).faithful


def test_yes_answers_no_open_question():
    assert guess("Yes").score == 0.0


def test_a_negated_copy_of_the_evidence_is_unfaithful():
    evidence = ["The patent for the improved engine was granted in London in 1843."]
    assert conv_mrfs("The patent for the improved engine was granted in London in 1843.", evidence).score == 1.0
    assert not conv_mrfs("The patent for the improved engine was not granted in London in 1843.", evidence).faithful


def test_the_unsupported_sentence_of_an_answer_is_told():
    found = conv_mrfs("Hopfield described the network in 1982. Bananas ripen quickly in warm kitchens.", EVIDENCE)
    assert [s.score > THRESHOLD for s in found.sentences] == [True, False]
    assert found.sentences[1].reference is None


def test_a_longer_sentence_counts_more():
    long_right = conv_mrfs("Hopfield described the network in 1982. Bananas ripen.", EVIDENCE).score
    long_wrong = conv_mrfs("Hopfield wrote. Bananas ripen quickly in warm and sunny kitchens.", EVIDENCE).score
    assert long_right > 0.5 > long_wrong


def test_cjk():
    evidence = ["東京は日本の首都です。人口は約1400万人です。"]
    assert conv_mrfs("東京", evidence, question="日本の首都はどこですか").faithful
    assert not conv_mrfs("大阪", evidence, question="日本の首都はどこですか").faithful


@pytest.mark.parametrize("text", ["", "??", "🎉", "I don't know"])
def test_no_claim_is_no_support(text):
    found = guess(text)
    assert (found.score, found.faithful, found.reference, found.quote) == (0.0, False, None, "")


@pytest.mark.parametrize("references", [[], [""], ["..."], [Document("")]])
@pytest.mark.parametrize("mode", ["default", "plain"])
def test_no_evidence(references, mode):
    found = conv_mrfs("It was 1982.", references, question=WHEN, mode=mode)
    assert (found.score, found.faithful, found.reference) == (0.0, False, None)


def test_plain_form_is_the_best_faith_score_of_a_whole_reference():
    candidate = "Ada Lovelace wrote a program"
    found = conv_mrfs(candidate, EVIDENCE, mode="plain")
    assert found.score == max(faith_score(candidate, e, items="tokens").score for e in EVIDENCE)
    assert (found.reference, found.quote, found.threshold) == (1, EVIDENCE[1], 0.75)
    content = conv_mrfs(candidate, EVIDENCE, mode="plain", items="content", weights=(1.0, 0.0, 0.0))
    assert content.score == 1.0


def test_thresholds():
    assert guess("1982").threshold == GUESS_THRESHOLD
    assert conv_mrfs("1982", EVIDENCE).threshold == THRESHOLD
    assert not guess("1982", threshold=1.0).faithful


def test_similarity_helps_other_words():
    def alike(left, right):
        return np.array([[1.0 if ("automobile" in a) and ("car" in b) else 0.0 for b in right] for a in left])

    evidence = ["The car is quick.", "Bread is baked."]
    assert conv_mrfs("The automobile speeds", evidence).score == 0.0
    found = conv_mrfs("The automobile speeds", evidence, similarity=alike)
    assert found.score == pytest.approx(1 / 4)
    assert found.quote == "The car is quick."


def test_bad_arguments():
    with pytest.raises(InputError, match="mode must be"):
        conv_mrfs("a", ["b"], mode="other")
    with pytest.raises(InputError, match="sum to 1"):
        conv_mrfs("a", ["b"], weights=(1, 1, 1))


word = st.sampled_from(
    [
        "network",
        "energy",
        "pattern",
        "store",
        "1982",
        "1972",
        "not",
        "Hopfield",
        "Ada",
        "was",
        "the",
        "when",
        "by",
        "東",
        "memory",
    ]
)
sentence = st.lists(word, min_size=1, max_size=8).map(lambda w: " ".join(w) + ".")
passage = st.lists(sentence, min_size=1, max_size=3).map(" ".join)
questions = st.one_of(st.none(), sentence.map(lambda s: "When " + s))
modes = st.sampled_from(["default", "plain"])


# A sentence may be denied by further evidence, or its names be found elsewhere; a span may not.
span = st.lists(word, min_size=1, max_size=4).map(" ".join)


@settings(deadline=None)
@given(span, st.lists(passage, max_size=4), passage, questions, modes)
def test_more_references_never_lower_the_score_of_a_span(candidate, references, more, question, mode):
    before = conv_mrfs(candidate, references, question=question, mode=mode).score
    after = conv_mrfs(candidate, [*references, more], question=question, mode=mode).score
    assert 0 <= before <= after + 1e-9
    assert after <= 1


@settings(deadline=None)
@given(passage, st.lists(passage, max_size=4).flatmap(lambda p: st.tuples(st.just(p), st.permutations(p))), questions, modes)
def test_the_order_of_references_does_not_matter(candidate, pair, question, mode):
    one, other = (conv_mrfs(candidate, references, question=question, mode=mode).score for references in pair)
    assert one == pytest.approx(other)


@settings(deadline=None)
@given(sentence, st.lists(passage, max_size=3))
def test_a_sentence_of_the_evidence_is_faithful(candidate, references):
    found = conv_mrfs(candidate, [*references, candidate])
    assert found.faithful
    assert found.score == pytest.approx(1.0)


@settings(deadline=None)
@given(passage, st.lists(passage, max_size=3), questions)
def test_prepared_references_give_the_same(candidate, references, question):
    prepared = References.of(references)
    assert conv_mrfs(candidate, prepared, question=question) == conv_mrfs(candidate, references, question=question)


@pytest.mark.parametrize("question", ["When was it?", "What?", "Why not?"])
def test_a_question_that_names_nothing_asks_for_support_alone(question: str) -> None:
    fact = "The network was described in 1982."
    assert conv_mrfs(fact, [fact], question=question).faithful


def test_a_name_from_another_text_does_not_count() -> None:
    texts = ["John Hopfield described the Hopfield network in 1982.", "Geoffrey Hinton won the prize in 2024."]
    question = "Who described the Hopfield network?"
    assert conv_mrfs("John Hopfield described the Hopfield network in 1982.", texts, question=question).faithful
    assert not conv_mrfs("Geoffrey Hinton described the Hopfield network in 1982.", texts, question=question).faithful


@pytest.mark.parametrize("text", ["Who \ud83d it\x00?", "\ude00", "\ud83d\ude00 is it.", "a\udcff" * 3_000])
def test_half_a_character_is_scored_as_any_other_text(text):
    assert conv_mrfs(text, [text, Document(text, id="a")], question=text, history=[(text, text)]).score <= 1
    assert conv_mrfs(text, [text], mode="plain").score <= 1
    assert faith_score(text, text).score <= 1
