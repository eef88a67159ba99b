"""`convcoa evaluate retrieval`: compares retrieval methods on the user's questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.cli.options import AsJson, NoCache, grouped, names_of, panel, removed_option
from langgraph_convcoa.evaluation.retrieval.methods import RETRIEVAL_METHODS

_data, _compared, _search = map(panel, ("What is asked and searched", "What is compared", "How it is searched"))
_PEERS = "run python -m experiments.peers DATA in a checkout of the repository"
RETRIEVAL_HELP = "\n\n".join(
    ["[bold]Methods[/bold]", *(f"{name}: {description}" for name, description in RETRIEVAL_METHODS.items())]
)
"""The end of the command's help."""


@dataclass(frozen=True)
class RetrievalCommand:
    """The options of the command."""

    split: Annotated[
        str | None, _data("NAME", "Only queries of this split; dev is the part that training leaves out if there is none.")
    ] = None
    distractors: Annotated[
        list[str] | None, _data("FILE:N", "The first N passages of a corpus file join every pool; may be repeated.")
    ] = None
    max_passages: Annotated[
        int | None, _data("N", "Keep the gold passages and the first others of a large corpus.", min=1)
    ] = None
    index: Annotated[Path | None, _data("DIR", "Search this index instead of the data's own passages.")] = None
    methods: Annotated[str | None, _compared("A,B", "See below.")] = None
    model: Annotated[Path | None, _compared("DIR", "A model that convcoa train made, measured as `trained`.")] = None
    baseline: Annotated[
        str | None, _compared("A", "The method that the others are tested against; untrained, or the first.")
    ] = None
    seed: Annotated[int, _compared("S", "Of the intervals and tests.", min=0)] = 0
    encoder: Annotated[str | None, _search("NAME", "Encoder; all-MiniLM-L6-v2 by default.")] = None
    encoder_dtype: Annotated[str, _search("TYPE", "What passages are encoded in: int8 (the default) or float32.")] = "int8"
    lexical_weight: Annotated[float | None, _search("W", "Weight of BM25, the same for all methods.", min=0.0)] = None
    lexical_history: Annotated[
        float | None, _search("W", "Weight of the words of earlier turns in BM25, the same for all methods.", min=0.0)
    ] = None
    rewriter: Annotated[str | None, removed_option(_PEERS, "--rewriter")] = None
    answerer: Annotated[str | None, removed_option(_PEERS, "--answerer")] = None
    dual: Annotated[str | None, removed_option(_PEERS, "--dual")] = None

    def evaluation(self, no_cache: bool) -> dict[str, Any]:
        """The options of `evaluate_retrieval`."""
        from langgraph_convcoa.datasets.passages import load_distractors
        from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
        from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

        weights = {"lexical_weight": self.lexical_weight, "lexical_history": self.lexical_history}
        return {
            "methods": names_of(self.methods) if self.methods is not None else None,
            "model": self.model,
            "baseline": self.baseline,
            "distractors": [document for part in self.distractors or () for document in load_distractors(part)],
            "index": self.index,
            "encoder": SentenceTransformerEncoder(self.encoder or DEFAULT_ENCODER, dtype=self.encoder_dtype),
            "cache": None if no_cache else open_cache(),
            "progress": True,
            "settings": {name: value for name, value in weights.items() if value is not None},
            "seed": self.seed,
        }


@grouped(RetrievalCommand)
def retrieval(
    chosen: RetrievalCommand,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Folders of queries.jsonl(.gz) and corpus.jsonl(.gz), or QReCC, TopiOCQA, QuAC, CoQA, MTRAG as published.",
        ),
    ],
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Compare retrieval methods: MRR, Recall@k, All@k, nDCG@10 for questions in conversation, with intervals and paired tests.

    Several data sets have a table each, and one of the mean over them. A row of queries.jsonl has an id, a question, a history
    (pairs of question and answer), gold (passage ids) and, if known, rewrite, split and conversation_id; a row of
    corpus.jsonl an id, a title and a text. Your own retriever is measured from Python: `evaluate_retrieval(further=...)`.

    [bold]Examples[/bold]
      convcoa evaluate retrieval data/mtrag --distractors data/squad2/corpus.jsonl.gz:3000
      convcoa evaluate retrieval data/abg_coqa data/pacific --split dev --model my-model --methods bm25,untrained,trained
      convcoa evaluate retrieval topiocqa/ --split dev --index wiki-index --json
    """
    from langgraph_convcoa.datasets.read import load_part
    from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources

    loaded = [load_part(path, chosen.split, max_passages=chosen.max_passages) for path in data]
    options = chosen.evaluation(no_cache)
    if len(loaded) == 1:
        dataset, part = loaded[0]
        print_report(evaluate_retrieval(dataset, part=part, **options), as_json)
        return
    parts = [part for _, part in loaded]
    print_report(evaluate_sources([dataset for dataset, _ in loaded], parts=parts, **options), as_json)
