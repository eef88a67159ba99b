"""Train the package's verifier: `python -m experiments.verifier SQUAD --out FOLDER`."""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.verifier.synthetic import from_article, from_questions, from_sentences, with_pronoun
from langgraph_convcoa.datasets.labelled_claims import LabelledClaim, packaged_claims, read_claims
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.training.verifier import Pair, VerifierSettings, claim_pairs, train_verifier

_PRONOUNS = 0.25
"""Share of pairs whose claims get a pronoun as their subject."""
_ABOUT_THE_SUBJECT = frozenset(
    {"active-swap", "passive-swap", "names-swap", "nouns-swap", "name", "subject", "half", "qa", "qa-other", "qa-absent"}
    | {"roles", "names", "attribute", "order", "near", "common", "chat", "answer"}
)
"""Kinds of false pairs that may become true when a pronoun stands for their subject."""


def passage_pairs(claims: Sequence[LabelledClaim], seed: int = 0) -> list[Pair]:
    """Pairs made from the sentences of the passages of the claims."""
    chance = random.Random(seed)
    passages = list(dict.fromkeys(claim.evidence[0] for claim in claims))
    made: list[Pair] = []
    for passage in passages:
        others = [text for _, text in chance.sample(passages, min(2, len(passages))) if text != passage[1]]
        for _ in range(2):
            found = (*from_sentences(passage, chance), *from_article(passage, others, chance))
            made += [_pair(*one, chance) for one in found if one[1]]
    return made


def question_pairs(folder: Path, seed: int = 0) -> list[Pair]:
    """Pairs made from the training questions and the passages of a folder, such as SQuAD."""
    chance = random.Random(seed)
    dataset = load_dataset(folder, split="train")
    passages = {str(one.id): (str(one.metadata.get("title") or ""), one.page_content) for one in dataset.corpus}
    asked: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for query in dataset.queries:
        if query.gold and query.gold[0] in passages:
            asked[query.gold[0]].append((query.question, query.answer or "", bool(query.answer)))
    articles: dict[str, list[str]] = defaultdict(list)
    for name in asked:
        articles[passages[name][0]].append(passages[name][1])
    made: list[Pair] = []
    for name, questions in asked.items():
        title, text = passages[name]
        others = [one for one in articles[title] if one != text]
        for claim, premise, label, kind in (
            *from_questions(passages[name], questions, chance),
            *from_sentences(passages[name], chance),
            *from_article(passages[name], chance.sample(others, min(2, len(others))), chance),
        ):
            if premise and len(claim) < 400:
                made.append(_pair(claim, premise, label, kind, chance))
    return made


def _pair(claim: str, premise: str, label: int, kind: str, chance: random.Random) -> Pair:
    """The pair. A quarter of the claims get a pronoun as their subject if the label stays true."""
    if (label or kind not in _ABOUT_THE_SUBJECT) and chance.random() < _PRONOUNS:
        claim = with_pronoun(claim, premise, chance)
    return Pair(claim, premise, float(label), kind)


def with_pronouns(claims: Sequence[LabelledClaim], seed: int = 0) -> list[LabelledClaim]:
    """The claims, a quarter of them with a pronoun as their subject if the label stays true."""
    chance = random.Random(seed)
    return [
        replace(claim, claim=with_pronoun(claim.claim, claim.evidence[0][1], chance))
        if (claim.supported or claim.kind not in _ABOUT_THE_SUBJECT) and chance.random() < _PRONOUNS
        else claim
        for claim in claims
    ]


def main() -> None:
    """Train and write `verifier.safetensors`."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.verifier")
    parser.add_argument("data", type=Path, help="folder of SQuAD: queries.jsonl.gz and corpus.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the training")
    parser.add_argument("--steps", type=int, default=4_000, help="batches of 32 pairs (default: 4000)")
    parser.add_argument("--learning-rate", type=float, default=1.5e-4, help="the highest (default: 1.5e-4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn pairs (default: 0)")
    parser.add_argument("--start", type=Path, help="a verifier.safetensors to go on from")
    parser.add_argument("--claims", type=Path, nargs="*", default=[], help="more files of labelled claims")
    parser.add_argument("--labelled", type=Path, nargs="*", default=[], help="sets that people labelled: three of ten pairs")
    parser.add_argument("--resume", action="store_true", help="resume a training that was stopped")
    given = parser.parse_args()
    claims = [*packaged_claims("train"), *(claim for path in given.claims for claim in read_claims(path))]
    over, asked = passage_pairs(claims, given.seed), question_pairs(given.data, given.seed)
    # Three of ten made pairs come from the passages of the claims.
    repeated = over * max(1, round(0.43 * len(asked) / len(over)))
    settings = VerifierSettings(steps=given.steps, learning_rate=given.learning_rate, seed=given.seed)
    if given.start is None:
        # Easy pairs first: a network that has not learned yet stays at chance on the written claims.
        settings = replace(settings, written=(0.2, 0.75), others=(0.5, 0.04))
    made = [*repeated, *asked]
    labelled = [pair for path in given.labelled for pair in claim_pairs(list(read_claims(path)), settings.premise_words)]
    if labelled:
        settings = replace(settings, written=(0.5, 0.5))
        made += labelled * round(1.5 * len(made) / len(labelled))
    verifier = train_verifier(
        with_pronouns(claims),
        given.out,
        made=made,
        start=given.start,
        settings=settings,
        resume=given.resume,
        sources=[
            "the package's claims",
            *(path.name for path in [*given.claims, *given.labelled]),
            "SQuAD 2.0 (CC BY-SA 4.0)",
        ],
        command=f"python -m experiments.verifier {given.data.name} --steps {given.steps}",
        progress=True,
    )
    print(verifier.path, verifier.threshold)


if __name__ == "__main__":
    main()
