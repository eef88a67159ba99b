"""The methods by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import METHODS, check_methods, make_method
from tests.fakes import KeywordRetriever, ScriptedModel


def kit(**settings: object) -> Kit:
    return Kit(ScriptedModel(), **{"retriever": KeywordRetriever(), **settings})  # type: ignore[arg-type]


def test_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no method 'reakt'; choose from closed-book, history-aware-rag, react, ours"):
        make_method("reakt", kit())
    with pytest.raises(InputError, match="no method 'ours-without-web'"):
        check_methods(["ours", "ours-without-web"])


def test_a_method_that_searches_needs_a_retriever_and_one_that_asks_a_model() -> None:
    for name, entry in METHODS.items():
        assert make_method(name, kit()).get_name() == name
        if entry.searches:
            with pytest.raises(InputError, match=f"'{name}' needs a retriever.*give documents"):
                make_method(name, kit(retriever=None))
    with pytest.raises(InputError, match="'ours' needs --model; without a model there is 'extractive'"):
        check_methods(["extractive", "ours"], model=False)
    with pytest.raises(InputError, match="needs a chat model"):
        make_method("ours", Kit(retriever=KeywordRetriever()))


def test_the_names_are_known_before_anything_heavy_is_loaded() -> None:
    code = (
        "import sys; from langgraph_convcoa.evaluation.methods.registry import check_methods; check_methods(['ours']); "
        "assert 'torch' not in sys.modules and 'langgraph_convcoa.graph' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
