from __future__ import annotations

import copy

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa import HopfieldRetriever, build_graph
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import CrossEncoderVerifier, LexicalVerifier, Verifier
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, direct
from tests.retrieval.tiny_bert import save_cross_encoder

NLI = {"contradiction": 0, "entailment": 1, "neutral": 2}


class ByList:
    """A verifier that knows the true claims, and counts what it is asked."""

    name = "list"
    threshold = 0.5

    def __init__(self, *true: str) -> None:
        self.true, self.asked = true, []

    def support(self, claims, premises):
        self.asked += zip(claims, premises, strict=True)
        return [0.9 if claim in self.true else 0.1 for claim in claims]


@pytest.mark.parametrize("labels", [None, NLI, {"not_entailment": 0, "entailment": 1}])
def test_any_cross_encoder_gives_probabilities_that_do_not_depend_on_the_batch(tmp_path, labels):
    verifier = as_verifier(save_cross_encoder(tmp_path, labels))
    claims = ["who is the network", "what was the river " * 400, "a"]
    premises = ["the network stores memory", "the book is a book", "b " * 9000]
    together = verifier.support(claims, premises)
    assert all(0 <= share <= 1 for share in together)
    alone = [verifier.support([claim], [premise])[0] for claim, premise in zip(claims, premises, strict=True)]
    assert together == pytest.approx(alone, abs=1e-5)
    assert verifier.support([], []) == []
    assert copy.deepcopy(verifier).support(claims[:1], premises[:1]) == pytest.approx(together[:1], abs=1e-5)


def test_a_cross_encoder_without_the_label_says_what_to_use(tmp_path):
    verifier = CrossEncoderVerifier(save_cross_encoder(tmp_path, {"good": 0, "bad": 1}))
    with pytest.raises(RetrievalError, match=r"2 outputs \(good, bad\), none of them called entailment; use a model"):
        verifier.support(["a"], ["b"])


def test_a_cross_encoder_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(RetrievalError, match='use verifier="lexical"') as caught:
        as_verifier(str(tmp_path / "missing")).support(["a"], ["b"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "  ", 3, None, object()])
def test_anything_else_is_refused(wrong):
    with pytest.raises(InputError, match="verifier must be"):
        as_verifier(wrong)
    retriever = HopfieldRetriever.from_texts(["One."], encoder=DeterministicFakeEmbedding(size=8))
    with pytest.raises(InputError, match="verifier must be"):
        build_graph(retriever=retriever, verifier=wrong)


def test_lexical_counts_names_and_numbers_twice():
    lexical = LexicalVerifier()
    assert isinstance(lexical, Verifier)
    assert lexical.support(["Ada Park wrote it.", "", "..."], ["Ada Parker wrote it.", "x", "x"]) == pytest.approx([0.6, 0, 0])


def test_sentences_of_an_answer_stand_as_the_verifier_says():
    evidence = [
        Document("Car | 0.38 EUR a kilometre.", id="a", metadata={"title": "Mileage"}),
        Document("Staff get 30 days of leave.", id="b"),
    ]
    verifier = ByList("Staff get 30 days of leave.", "Holidays last a month.")
    checker = Checker(evidence, (), verifier)
    text = "Staff get 30 days of leave [2]. Staff also get a company car [1]. Holidays last a month."
    text += " The documents do not say why."
    found = [(one.plain, one.stands) for one in checker.check(text)]
    assert found == [
        ("Staff get 30 days of leave.", True), ("Staff also get a company car.", False), ("Holidays last a month.", True),
        ("The documents do not say why.", True),
    ]  # fmt: skip
    assert [claim for claim, _ in verifier.asked] == ["Staff also get a company car.", "Holidays last a month."], (
        "what stands in the evidence word for word needs no verifier"
    )
    assert checker.check(text + " It rained.")[1].verdict.reason == "list: 0.10 is not above 0.50"
    assert len(verifier.asked) == 3, "a sentence that comes again is not judged again"
    assert "30 days" in verifier.asked[0][1]


def test_the_answers_of_the_conversation_are_evidence_too():
    verifier = ByList("It has 40 rooms.")
    checker = Checker([Document("Dogs stay for free.", id="a")], [("How many rooms?", "There are 40 rooms.")], verifier)
    assert checker.check("It has 40 rooms.")[0].stands
    assert "40 rooms" in verifier.asked[0][1]


def test_a_graph_asks_again_for_what_its_verifier_refuses():
    true, false = "The Hopfield network was described in 1982.", "The network described John Hopfield in 1982."
    replies = [direct(f"{true[:-1]} [1]. {false[:-1]} [1]."), corrections(final=f"{true} {false}")]
    question = {"question": "When was the Hopfield network described?"}
    by_words = build_graph(model=ScriptedModel(replies=replies), retriever=KeywordRetriever()).compile().invoke(question)
    assert false[:-1] in by_words["answer"], "word rules cannot tell who described whom"
    graph = build_graph(model=ScriptedModel(replies=replies), retriever=KeywordRetriever(), verifier=ByList(true))
    out = graph.compile().invoke(question)
    assert out["answer"] == f"{true[:-1]} [1]."
    assert (by_words["usage"]["llm_calls"], out["usage"]["llm_calls"]) == (1, 2)
