"""Retrieval with the ideas of other papers beside ours: `python -m experiments.peers`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from experiments.peers.readers import peer_rankers
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.datasets.read import load_distractors, load_part
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval
from langgraph_convcoa.evaluation.retrieval.rankers import passage_pool
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each method."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.peers")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl, with histories")
    parser.add_argument("--split", help="only queries of this split")
    parser.add_argument("--distractors", help="FILE:N: the first N passages of a corpus file join the pool")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help="encoder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    dataset, part = load_part(given.data, given.split)
    distractors = list(load_distractors(given.distractors)) if given.distractors else []
    encoder, cache = SentenceTransformerEncoder(given.encoder, dtype="float32"), open_cache()
    peers = peer_rankers(passage_pool(dataset, distractors), encoder, cache)
    report = evaluate_retrieval(
        dataset,
        part=part,
        methods=["bm25", *peers, "untrained"],
        further=peers,
        distractors=distractors,
        encoder=encoder,
        cache=cache,
        progress=True,
        settings={"lexical_history": 0.0},
    )
    print_report(report, given.json)


if __name__ == "__main__":
    main()
