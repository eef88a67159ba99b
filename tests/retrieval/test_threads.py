from __future__ import annotations

import numpy as np
import pytest

from langgraph_convcoa.retrieval.encoders.base import cores


def test_a_search_leaves_the_matrix_library_of_its_process_alone(monkeypatch):
    from threadpoolctl import threadpool_info

    from langgraph_convcoa.retrieval.scoring import topk
    from langgraph_convcoa.retrieval.scoring.patterns import Patterns

    monkeypatch.setattr(topk, "_WORTH_THREADS", 0)
    seen: list[object] = []
    plain = topk.first_pass

    def watched(*arguments):
        seen.append(threadpool_info())
        return plain(*arguments)

    monkeypatch.setattr(topk, "first_pass", watched)
    before = threadpool_info()
    topk.search(Patterns(np.eye(4, dtype=np.float32), np.array([0, 2, 4])), np.ones((1, 4), dtype=np.float32), k=1)
    assert seen == [before]


@pytest.mark.parametrize(("told", "number"), [("3", 3), ("1", 1), ("0", None), ("many", None), ("", None)])
def test_as_many_threads_as_torch_would_take(monkeypatch, told, number):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = cores()
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert cores() == (number or every)
