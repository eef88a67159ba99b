"""Ratios over the answers of a run: misled by retrieval, contradicting earlier turns, and the outcomes of verification.

No model is called. Pan et al. 2024a and 2024b name the first two and give no formula; each function says what it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from langgraph_convcoa.chain import ChainItem, Status
from langgraph_convcoa.evaluation.metrics.contradiction import contradicts
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.text.matching import covers
from langgraph_convcoa.text.same_question import words_agree

STATUSES: tuple[Status, ...] = get_args(Status)


def misled_by_retrieval(
    closed_book: Sequence[Answered], with_retrieval: Sequence[Answered], measure: str = "cover_em"
) -> dict[str, Any]:
    """How often "external knowledge leads LLM astray in answering" (Pan et al. 2024a, table 5, Pan et al. 2024b, table 5).

    The papers give percentages and no formula. Here a question is misled when the same model answers it right without
    retrieval and wrong with it; both shares are given, of all questions and of those that it knew.
    An answer is right from 0.5 of `measure` on: "cover_em", "em" or the judge's "gpt_em". `known` counts the questions right
    without retrieval, `left_out` those of one of the two that have no measure on both sides.

    Example:
        >>> def row(number, right):
        ...     return Answered("m", str(number), "c", "?", 1, ("x",), answer="x", metrics={"cover_em": right})
        >>> without = [row(0, 1.0), row(1, 1.0), row(2, 0.0), row(3, 0.0)]
        >>> found = misled_by_retrieval(without, [row(0, 1.0), row(1, 0.0), row(2, 1.0), row(3, 0.0)])
        >>> found["misled"], found["helped"], found["share"], found["share_of_known"]
        (1, 1, 0.25, 0.5)
    """
    without, given = _right(closed_book, measure), _right(with_retrieval, measure)
    both = without.keys() & given.keys()
    known = sum(without[name] for name in both)
    misled = sum(without[name] and not given[name] for name in both)
    return {
        "questions": len(both),
        "known": known,
        "misled": misled,
        "helped": sum(given[name] and not without[name] for name in both),
        "left_out": len({answer.id for answer in (*closed_book, *with_retrieval)}) - len(both),
        "share": misled / len(both) if both else 0.0,
        "share_of_known": misled / known if known else 0.0,
    }


def _right(answers: Iterable[Answered], measure: str) -> dict[str, bool]:
    return {answer.id: answer.metrics[measure] >= 0.5 for answer in answers if not answer.error and measure in answer.metrics}


def contradictions(answers: Sequence[Answered]) -> dict[str, Any]:
    """How many answers "contradict previous contextual information" (Pan et al. 2024b, table 6, where GPT-4 is asked).

    No model is asked here: an answer contradicts when it, or a solved sub-question of its chain, gives another value for a
    question than an earlier turn of its conversation gave for the same one. What turns say of unlike questions is not
    compared, so this is less than the paper's ratio, and can be compared between methods only; methods that show a chain have
    more to compare. Of the `answers` with an answered turn before them, `comparable` are those on a question that an earlier
    turn had answered.

    Example:
        >>> def row(round, question, answer):
        ...     return Answered("m", f"q{round}", "c", question, round, (), answer=answer)
        >>> rows = [row(1, "When was Ada Lovelace born?", "In 1815."), row(2, "Who was Ada's father?", "Lord Byron.")]
        >>> found = contradictions([*rows, row(3, "In what year was Ada Lovelace born?", "She was born in 1816.")])
        >>> found["answers"], found["comparable"], found["contradicting"]
        (2, 1, 1)
    """
    conversations: dict[str, list[Answered]] = {}
    for answer in answers:
        if not answer.error and answer.answer.strip():
            conversations.setdefault(answer.conversation, []).append(answer)
    later = comparable = contradicting = 0
    for turns in conversations.values():
        said: list[tuple[str, str]] = []
        for turn in sorted(turns, key=lambda turn: turn.round):
            now = _statements(turn)
            later += bool(said)
            verdicts = [contradicts(new[0], old[1], new[1]) for new in now for old in said if words_agree(old[0], new[0])]
            comparable += any(verdict is not None for verdict in verdicts)
            contradicting += any(verdicts)
            said += now
    share = contradicting / later if later else 0.0
    return {"answers": later, "comparable": comparable, "contradicting": contradicting, "share": share}


def _statements(turn: Answered) -> list[tuple[str, str]]:
    items = [(item["sub_question"], item["answer"]) for item in turn.chain if item["answer"].strip()]
    return list(dict.fromkeys([(turn.question, turn.answer), *items]))


def verification_statistics(answers: Sequence[Answered]) -> dict[str, Any]:
    """Count the outcomes of the sub-questions, and how many of the kept and the corrected guesses had been right.

    Whether a guess is right is known where its sub-question is the question itself, alone in its chain or in the same words,
    and the question has references; then it is right when it holds one of them (cover-EM).
    """
    items = [(answer, item) for answer in answers for item in answer.chain]
    counts = Counter(item["status"] for _, item in items)
    known: dict[str, list[bool]] = {"kept": [], "corrected": []}
    for answer, item in items:
        if item["status"] in known and answer.references and _is_the_question(answer, item):
            known[item["status"]].append(any(covers(item["guess_answer"], right) for right in answer.references))
    return {
        "turns": sum(bool(answer.chain) for answer in answers),
        "items": len(items),
        "counts": {status: counts[status] for status in STATUSES},
        "guesses": sum(bool(item["guess_answer"].strip()) for _, item in items),
        "kept_known": len(known["kept"]),
        "kept_right": sum(known["kept"]),
        "corrected_known": len(known["corrected"]),
        "corrected_right": sum(known["corrected"]),
    }


def _is_the_question(answer: Answered, item: ChainItem) -> bool:
    return len(answer.chain) == 1 or words_agree(answer.question, item["sub_question"])
