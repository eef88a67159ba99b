"""Settings of all tests: strict checkpoints, no tracing, no keys from the environment. Also shared fixtures.

Shared doubles; use these before you write others:
    tests/fakes.py          `ScriptedModel` (the model) and its replies `plan`, `node`, `direct`, `corrections`;
                            `KeywordRetriever`, `FixedRetriever`, `WaitingAction`, `WebAction`; `chain_item`;
                            `turn(graph, inputs, asynchronous=, streamed=)` runs a turn;
                            `decided_by(response, reviews)` reads a person's decisions
    tests/fake_encoder.py   `WordEncoder` (the encoder)
    tests/openai_server.py  `OpenAIServer(script)`, a server of chat completions, and `server.model()`, its client
    tests/loopback.py       `Loopback`, the base class of `OpenAIServer` and of the web site of `tests/actions/web/site.py`
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

# Set before langgraph is imported, which reads it once. One test runs a graph without it, in its own process.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Set before torch is imported: on a busy machine its threads would otherwise spin while they wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Test processes share the processors: numpy's threads would spin, and the work would take three times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No test uses TLS. Each httpx client would read all system certificates, which takes 50 ms; this folder has none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

import pytest
from hypothesis import settings

# A background job of a shell (`nohup make test &`) ignores SIGINT, and so would processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline, since the time of an example on a busy machine says nothing. Examples are the same in each run.
settings.register_profile("untimed", deadline=None, derandomize=True, max_examples=50)
# `make fuzz` runs more and new examples.
settings.register_profile("fuzz", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "untimed"))


def pytest_collection_finish() -> None:
    """Freeze the imported objects: without that, garbage collection would check them again, 5% of a run's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    """Unfreeze at the end; otherwise compiled modules report the objects as leaked."""
    gc.unfreeze()


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train on the CPU, for tests that compare results of the CPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def cli() -> Callable[..., Any]:
    """Run `convcoa` with arguments in this process; `code` is the expected exit code."""
    from tests.cli.commands import convcoa

    return partial(convcoa, code=0)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Retrievers opened without an encoder use this `WordEncoder`; caches are in the test's folder."""
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
