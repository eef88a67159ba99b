from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.errors import DocumentError, InputError
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from langgraph_convcoa.text.words import words
from tests.bounds import SECONDS, run_in_threads, wait_until


# What the workers are asked to do; they find it by its name, as they find the readers.
def echo(value: Any) -> Any:
    return value


def wait(seconds: float) -> None:
    time.sleep(seconds)


def spin() -> None:
    while True:
        pass


def fill(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000))


def leave() -> None:
    os._exit(3)


def say(text: str) -> None:
    print(text)
    os.write(1, text.encode())


def refuse() -> None:
    raise DocumentError("is not what it says")


def break_down() -> None:
    raise ZeroDivisionError("with the words of a stranger")


def nest(depth: int = 0) -> int:
    return nest(depth + 1)


def process() -> int:
    return os.getpid()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def shared() -> Iterator[Workers]:
    with Workers() as workers:
        yield workers


@pytest.mark.parametrize(
    "value", [None, 1.5, "ä\u2028\x00", ["a", {"b": b"\x00\xff"}], b"", "x" * 3_000_000, {"deep": [[[1]]]}]
)
def test_values_come_back_as_they_went(value: Any, shared: Workers) -> None:
    assert shared.call(echo, value, seconds=SECONDS) == value


def test_one_worker_serves_many_calls_and_ends_with_its_owner() -> None:
    with Workers() as workers:
        first = workers.call(process, seconds=SECONDS)
        assert {workers.call(process, seconds=SECONDS) for _ in range(5)} == {first}
    assert first != os.getpid()
    assert not alive(first)
    forgotten = Workers()
    second = forgotten.call(process, seconds=SECONDS)
    del forgotten
    gc.collect()
    assert not alive(second)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        (wait, (10 * SECONDS,), "longer than 0.5 s"),
        (spin, (), "longer than 0.5 s"),
        (leave, (), "ended the process"),
        (break_down, (), r"cannot be read \(ZeroDivisionError\)"),
        (nest, (), "nested too deeply"),
    ],
)
def test_what_passes_a_limit_is_ended_and_the_next_call_works(
    function: Any, arguments: tuple[Any, ...], told: str, shared: Workers
) -> None:
    shared.start()
    with pytest.raises(LimitError, match=told):
        shared.call(function, *arguments, seconds=0.5 if function in (wait, spin) else SECONDS)
    assert shared.call(words, "It is so.", seconds=SECONDS) == ["it", "is", "so"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_memory_is_limited() -> None:
    with Workers(megabytes=100) as workers:
        assert workers.call(fill, 50, seconds=SECONDS) == 50_000_000
        with pytest.raises(LimitError, match="100 MB"):
            workers.call(fill, 200, seconds=SECONDS)
        assert workers.call(fill, 50, seconds=SECONDS) == 50_000_000


def variables() -> list[str]:
    return list(os.environ)


def test_a_worker_has_no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "x4y5z6")
    with Workers() as workers:
        assert "SOME_PROVIDER_KEY" not in workers.call(variables, seconds=SECONDS)


def test_what_a_parser_prints_is_no_answer(shared: Workers) -> None:
    assert shared.call(say, "\x00" * 100, seconds=SECONDS) is None
    assert shared.call(echo, 1, seconds=SECONDS) == 1


def test_errors_of_the_library_keep_their_type(shared: Workers) -> None:
    with pytest.raises(DocumentError, match="is not what it says"):
        shared.call(refuse, seconds=SECONDS)
    with Workers(prepare=refuse) as workers, pytest.raises(DocumentError, match="is not what it says"):
        workers.start()


def test_threads_share_workers_and_wait_for_a_free_one() -> None:
    found: list[str] = []
    with Workers(2) as workers:
        run_in_threads(lambda n=n: found.append(workers.call(echo, f"{n}" * 100_000, seconds=SECONDS)) for n in range(8))
    assert sorted(found) == [f"{n}" * 100_000 for n in range(8)]


def test_a_worker_whose_owner_is_killed_ends(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom langgraph_convcoa.retrieval.documents.worker import Workers\n"
        "from tests.retrieval.documents.test_worker import process, wait\n"
        "workers = Workers()\nprint(workers.call(process, seconds=60), flush=True)\nworkers.call(wait, 2, seconds=60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: not alive(pid) or _zombie(pid), "the end of the worker")


def _zombie(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " in stat.read_text(encoding="utf-8", errors="replace")


def test_there_is_at_least_one_worker() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Workers(0)
