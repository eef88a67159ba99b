"""Shards that are alike or not, that change, fail or are slow; in this process."""

import copy
import logging
import random
import threading
from itertools import pairwise

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.corpus import StaleSnapshot
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.shards.corpus import ShardedCorpus
from langgraph_convcoa.retrieval.shards.names import is_sharded, shard_folders, shard_path
from langgraph_convcoa.retrieval.shards.workers import ShardError
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.shards.local import LocalWorker, make_documents, whole

TEXTS = ["Ada wrote the first program.", "BM25 counts words.", "Rivers are wet.", "Apples grow on trees."]


class Broken(LocalWorker):
    """One that answers a number of messages, and no more."""

    def __init__(self, name, corpus, answers):
        super().__init__(name, corpus)
        self.answers = answers

    def ask(self, message, seconds):
        self.answers -= 1
        if self.answers < 0:
            raise ShardError(f"The shard {self.name} did not answer: gone", self.name)
        return super().ask(message, seconds)


def corpus_of(encoder, *texts, first=0):
    documents = [Document(text, id=f"d{number}") for number, text in enumerate(texts, first)]
    return MemoryCorpus(build_memory(documents, encoder))


def workers_over(encoder, kind=LocalWorker, **options):
    corpora = [corpus_of(encoder, *TEXTS[:2]), corpus_of(encoder, *TEXTS[2:], first=2)]
    return [LocalWorker("one", corpora[0]), kind("two", corpora[1], **options)]


def test_equal_scores_come_in_the_order_of_the_shards(encoder):
    workers = [LocalWorker(str(n), corpus_of(encoder, *["The same."] * 3, first=3 * n)) for n in range(3)]
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=encoder, k=5)
    found = retriever.invoke("the same")
    assert [document.id for document in found] == ["d0", "d1", "d2", "d3", "d4"]
    assert all(one.metadata["score"] == other.metadata["score"] for one, other in pairwise(found))


def test_without_words_two_rounds_are_enough(encoder):
    workers = workers_over(encoder)
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=encoder, lexical_weight=0.0, k=1)
    retriever.invoke("Ada wrote it")
    # Of the second nothing is among the best.
    assert [worker.asked for worker in workers] == [["about", "search", "fetch"], ["about", "search"]]


def test_a_document_that_all_shards_know_of_is_given_by_its_id(encoder):
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder)), encoder=encoder)
    assert [one.page_content for one in retriever.get_by_ids(["d3", "d9", "d0"])] == [TEXTS[3], TEXTS[0]]
    assert len(retriever.corpus) == 4


def test_the_collection_is_that_of_all_shards(encoder):
    about = [{"source": "a.pptx", "page": n, "year": 2000 + n} for n in range(3)]
    slides = [Document(f"Slide {n}.", id=f"s{n}", metadata=metadata) for n, metadata in enumerate(about)]
    ada, words, rivers = (Document(text, id=text.split()[0]) for text in TEXTS[:3])
    parts = [[slides[1], ada, words], [], [slides[0]], [slides[2], rivers]]
    corpora = [MemoryCorpus(build_memory(part, encoder)) if part else MemoryCorpus() for part in parts]
    corpus = ShardedCorpus([LocalWorker(str(number), one) for number, one in enumerate(corpora)])
    view = corpus.snapshot()
    assert (len(view), view.keys.tolist()) == (6, [*range(6)])
    listed = view.listed()
    assert [(one.id, one.numbers) for one in listed] == [
        ("s0", [3]), ("s1", [0]), ("s2", [4]), ("Ada", [1]), ("BM25", [2]), ("Rivers", [5]),
    ]  # fmt: skip
    assert listed[0].metadata == slides[0].metadata
    order = [5, 0, 5, 3]
    assert [passage.document.id for passage in view.fetch(order)] == ["Rivers", "s1", "Rivers", "s0"]
    one = build_memory([document for part in parts for document in part], encoder)
    assert view.wholes(np.array(order)).tolist() == one.wholes(np.array(order)).tolist()
    assert view.patterns.values.tolist() == one.patterns.values.tolist()
    assert view.allowed(None) is None
    assert view.allowed({"year": {"$gt": 2000}}).tolist() == one.allowed({"year": {"$gt": 2000}}).tolist()
    with pytest.raises(RetrievalError, match="vectors of length 8"):
        view.check_encoder(BagOfWords("other", dimension=8))
    corpora[0].delete(["Ada"])
    assert len(corpus) == 5
    with pytest.raises(StaleSnapshot):
        view.listed()


