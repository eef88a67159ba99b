"""Outliers of an encoder with softmax and softmax_1, before and after a short training: `python -m experiments.encoder`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from experiments.encoder.outlier_free import ATTENTIONS, load
from experiments.encoder.outliers import measure_outliers
from experiments.encoder.training import train_pairs
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER


def main() -> None:
    """Print one row for each attention and number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.encoder")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl")
    parser.add_argument("--model", default=DEFAULT_ENCODER, help="sentence-transformers model or folder")
    parser.add_argument("--steps", type=int, default=0, help="steps of training with each attention (default: none)")
    parser.add_argument("--texts", type=int, default=128, help="passages that are measured (default: 128)")
    given = parser.parse_args()
    dataset = load_dataset(Path(given.data))
    texts = [document.page_content for document in dataset.corpus[: given.texts]]
    print(f"{'attention':10} {'steps':>6} {'norm':>10} {'kurtosis':>10} {'layer norm':>11} {'layer kurtosis':>15}")
    for attention in ATTENTIONS:
        for steps in sorted({0, given.steps}):
            with tempfile.TemporaryDirectory() as folder:
                if steps:
                    train_pairs(given.model, Path(folder) / "trained", dataset, attention=attention, steps=steps)
                found = measure_outliers(load(f"{folder}/trained" if steps else given.model, attention), texts)
            print(
                f"{attention:10} {steps:6} {found.attention_norm:10.2f} {found.attention_kurtosis:10.2f} "
                f"{found.layer_norm:11.2f} {found.layer_kurtosis:15.2f}"
            )


if __name__ == "__main__":
    main()
