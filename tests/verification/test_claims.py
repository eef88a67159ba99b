import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.verification.claims import CLAIM_THRESHOLD, verify_sentences, weakest
from langgraph_convcoa.verification.references import References

EVIDENCE = [
    Document(
        "The Tay Bridge was opened in 1878 and carried a single track. It collapsed in a violent storm on 28 December 1879, "
        "killing all aboard a train. Thomas Bouch designed it; he was knighted by Queen Victoria after it opened.",
        id="tay",
        metadata={"title": "Tay Bridge"},
    ),
    Document("The Forth Bridge was designed by John Fowler and Benjamin Baker. It was completed in 1890.", id="forth"),
    Document("Pets are not allowed on the ferry. Bicycles cost £2.50 each.", id="ferry"),
]


def verdict(text, **options):
    (found,) = verify_sentences(text, EVIDENCE, **options)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "The Tay Bridge was opened in 1878.",
        "It was opened in 1878 [1].",
        "The Tay Bridge, which opened in 1878, collapsed in a storm in December 1879.",
        "Thomas Bouch, who designed the Tay Bridge, was knighted by Queen Victoria.",
        "The Forth Bridge was designed by Fowler and Baker and completed in 1890.",
        "Pets aren't allowed on the ferry.",
        "A bicycle costs £2.50.",
        "According to the documents, the bridge carried a single track.",
    ],
)
def test_true_sentences_pass(text):
    found = verdict(text)
    assert found.supported, found
    assert found.score > CLAIM_THRESHOLD
    assert found.reason == ""
    assert found.quote in EVIDENCE[found.reference].page_content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The Tay Bridge was opened in 1877.", "“1877” is not in the evidence"),
        ("The Tay Bridge was opened in 1890.", "“1890” stands elsewhere in the evidence"),
        ("The Tay Bridge was opened by Isambard Brunel in 1878.", "“Isambard” is not in the evidence"),
        ("Benjamin Baker was knighted by Queen Victoria.", "“Benjamin Baker” stands elsewhere in the evidence"),
        ("The Tay Bridge was not opened in 1878.", "the evidence does not deny it"),
        ("Pets are allowed on the ferry.", "the evidence denies it"),
        ("The ferry sells sandwiches and hot drinks.", "too little of it is in the evidence"),
    ],
)
def test_altered_sentences_fail(text, reason):
    found = verdict(text)
    assert (found.supported, found.reason) == (False, reason)
    assert found.claims


def test_the_whole_text_is_as_sure_as_its_weakest_claim():
    found = verify_sentences("Hello! The Tay Bridge was opened in 1878. It was painted green.", EVIDENCE)
    assert [s.claims for s in found] == [False, True, True]
    assert weakest(found).text == "It was painted green."
    assert weakest(verify_sentences("Hello!", EVIDENCE)) is None


def test_without_evidence_nothing_is_supported():
    (found,) = verify_sentences("It was opened in 1878.", [])
    assert (found.supported, found.reference, found.quote) == (False, None, "")


class Meaning:
    """Similarities that are noted; all the same."""

    def __init__(self, value):
        self.value, self.asked = value, []

    def __call__(self, left, right):
        self.asked.append((left, right))
        return np.full((len(left), len(right)), self.value)


def test_similarity_lifts_a_paraphrase():
    text = "Dogs may never come aboard the ferry, however small."
    near, far = Meaning(0.9), Meaning(0.2)
    assert not verdict(text).supported
    assert verdict(text, similarity=near).supported
    assert not verdict(text, similarity=far).supported
    assert all(len(left) == 1 and len(right) <= 5 for left, right in near.asked)


@pytest.mark.parametrize(
    "text", ["The Tay Bridge was opened in 1877.", "Pets are allowed on the ferry.", "Brunel built Paddington."]
)
def test_similarity_lifts_nothing_with_a_wrong_number_name_or_not(text):
    meaning = Meaning(1.0)
    assert not verdict(text, similarity=meaning).supported
    assert not meaning.asked


def test_similarity_is_not_asked_for_what_passes_by_its_words():
    meaning = Meaning(1.0)
    assert verdict("The Tay Bridge was opened in 1878.", similarity=meaning).supported
    assert not meaning.asked


def test_the_threshold_can_be_given():
    assert not verdict("The Tay Bridge was opened in 1878.", threshold=1.0).supported


def test_references_prepared_once_hold_the_history():
    references = References.of(EVIDENCE, [("Who painted it?", "It was painted green by Ada Lovelace.")])
    (found,) = verify_sentences("Ada Lovelace painted it green.", references)
    assert (found.supported, found.reference) == (True, len(EVIDENCE))
