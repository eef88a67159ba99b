from __future__ import annotations

import subprocess
import sys

import langgraph_convcoa


def modules_after(statement: str) -> set[str]:
    script = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_the_package_imports_no_model_library() -> None:
    loaded = modules_after("import langgraph_convcoa")
    assert not loaded & {"torch", "transformers", "sentence_transformers", "langgraph", "langchain_core", "sklearn", "numpy"}


def test_the_domain_types_import_no_model_library() -> None:
    loaded = modules_after(
        "import langgraph_convcoa.chain, langgraph_convcoa.memory.knowledge_set, langgraph_convcoa.state\n"
        "import langgraph_convcoa.cli.app"
    )
    assert not loaded & {"torch", "transformers", "sentence_transformers", "sklearn"}


def test_the_command_starts_without_the_libraries_that_it_may_not_need() -> None:
    loaded = modules_after("import langgraph_convcoa.cli.app")
    assert not loaded & {"torch", "langgraph", "langchain_core", "pydantic", "numpy", "httpx"}


def test_every_public_name_is_there() -> None:
    assert set(dir(langgraph_convcoa)) == set(langgraph_convcoa.__all__)
    for name in langgraph_convcoa.__all__:
        assert getattr(langgraph_convcoa, name).__doc__, name
    assert not hasattr(langgraph_convcoa, "no_such_name")
