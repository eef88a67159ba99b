"""What every test gets: strict checkpoints, no tracing, no keys from the environment.

Shared doubles, to be used before a new one is written:
    tests/fakes.py          `ScriptedModel` (the model) and its replies `plan`, `node`, `direct`, `corrections`;
                            `KeywordRetriever`, `FixedRetriever`, `WaitingAction`, `WebAction`; `chain_item`;
                            `turn(graph, inputs, asynchronous=, streamed=)` runs a turn;
                            `decided_by(response, reviews)` reads a person's decisions
    tests/fake_encoder.py   `WordEncoder` (the encoder)
    tests/openai_server.py  `OpenAIServer(script)`, a server of chat completions, and `server.model()`, its client
    tests/loopback.py       `Loopback`, the server below it and the web site of `tests/actions/web/site.py`
    tests/data.py           `write_dataset(folder, queries, corpus)`, `write_rows(path, rows)` and `pdf_bytes(*pages)`
    here                    fixtures `cli` (runs `convcoa` in this process) and `words` (commands use `WordEncoder`)
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Before langgraph is imported: it reads this once. One test runs a graph without it, in a process of its own.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Before torch is: on a busy machine its threads would otherwise spin while they wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Processes of a run share the processors: numpy's threads would spin beside each other, for three times the time of the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No test speaks TLS, and each client of httpx would read all the system's certificates, 50 ms a time: here are none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

import pytest
from hypothesis import settings

# A background job of a shell (`nohup make test &`) ignores SIGINT, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes on a busy machine says nothing; the same examples each time, new and more ones by `make fuzz`.
settings.register_profile("untimed", deadline=None, derandomize=True, max_examples=50)
# `make fuzz` asks for more examples than a run of the tests does.
settings.register_profile("fuzz", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "untimed"))


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not go through it again and again, 5% of the time of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    """What was frozen is let go of at the end, or compiled modules report it as leaked."""
    gc.unfreeze()


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """For trainings whose results are those of a processor."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def cli() -> Callable[..., Any]:
    """Runs `convcoa` with some words in this process; `code` is the exit code that it must end with."""
    from tests.cli.commands import convcoa

    return partial(convcoa, code=0)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Retrievers that are opened without an encoder use this `WordEncoder`; caches are in a folder of the test."""
    from tests.fake_encoder import WordEncoder

    encoder = WordEncoder()
    monkeypatch.setattr("langgraph_convcoa.retrieval.retriever.as_encoder", lambda _encoder: encoder)
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    return encoder


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "LANGSMITH_API_KEY",
        "LANGCHAIN_TRACING_V2",
        "CONVCOA_MODEL",
        "CONVCOA_DOCS",
        "CONVCOA_INDEX",
    ):
        monkeypatch.delenv(name, raising=False)