def test_a_long_list_comes_in_parts_between_which_questions_are_answered(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("langgraph_convcoa.retrieval.shards.whole._AT_ONCE", 3)
    choose = random.Random(3)
    documents = make_documents(choose, 30)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, part in zip(folders, (documents[:8], documents[8:]), strict=True):
        HopfieldRetriever.from_documents(part, encoder=encoder, path=folder, graph=False)
    Index(folders[1]).delete([str(documents[9].id), str(documents[20].id)])
    view = ShardedCorpus(workers := [LocalWorker(folder.name, Index(folder)) for folder in folders]).snapshot()
    one = MemoryCorpus(build_memory(documents, encoder))
    one.delete([str(documents[9].id), str(documents[20].id)])
    memory = one.snapshot()
    assert view.listed() == memory.listed()
    assert view.listed(np.arange(1, 20)) == memory.listed(np.arange(1, 20))
    condition = {"year": {"$gt": 2012}}
    assert view.allowed(condition).tolist() == memory.allowed(condition).tolist()
    assert [worker.asked.count("allowed") for worker in workers] == [-(-view.counted[place][1] // 3) for place in (0, 1)]


def test_the_collection_of_a_partial_answer_is_what_there_is(encoder):
    corpus = ShardedCorpus(workers_over(encoder, Broken, answers=1), partial=True)
    assert [one.id for one in corpus.snapshot().listed()] == ["d0", "d1"]
    whole = ShardedCorpus(workers_over(encoder, Broken, answers=1))
    with pytest.raises(ShardError, match="The shard two did not answer"):
        whole.snapshot()


def test_shards_are_not_changed_through_the_retriever(encoder, tmp_path):
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder)), encoder=encoder)
    for change in (
        lambda: retriever.add_texts(["More."]),
        lambda: retriever.delete(["d0"]),
        lambda: retriever.save_pretrained(tmp_path / "x"),
    ):
        with pytest.raises(InputError, match="change each as an index"):
            change()


def test_a_change_between_two_rounds_begins_the_question_again(encoder):
    workers = workers_over(encoder)
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=encoder)
    ask, corpus = workers[0].ask, workers[0]._shard._corpus

    def changing(message, seconds):
        if message["ask"] == "best" and len(corpus) == 2:
            corpus.delete(["d0"])
            # Another question sees the new state, and the shard with it.
            ask({"ask": "words", "words": []}, seconds)
        return ask(message, seconds)

    workers[0].ask = changing
    assert {document.id for document in retriever.invoke("Ada wrote the program")} == {"d1", "d2", "d3"}
    assert workers[0].asked.count("best") == 2


def test_what_changes_again_and_again_is_an_error(encoder):
    workers = workers_over(encoder)
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=encoder)
    workers[1].ask = lambda message, seconds: {"changed": True}
    with pytest.raises(RetrievalError, match="changed faster"):
        retriever.invoke("rivers")


@pytest.mark.parametrize("answers", [1, 2, 3])
def test_a_shard_that_fails_in_any_round_is_an_error_that_names_it(encoder, answers):
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder, Broken, answers=answers)), encoder=encoder)
    with pytest.raises(ShardError, match="The shard two did not answer") as caught:
        retriever.invoke("rivers are wet")
    assert caught.value.shard == "two"
    with pytest.raises(ShardError):
        retriever.search_batch(["rivers are wet"])


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_a_partial_answer_says_so(encoder, answers, caplog):
    workers = workers_over(encoder, Broken, answers=answers)
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers, partial=True), encoder=encoder, k=2)
    with caplog.at_level(logging.WARNING):
        found = retriever.invoke("rivers are wet")
    assert [document.metadata["certified"] for document in found] == [False, False]
    assert "Answered without 1 of 2 shards: The shard two did not answer: gone" in caplog.text
    # Words are weighed by the shards that answered.
    alone = HopfieldRetriever(corpus=corpus_of(encoder, *TEXTS[:2]), encoder=encoder, graph=False)
    assert [(d.id, d.metadata["score"]) for d in found] == alone.search_batch(["rivers are wet"])[0]


