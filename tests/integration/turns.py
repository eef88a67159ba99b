"""Turns in processes of their own, which a test may kill; the processes are forked from one that has everything imported."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.graph import build_graph
from tests.fakes import KeywordRetriever, WaitingAction

THREAD = "the thread"
MODEL_NODES = ["plan", "correct"]


def context() -> ForkServerContext:
    processes = multiprocessing.get_context("forkserver")
    # All that a first turn would import, which would take most of it.
    preload = [
        *("tests.integration.turns", "langgraph_convcoa.reasoning.chat_model", "langgraph_convcoa.storage.sqlite"),
        *("langgraph.checkpoint.sqlite.aio", "langchain_openai", "openai.resources.beta.beta"),
        *("anyio._backends._asyncio", "httpcore2", "filelock", "tests.fake_encoder", "langgraph.store.postgres.aio"),
        *("langgraph.checkpoint.postgres.aio", "psycopg_pool", "uvicorn.lifespan.on", "uvicorn.protocols.http.auto"),
        *("langgraph_convcoa.cli.serve", "langgraph_convcoa.server.app", "langgraph_convcoa.retrieval.index.index"),
        *("langgraph_convcoa.graph", "langgraph_convcoa.actions.overview", "multipart"),
    ]
    processes.set_forkserver_preload(preload)
    return processes


def serve(words: list[str], environment: dict[str, str], log: str) -> None:
    """`convcoa serve` with an encoder that takes no time, in this process."""
    from langgraph_convcoa.cli.app import main
    from langgraph_convcoa.retrieval import retriever
    from tests.fake_encoder import WordEncoder

    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    encoder = WordEncoder()
    retriever.as_encoder = lambda _encoder: encoder
    sys.argv = ["convcoa", "serve", *words]
    main()


def one_turn(store: str, base_url: str, model: str, question: str, ready: Connection, most: int | None) -> None:
    """Ask one question with a model; say when it begins and at each write to the store, and that it has ended."""
    # With `most`, no more than so many writes are made: the next one, or the end, waits for the kill.
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    numbers = itertools.count(1)

    def told(write: Any) -> Any:
        # LangGraph looks at what a write takes.
        @functools.wraps(write)
        async def tell(*given: Any, **more: Any) -> Any:
            ready.send("write")
            if most is not None and next(numbers) > most:
                signal.pause()
            return await write(*given, **more)

        return tell

    for name in ("aput", "aput_writes"):
        setattr(AsyncSqliteSaver, name, told(getattr(AsyncSqliteSaver, name)))
    graph = build_graph(
        model=model, base_url=base_url, retriever=KeywordRetriever(), actions=[WaitingAction("waiting", seconds=0.05)]
    )
    with Session(graph, ConvCoAContext(), THREAD, Path(store)) as session:
        ready.send("begin")
        session.ask(question)
        ready.send("end")
        if most is not None:
            signal.pause()


def stored(store: Path) -> set[tuple[str, str]]:
    """The tasks whose results are in the file, by id and path; a turn that was killed after its end has left its own there."""
    with closing(sqlite3.connect(store)) as connection:
        return set(connection.execute("SELECT DISTINCT task_id, task_path FROM writes"))


def committed(tasks: set[tuple[str, str]]) -> set[str]:
    """The nodes that these tasks are of."""
    return {name for _, path in tasks for name in MODEL_NODES if re.search(rf"\b{name}\b", path)}


def many_turns(store: str, writer: int, threads: list[str], turns: int) -> None:
    """Ask questions in several threads in turn, without a model."""
    graph = build_graph(retriever=KeywordRetriever())
    sessions = [Session(graph, ConvCoAContext(), thread, store) for thread in threads]
    for session in sessions:
        session.__enter__()
    for n in range(turns):
        session = sessions[(writer + n) % len(sessions)]
        session.ask(f"When was the Hopfield network described, {session.thread} {writer}-{n}?")
    for session in sessions:
        session.__exit__(None, None, None)
