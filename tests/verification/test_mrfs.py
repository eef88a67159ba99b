import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification import conv_mrfs, faith_score

EVIDENCE = ["The Tay Bridge was opened in 1878.", "The bridge collapsed in a storm on 28 December 1879."]
texts = st.lists(st.text(max_size=60), max_size=4)


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


@given(st.text(max_size=60), texts, texts)
def test_more_references_never_lower_the_score(candidate, references, more):
    assert conv_mrfs(candidate, references + more).score >= conv_mrfs(candidate, references).score


@given(st.text(max_size=60), texts)
@example("half a character \ud83d", ["half a character \ud83d"])
@example("\udc00", ["\udc00"])
def test_the_score_is_a_share(candidate, references):
    assert 0 <= conv_mrfs(candidate, references).score <= 1
