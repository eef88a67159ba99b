"""Compare verifiers with people's ratings of answers: `python -m experiments.ratings FILE`.

A row of the .jsonl[.gz] file has response, passages (a list of texts) and faithfulness (1 to 4). It may have `turns`: a list
of {"speaker": "user" or "agent", "text"}. The last turn is the question.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from langchain_core.documents import Document
from rich.console import Console
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.rows import Row, json_lines
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Table, shown
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_FAITHFUL, _FULLY = 3.0, 4.0
_COLUMNS = ("verifier", "AUC", "rank correlation", "rejected of fully faithful answers")


def claims(row: Row, verifier: Verifier) -> list[CheckedSentence]:
    """The sentences of an answer that claim something, checked as in a graph with its passages and the conversation."""
    documents = [Document(text) for text in row.strings("passages")]
    turns = [turn.text("text") for turn in row.objects("turns", optional=True)]
    history = list(zip(turns[:-1:2], turns[1::2], strict=False))
    checked = Checker(documents, history, verifier, turns[-1] if turns else "").check(row.text("response"))
    return [sentence for sentence in checked if sentence.claims]


def compare(rows: Sequence[Row], verifiers: Sequence[str]) -> Table:
    """Compare each verifier's scores with the ratings. Answers that claim nothing ("I do not know") are left out."""
    for row in rows:
        if type(row.get("faithfulness")) not in (int, float) or not 1 <= row["faithfulness"] <= 4:
            raise row.error("`faithfulness` must be a number from 1 to 4.")
    claimed = [row for row in rows if claims(row, LexicalVerifier())]
    ratings = np.array([row["faithfulness"] for row in claimed])
    faithful = ratings >= _FAITHFUL
    if faithful.all() or not faithful.any():
        raise InputError("Ratings are compared over faithful and unfaithful answers; the data has only one of them.")
    lines = []
    for verifier in (as_verifier(name.strip()) for name in verifiers):
        found = [claims(row, verifier) for row in claimed]
        scores = [float(np.mean([sentence.verdict.score for sentence in sentences])) for sentences in found]
        fully = [sentences for sentences, rating in zip(found, ratings, strict=True) if rating >= _FULLY]
        refused = [not sentence.stands for sentences in fully for sentence in sentences]
        measures = roc_auc_score(faithful, scores), spearmanr(ratings, scores)[0], float(np.mean(refused or [False]))
        auc, correlation, share = map(shown, measures)
        lines.append((verifier.name, auc, correlation, f"{share} of {len(refused)} sentences"))
    return Table("", _COLUMNS, lines, f"{len(claimed)} rated answers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.ratings")
    parser.add_argument("data", type=Path, help="file of rated answers")
    parser.add_argument("--verifiers", default="default,lexical", help="default, lexical, CrossEncoders, or trained files")
    given = parser.parse_args()
    Console().print(compare(list(json_lines(given.data)), given.verifiers.split(",")))
