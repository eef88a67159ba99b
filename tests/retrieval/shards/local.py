"""Shards in memory, and what a sharded search is compared with: one corpus of all their documents."""

import itertools
import random

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.scoring.patterns import HopfieldWeights
from langgraph_convcoa.retrieval.shards.shard import Shard

WORDS = [f"{a}{b}" for a in ("ro", "li", "ma", "ke") for b in ("bin", "tor", "pal", "den", "gus")]


class LocalWorker:
    """A shard that answers in this process."""

    def __init__(self, name, corpus):
        self.name, self._shard, self.asked = name, Shard(corpus), []

    def __reduce__(self):
        return type(self), (self.name, self._shard._corpus)

    def start(self):
        return

    def ask(self, message, seconds):
        self.asked.append(message["ask"])
        return self._shard.answer(message)

    def end(self):
        return


def text(choose, sentences):
    return " ".join(" ".join(choose.choices(WORDS, k=choose.randint(2, 7))).capitalize() + "." for _ in range(sentences))


def make_documents(choose, count):
    """Documents short and long, some of them the same but for their ids."""
    found = []
    for number in range(count):
        metadata = {"year": choose.randint(2010, 2015), "tags": choose.sample(["a", "b", "c"], k=choose.randint(0, 2))}
        if found and choose.random() < 0.2:
            body = choose.choice(found).page_content
        else:
            body = text(choose, choose.choice([1, 2, 4, 4, 30]))
        if choose.random() < 0.03:
            body = "?!"
        found.append(Document(id=f"d{number}", page_content=body, metadata=metadata))
    return found


def make_trained(rng, encoder):
    noise = [np.eye(encoder.dimension) + rng.standard_normal((encoder.dimension,) * 2) / 10 for _ in range(3)]
    return RetrieverModel(encoder.name, weights=HopfieldWeights(*(one.astype(np.float32) for one in noise)))


def split_up(choose, documents, shards):
    """The documents of each shard; one may have none."""
    parts = [[] for _ in range(shards)]
    for document in documents:
        choose.choice(parts).append(document)
    return parts


def in_memory(parts, gone, encoder, dtype):
    """A corpus of each part, without the documents that are gone, and one of all."""
    corpora = []
    for part in [*parts, [*itertools.chain(*parts)]]:
        corpus = MemoryCorpus(build_memory(part, encoder, dtype=dtype)) if part else MemoryCorpus()
        corpus.delete(gone)
        corpora.append(corpus)
    return corpora[:-1], corpora[-1]


def make_question(choose):
    """A question and the options of a call."""
    options = {"k": choose.choice([1, 2, 2, 5, 5, 10, 100])}
    if choose.random() < 0.5:
        options["history"] = [(text(choose, 1), text(choose, choose.randint(0, 2))) for _ in range(choose.randint(1, 3))]
    year = choose.randint(2010, 2015)
    options["filter"] = choose.choice(
        [None, None, {"year": year}, {"year": {"$gte": year}}, {"$or": [{"tags": {"$contains": "a"}}, {"year": (year, 2012)}]}]
    )
    if choose.random() < 0.2:
        options["score_threshold"] = choose.choice([0.1, 0.5, 1.0])
    if choose.random() < 0.3:
        options["neighbours"] = choose.choice([1, 2])
    return text(choose, 1), {name: value for name, value in options.items() if value is not None}


def make_settings(choose, encoder):
    """Settings of a retriever."""
    settings = {
        "encoder": encoder,
        "graph": False,
        "beta": choose.choice([0.0, 1.0, 10.0, float("inf")]),
        "passage_weight": choose.choice([0.0, 0.5, 1.0]),
        "lexical_weight": choose.choice([0.0, 0.1, 0.7]),
        "lexical_history": choose.choice([0.0, 0.5]),
        "return_association": choose.random() < 0.2,
    }
    if choose.random() < 0.4:
        settings["model"] = make_trained(np.random.default_rng(choose.randint(0, 99)), encoder)
    return settings


def whole(documents):
    """All that documents hold; by themselves they are compared without their scores."""
    return [(document.id, document.page_content, dict(document.metadata)) for document in documents]


def compare(one: HopfieldRetriever, sharded: HopfieldRetriever, choose: random.Random, cases: int) -> int:
    """Ask both the same, a tenth of the cases one by one and the others together; how many passages were found."""
    count = 0
    for _ in range(cases // 10):
        question, options = make_question(choose)
        expected, found = one.invoke(question, **options), sharded.invoke(question, **options)
        assert whole(found) == whole(expected), (question, options)
        assert all(document.metadata["certified"] for document in found)
        count += len(found)
    for _ in range(3):
        asked = [make_question(choose) for _ in range(3 * cases // 10)]
        options = {name: value for name, value in asked[0][1].items() if name not in ("history", "neighbours")}
        questions, histories = [question for question, _ in asked], [other.get("history") for _, other in asked]
        # Trained weights are multiplied with all questions at once, here as there.
        expected, found = (both.search_batch(questions, histories, **options) for both in (one, sharded))
        assert found == expected, (questions, options)
        count += sum(map(len, found))
    return count
