import json

import pytest
from langchain_core.documents import Document

from experiments.bench.engine import compare_engine
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from tests.fake_encoder import WordEncoder
from tests.postgres_server import pgvector_server

_FRUITS = ["apples", "pears", "figs", "plums", "sloes", "dates", "limes", "kiwis", "nuts", "grapes", "melons", "olives"]


def test_an_engine_is_compared_with_the_exact_ranking():
    # The more often a fruit is named, the better a passage fits it: no two fit as well.
    corpus = [
        Document(f"{one} " * (1 + place) + "in " + " ".join(f"{one}{n}" for n in range(place % 5)), id=f"{one}-{other}")
        for one in _FRUITS
        for place, other in enumerate(_FRUITS)
    ]
    queries = [Query(one, f"What is like {one}?", (("Tell me of figs.", ""),), (f"{one}-{one}",)) for one in _FRUITS[:4]]
    dataset = Dataset("fruits", tuple(queries), tuple(corpus))
    with pgvector_server() as url:
        engine = open_engine(f"{url}?collection=compared")
        report = compare_engine(dataset, engine, candidates=(1, 144), encoder=WordEncoder())
        engine.close()
    few, all_of_them = report.rows
    assert (all_of_them.recall, all_of_them.same, all_of_them.mrr) == (1.0, 1.0, all_of_them.exact_mrr)
    assert few.recall > 0.9
    assert (few.questions, few.passages) == (4, 144)
    assert json.loads(json.dumps(report.to_dict()))["rows"][1]["candidates"] == 144
    with pytest.raises(InputError, match="at least 1"):
        compare_engine(dataset, engine, candidates=(), encoder=WordEncoder())