def test_without_any_shard_there_is_no_partial_answer(encoder):
    corpora = [corpus_of(encoder, *TEXTS[:2]), corpus_of(encoder, *TEXTS[2:], first=2)]
    workers = [Broken(str(n), corpus, 1) for n, corpus in enumerate(corpora)]
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers, partial=True), encoder=encoder)
    with pytest.raises(ShardError, match="The shard 0 did not answer"):
        retriever.invoke("rivers are wet")


def test_a_worker_that_does_not_heed_the_time_is_not_waited_for(encoder, monkeypatch):
    workers = workers_over(encoder)
    corpus = ShardedCorpus(workers, timeout=0.1)
    monkeypatch.setattr("langgraph_convcoa.retrieval.shards.crew._GRACE", 0.1)
    answered, told = threading.Event(), threading.Event()

    def start() -> None:
        told.wait(60)
        answered.set()

    workers[1].start = start
    with pytest.raises(ShardError, match="The shard two did not answer in time"):
        HopfieldRetriever(corpus=corpus, encoder=encoder).invoke("rivers")
    assert not answered.is_set()
    told.set()


def test_a_filter_that_cannot_go_to_a_shard(encoder):
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder), partial=True), encoder=encoder)
    with pytest.raises(InputError, match="function cannot be sent to shards"):
        retriever.invoke("rivers", filter=lambda document: True)
    with pytest.raises(InputError, match="cannot be sent to shards"):
        retriever.invoke("rivers", filter={"year": object()})


def test_a_filter_that_a_passage_cannot_be_compared_with_is_no_failed_shard(encoder):
    corpus = MemoryCorpus(build_memory([Document("Rivers are wet.", id="a", metadata={"year": "old"})], encoder))
    retriever = HopfieldRetriever(corpus=ShardedCorpus([LocalWorker("one", corpus)], partial=True), encoder=encoder)
    with pytest.raises(InputError, match="have no order"):
        retriever.invoke("rivers", filter={"year": {"$gt": 2016}})


def test_closed_shards_are_not_searched(encoder):
    with HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder)), encoder=encoder) as retriever:
        assert retriever.invoke("rivers")
    with pytest.raises(RetrievalError, match="closed"):
        retriever.invoke("rivers")


def test_a_copy_opens_the_shards_again(encoder):
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers_over(encoder)), encoder=encoder)
    other = copy.deepcopy(retriever.corpus)
    retriever.close()
    assert other.documents(["d0"])[0].page_content == TEXTS[0]


# Indexes on disk ------------------------------------------------------------------------------------------------------


def make_index(path, encoder, *texts, first=0, **options):
    documents = [Document(text, id=f"d{number}") for number, text in enumerate(texts, first)]
    HopfieldRetriever.from_documents(documents, encoder=encoder, path=path, **options)
    return LocalWorker(path.name, Index(path))


def test_shards_that_are_not_alike(encoder, tmp_path):
    one = make_index(tmp_path / "one", encoder, TEXTS[0])
    others = {
        "the encoder 'other', and one has 'bag'": make_index(tmp_path / "a", BagOfWords("other"), TEXTS[1], first=1),
        "the dimension 64, and one has 4096": make_index(tmp_path / "b", BagOfWords(dimension=64), TEXTS[1], first=1),
        "patterns 'int8', and one has 'float32'": make_index(tmp_path / "c", encoder, TEXTS[1], first=1, dtype="int8"),
        "one and one are the same index": LocalWorker("one", Index(tmp_path / "one")),
        "The id 'd0' is in the shard one and in d": make_index(tmp_path / "d", encoder, TEXTS[1]),
    }
    for message, other in others.items():
        with pytest.raises(RetrievalError, match=message):
            ShardedCorpus([one, other])
    with pytest.raises(InputError, match="There are no shards"):
        ShardedCorpus([])


