"""Speed on this machine: `python -m experiments.bench encoder`, `question` or `engine`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.bench.encoder import bench_encoder
from experiments.bench.engine import compare_engine
from experiments.bench.question import bench_question
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.datasets.read import load_dataset, load_distractors
from langgraph_convcoa.evaluation.reports import Report
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.engine.choose import open_engine


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report of one benchmark."""
    given = _parser().parse_args(arguments)
    print_report(_BENCHMARKS[given.what](given), given.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.bench")
    what = parser.add_subparsers(dest="what", required=True)

    encoder = what.add_parser("encoder", help="encoding of passages in int8 and float32 against sentence-transformers")
    encoder.add_argument("--model", default=DEFAULT_ENCODER, help="encoder (default: %(default)s)")
    encoder.add_argument("--data", type=Path, help="folder with passages (default: text of the demonstration)")
    encoder.add_argument("--passages", type=int, default=60, help="passages that are encoded (default: 60)")
    encoder.add_argument("--runs", type=int, default=5, help="timed repetitions (default: 5)")

    question = what.add_parser("question", help="retrieval of a follow-up; processor time of `convcoa search demo`")
    question.add_argument("--passages", type=int, default=6_000, help="passages that are searched (default: 6000)")
    question.add_argument("--turns", type=int, default=8, help="earlier turns of the conversation (default: 8)")
    question.add_argument("--runs", type=int, default=20, help="timed repetitions of a retrieval (default: 20)")
    question.add_argument("--commands", type=int, default=5, help="timed runs of the command (default: 5)")

    engine = what.add_parser("engine", help="rankings of an engine against the exact search over the same passages")
    engine.add_argument("data", type=Path, help="folder of queries.jsonl and corpus.jsonl")
    engine.add_argument("--to", required=True, help="address of the engine, with a collection of its own")
    engine.add_argument("--candidates", default="25,50,100,200", help="numbers of candidates (default: %(default)s)")
    engine.add_argument("--split", help="only queries of this split")
    engine.add_argument("--questions", type=int, help="only the first N questions")

    engine.add_argument("--distractors", help="FILE:N: the first N passages of a corpus file are searched too")
    for one in (encoder, question, engine):
        one.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _encoder(given: argparse.Namespace) -> Report:
    dataset = load_dataset(given.data) if given.data is not None else None
    return bench_encoder(given.model, dataset=dataset, passages=given.passages, runs=given.runs, progress=True)


def _question(given: argparse.Namespace) -> Report:
    return bench_question(given.passages, turns=given.turns, runs=given.runs, commands=given.commands, progress=True)


def _engine(given: argparse.Namespace) -> Report:
    return compare_engine(
        load_dataset(given.data, split=given.split),
        open_engine(given.to, timeout=120),
        candidates=[int(number) for number in given.candidates.split(",")],
        questions=given.questions,
        distractors=load_distractors(given.distractors) if given.distractors else (),
        cache=open_cache(),
        progress=True,
    )


_BENCHMARKS = {"encoder": _encoder, "question": _question, "engine": _engine}

if __name__ == "__main__":
    main()
