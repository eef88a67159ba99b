"""What keeps a head from leaning on the history: made conversations that switch topic, and questions that stand alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.synthetic.conversations import make_conversations


def with_single_turn(
    data: TrainingData, single_turn: Sequence[Dataset], *, made: int, single: int, seed: int = 0
) -> TrainingData:
    """The data with conversations made of single-turn questions, and with some of these questions as they are.

    All turns of a real conversation often share one passage, so that a head trained on these alone learns that the history is
    always right.

    Args:
        data: Real conversations.
        single_turn: Questions over titled articles; where there are none, the data is returned as it is.
        made: How many conversations to make.
        single: How many questions to take as they are.
        seed: Of what is drawn.

    Raises:
        InputError: A passage id stands for two texts.
    """
    if not single_turn:
        return data
    examples = list(data.examples)
    passages = {str(passage.id): passage for passage in data.passages}
    for dataset in single_turn:
        texts = {str(passage.id): passage for passage in dataset.corpus}
        found: list[TrainingExample] = []
        if share := made // len(single_turn):
            found += [
                TrainingExample(one.question, one.history, one.gold, one.target, f"made of {dataset.name}", one.article)
                for one in make_conversations(dataset, share, seed=seed)
            ]
        asked = [query for query in dataset.queries if query.gold]
        order = np.random.default_rng(seed).permutation(len(asked))[: single // len(single_turn)]
        for query in (asked[number] for number in order.tolist()):
            found.append(TrainingExample(query.question, (), query.gold, query.question, dataset.name, query.id))
        examples += found
        for identity in sorted({identity for example in found for identity in example.gold}):
            if identity not in texts:
                continue
            if passages.setdefault(identity, texts[identity]).page_content != texts[identity].page_content:
                raise InputError(f"The passage id {identity!r} stands for two texts, one in {dataset.name}.")
    return TrainingData(tuple(examples), tuple(passages.values()))
