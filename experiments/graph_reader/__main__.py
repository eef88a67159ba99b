"""Train a reader without and with graph attention, and compare their answers: `python -m experiments.graph_reader`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from experiments.graph_reader.comparison import answer, comparison
from experiments.graph_reader.model import ReaderSettings
from experiments.graph_reader.training import reader_examples, train_reader
from langgraph_convcoa.datasets.queries import split_part
from langgraph_convcoa.datasets.read import load_dataset, load_part
from langgraph_convcoa.training.trainer import TrainingSettings


def main() -> None:
    """Print a row for each of the two readers."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.graph_reader")
    parser.add_argument("data", help="folder of queries.jsonl, with answers, and corpus.jsonl")
    parser.add_argument("--model", required=True, help="causal language model of Hugging Face, by name or folder")
    parser.add_argument("--rank", type=int, default=16, help="rank of LoRA (default: 16)")
    parser.add_argument("--longest", type=int, default=512, help="tokens of evidence for a question (default: 512)")
    parser.add_argument("--passages", type=int, default=4, help="passages for a question, gold ones included (default: 4)")
    parser.add_argument("--examples", type=int, help="questions to train on (default: all but those of the split dev)")
    parser.add_argument("--steps", type=int, help="steps of training (default: one pass over the examples)")
    parser.add_argument("--batch-size", type=int, default=4, help="questions in a step (default: 4)")
    parser.add_argument("--learning-rate", type=float, default=5e-4, help="highest learning rate (default: 0.0005)")
    parser.add_argument("--sample", type=int, default=300, help="questions of the split dev to answer (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of all random draws (default: 0)")
    parser.add_argument("--device", help="cpu, cuda, ... (default: what is found)")
    parser.add_argument("--answers", help="file for the answers, one JSON object for each question")
    given = parser.parse_args()

    place, seed = Path(given.data), given.seed
    training_part = split_part(load_dataset(place), "train").dataset
    examples = reader_examples(training_part, passages=given.passages, sample=given.examples, seed=seed)
    questions = reader_examples(load_part(place, "dev")[0], passages=given.passages, sample=given.sample, seed=seed)
    settings = ReaderSettings(rank=given.rank, longest=given.longest, seed=seed)
    training = TrainingSettings(
        steps=given.steps,
        batch_size=given.batch_size,
        learning_rate=given.learning_rate,
        seed=seed,
    )
    found = []
    for graph in (False, True):
        reader = replace(settings, graph=graph)
        model = train_reader(examples, given.model, reader, training, device=given.device, progress=True)
        found.append(answer(model, questions, progress=True))
    if given.answers:
        rows = zip(questions, *(one.texts for one in found), strict=True)
        with Path(given.answers).open("w", encoding="utf-8") as file:
            for question, without, with_graph in rows:
                line = {"id": question.query.id, "gold": question.answer, "without graph": without, "with graph": with_graph}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{'graph':5} {'EM':24} {'p':6} {'F1':24} {'p':6} seconds")
    for name, (em, em_p, f1, f1_p, seconds) in zip(("no", "yes"), comparison(found, questions, seed), strict=True):
        print(f"{name:5} {em:24} {em_p:6} {f1:24} {f1_p:6} {seconds}")


if __name__ == "__main__":
    main()
