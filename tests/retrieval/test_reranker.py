"""The reranker: the order of the first passages, what is left as it was, and the packaged one."""

from __future__ import annotations

import pickle

import pytest

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.reranker import TrainedReranker, as_reranker, conversation_text, default_reranker
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fake_encoder import WordEncoder
from tests.retrieval.tiny_bert import save_cross_encoder

TEXTS = ["the ferry and the harbour", "the ferry to the island", "the ferry is late", "a mill"]
QUESTION = "when is the ferry to the island"


class Likes:
    """A reranker that gives a passage the number of times that it has a word."""

    weight = 10.0

    def __init__(self, word: str) -> None:
        self.word, self.read = word, list[tuple[str, list[str]]]()

    def logits(self, question, passages):
        self.read.append((question, list(passages)))
        return [passage.count(self.word) for passage in passages]


def found(reranker, **options):
    retriever = HopfieldRetriever.from_texts(TEXTS, encoder=WordEncoder(), reranker=reranker, **options)
    return retriever.invoke(QUESTION, history=[("Is there a harbour?", "Yes.")])


def test_the_first_passages_are_ranked_by_the_score_and_the_weighted_logit():
    plain = found("default", graph=None)
    likes = Likes("late")
    documents = found(likes, rerank=3, graph=None)
    assert documents[0].page_content == "the ferry is late" != plain[0].page_content
    # Read with the conversation; the last passage is not read and stays last.
    [(question, passages)] = likes.read
    assert question == f"{QUESTION} || Is there a harbour? Yes."
    assert passages == [document.page_content for document in plain[:3]]
    assert documents[3].page_content == plain[3].page_content
    scores = {document.page_content: document.metadata["score"] for document in plain}
    assert {document.page_content: document.metadata["score"] for document in documents} == scores
    assert all(document.metadata["certified"] for document in documents)
    assert found(Likes("mill"), rerank=3, graph=None)[0].page_content == plain[0].page_content
    assert found(likes, rerank=1, graph=None) == plain


def test_an_index_keeps_its_reranker_by_name_and_takes_another(tmp_path, caplog):
    name, index = save_cross_encoder(tmp_path / "network", None), tmp_path / "index"
    made = HopfieldRetriever.from_texts(TEXTS, encoder=WordEncoder(), path=index, rerank=3, reranker=name)
    opened = HopfieldRetriever.from_pretrained(index, encoder=WordEncoder())
    assert (opened.rerank, opened.reranker, opened.invoke(QUESTION)) == (3, name, made.invoke(QUESTION))
    opened = HopfieldRetriever.from_pretrained(index, encoder=WordEncoder(), graph=None, reranker=Likes("late"))
    assert opened.invoke(QUESTION)[0].page_content == "the ferry is late"
    opened.save_pretrained(index)
    assert "The setting reranker is a function or another object that is not saved." in caplog.text


def test_the_walk_starts_from_the_new_order():
    assert found(Likes("late"), rerank=4, graph=True)[0].page_content == "the ferry is late"


def test_the_trained_reranker_leaves_text_in_another_language_in_the_order_of_the_search():
    texts = ["Die Fähre fährt um acht Uhr vom Hafen ab und kommt um neun Uhr wieder zurück zum Hafen.", "Eine Mühle am Fluss."]
    question = "Wann fährt die Fähre vom Hafen ab?"
    retriever = HopfieldRetriever.from_texts(texts, encoder=WordEncoder(), reranker="nowhere.safetensors", rerank=5)
    assert retriever.invoke(question)[0].page_content == texts[0]
    retriever.reranker = Likes("Mühle")
    assert retriever.invoke(question)[0].page_content == texts[1]


@pytest.mark.parametrize("settings", [{"rerank": -1}, {"rerank": 2.5}, {"reranker": 3}, {"reranker": " "}])
def test_bad_settings_are_refused(settings):
    with pytest.raises(InputError, match="rerank"):
        found(**{"reranker": "default", **settings})


def test_the_packaged_reranker_prefers_the_passage_with_the_answer():
    passages = ["The mill in Leith was built by Ada Berg in 1871.", "The mill in Leith is open to visitors on Sundays."]
    reranker = as_reranker("default")
    first, second = reranker.logits("Who built the mill?", passages)
    assert first > second
    assert reranker is default_reranker()
    assert pickle.loads(pickle.dumps(reranker)).logits("Who built the mill?", passages) == [first, second]
    assert 0 < reranker.weight < 1


def test_models_that_cannot_be_loaded_say_so(tmp_path):
    (tmp_path / "damaged.safetensors").write_bytes(b"no")
    with pytest.raises(RetrievalError, match="cannot be read"):
        TrainedReranker(tmp_path / "damaged.safetensors").logits("q", ["p"])
    with pytest.raises(RetrievalError, match=r"cannot be loaded .*rerank=0"):
        as_reranker(str(tmp_path / "nowhere")).logits("q", ["p"])


def test_any_cross_encoder_with_one_output_is_a_reranker(tmp_path):
    reranker = as_reranker(save_cross_encoder(tmp_path, None))
    texts = ["the network", "a river " * 9000]
    alone = [reranker.logits("who is the network", [text])[0] for text in texts]
    assert reranker.logits("who is the network", texts) == pytest.approx(alone, abs=1e-5)
    assert found(reranker, rerank=4)
    with pytest.raises(RetrievalError, match="one finite number for each of 4 passages"):
        found(as_reranker(save_cross_encoder(tmp_path / "several", {"good": 0, "bad": 1})), rerank=4)


@pytest.mark.parametrize("logits", [[1.0], [[1.0], [2.0], [3.0], [4.0]], [1.0, 2.0, float("nan"), 0.0], []])
def test_logits_that_do_not_fit_are_an_error(logits):
    likes = Likes("late")
    likes.logits = lambda _question, _passages: logits
    with pytest.raises(RetrievalError, match="one finite number for each of 4 passages"):
        found(likes, rerank=4)


def test_the_threshold_is_of_the_search_and_comes_before_k():
    least = found("default", graph=None)[0].metadata["score"]
    [document] = found(Likes("late"), rerank=4, graph=None, k=1, score_threshold=least)
    assert document.metadata["score"] == least


def test_a_long_conversation_is_cut_off():
    text = conversation_text("word " * 60, [("old " * 9, "old " * 9), ("new " * 9, "new " * 9)])
    assert text.split()[60:] == []
    text = conversation_text("word " * 50, [("old " * 9, "old " * 9), ("new " * 30, "new " * 9)])
    assert text.split()[50:] == ["||", *["new"] * 13]
