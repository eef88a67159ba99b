"""Turns in processes of their own, which a test may kill; the processes are forked from one that has everything imported."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.graph import build_graph
from tests.fakes import KeywordRetriever, WaitingAction

THREAD = "the thread"


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


def one_turn(store: str, base_url: str, model: str, question: str, ready: Connection) -> None:
    """Ask one question with a model; says when it begins, and that it has ended."""
    graph = build_graph(
        model=model, base_url=base_url, retriever=KeywordRetriever(), actions=[WaitingAction("waiting", seconds=0.05)]
    )
    with Session(graph, ConvCoAContext(), THREAD, Path(store)) as session:
        ready.send("begin")
        session.ask(question)
        ready.send("end")


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