def test_an_id_of_a_passage_that_is_one_of_a_document_elsewhere(encoder, tmp_path):
    long = " ".join(f"This is sentence {n} of many about rivers." for n in range(60))
    one = make_index(tmp_path / "one", encoder, long)
    other = LocalWorker("two", MemoryCorpus(build_memory([Document("Short.", id="d0#2")], encoder)))
    index = HopfieldRetriever.from_documents([Document("Short.", id="d0#2")], encoder=encoder, path=tmp_path / "two").corpus
    other = LocalWorker("two", index)
    with pytest.raises(RetrievalError, match="The id 'd0#2' is in the shard one and in two"):
        ShardedCorpus([one, other])


def test_an_id_that_came_into_two_shards_later(encoder, tmp_path):
    workers = [
        make_index(tmp_path / "one", encoder, *TEXTS[:2]),
        make_index(tmp_path / "two", encoder, *TEXTS[2:], first=2),
    ]
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=encoder)
    Index(tmp_path / "two").add_documents([Document("Ada wrote it.", id="d0")], encoder)
    with pytest.raises(RetrievalError, match="The id 'd0' is in the shard one and in two"):
        retriever.invoke("Ada wrote it.")


def test_an_encoder_that_the_shards_were_not_built_with(encoder, tmp_path):
    workers = [make_index(tmp_path / "one", encoder, *TEXTS)]
    retriever = HopfieldRetriever(corpus=ShardedCorpus(workers), encoder=BagOfWords("other"))
    with pytest.raises(RetrievalError, match="built with the encoder 'bag'"):
        retriever.check_encoder()
    with pytest.raises(RetrievalError, match="built with the encoder 'bag'"):
        retriever.invoke("Ada")


def test_what_is_added_deleted_and_compacted_in_a_shard_is_seen_by_the_next_question(encoder, tmp_path):
    choose = random.Random(5)
    documents = make_documents(choose, 40)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, part in zip(folders, (documents[:15], documents[15:30]), strict=True):
        HopfieldRetriever.from_documents(part, encoder=encoder, path=folder, graph=False)
    sharded = HopfieldRetriever(
        corpus=ShardedCorpus([LocalWorker(folder.name, Index(folder)) for folder in folders]), encoder=encoder
    )
    one = HopfieldRetriever.from_documents(documents[:15], encoder=encoder, graph=False)
    one.add_documents(documents[15:30])
    writers = [Index(folder) for folder in folders]
    for step in (
        lambda: None,
        lambda: (writers[0].delete(["d1", "d7"]), one.delete(["d1", "d7"])),
        lambda: (writers[1].add_documents(documents[30:], encoder), one.add_documents(documents[30:])),
        lambda: writers[0].compact(),
        lambda: (writers[1].delete(["d16", "d35"]), one.delete(["d16", "d35"])),
    ):
        step()
        for document in documents[::8]:
            question = document.page_content[:60]
            assert whole(sharded.invoke(question, k=7)) == whole(one.invoke(question, k=7))


def test_the_shards_of_a_folder(encoder, tmp_path):
    assert not is_sharded(tmp_path)
    with pytest.raises(RetrievalError, match="holds no shards"):
        shard_folders(tmp_path)
    paths = [shard_path(tmp_path, number, 11) for number in range(1, 12)]
    for number, path in enumerate(paths):
        make_index(path, encoder, "Some text.", first=number)
    assert is_sharded(tmp_path)
    assert shard_folders(tmp_path) == paths
    (paths[4] / "index.sqlite").unlink()
    with pytest.raises(RetrievalError, match="shard-5-of-11 is missing"):
        shard_folders(tmp_path)
    make_index(shard_path(tmp_path, 1, 2), encoder, "Some text.")
    with pytest.raises(RetrievalError, match="shards of several sets"):
        shard_folders(tmp_path)


def test_options_that_shards_have_not(tmp_path):
    with pytest.raises(InputError, match="workers must be one of processes, ray"):
        HopfieldRetriever.from_shards([tmp_path], workers="threads")
    with pytest.raises(InputError, match='for workers="ray"'):
        HopfieldRetriever.from_shards([tmp_path], ray_address="auto")
    with pytest.raises(InputError, match="leave out graph"):
        HopfieldRetriever.from_shards([tmp_path], graph=True)
    with pytest.raises(InputError, match="timeout must be above 0"):
        HopfieldRetriever.from_shards([tmp_path], timeout=0)
