"""The words of earlier turns that BM25 looks for beside those of a follow-up question."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from langgraph_convcoa.text.words import content_words

_DECAY = 0.7
# Turns that would count less are not read: the ninth from the end is the last.
_LEAST = 0.05
# All words of an answer together count as much as so many, so that a long one does not drown the questions.
_ANSWER_WORDS = 5
_ANSWER_CHARACTERS = 1_000


def turn_words(turns: Sequence[tuple[str, str]], asked: Collection[str]) -> dict[str, float]:
    """The content words of earlier turns, oldest turn first, with their weights; without those that the question has, `asked`.

    A word of the question before counts 1/n, where the question has n different content words, and at most a half: the fewer
    it has, the more it leans on what was said. Each turn further back counts 0.7 times as much. An answer's words count as
    much as those of questions, but five times one of these together at most.

    Example:
        >>> turn_words([("Who wrote the Iliad?", "Homer."), ("Is it long?", "")], ["translate"])
        {'long': 0.5, 'homer': 0.35, 'wrote': 0.35, 'iliad': 0.35}
    """
    known, found = set(asked), dict[str, float]()
    weight = 1 / max(len(known), 2)
    least = _LEAST * weight
    for question, answer in reversed(turns):
        said = content_words(answer[:_ANSWER_CHARACTERS])
        of_answer = weight * min(1.0, _ANSWER_WORDS / max(len(said), 1))
        for words, value in ((said, of_answer), (content_words(question[:_ANSWER_CHARACTERS]), weight)):
            for word in words:
                if word not in known:
                    found[word] = max(found.get(word, 0.0), value)
        weight *= _DECAY
        if weight < least:
            break
    return found
