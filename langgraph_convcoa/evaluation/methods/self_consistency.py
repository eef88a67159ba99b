"""Self-consistency: Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning in Language Models", section 2."""

from __future__ import annotations

import re
from collections import Counter

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method, last_line, short_answer
from langgraph_convcoa.evaluation.methods.chain_of_thought import prompt
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.runs.answered import Outcome
from langgraph_convcoa.evaluation.runs.sampling import sample


def make(kit: Kit) -> Method:
    """Draw chains of thought and take the answer of most of them: as many model calls as the kit's samples.

    A chain without "the answer is" is malformed and has no vote; where all are, the last line of the first is the answer.
    """

    async def answer(asking: Asking) -> Outcome:
        text = prompt(asking)
        replies = []
        for number in range(kit.samples):
            with sample(number):
                replies.append(await asking.reply(text, sampled=True))
        answers = [found for found in map(short_answer, replies) if found is not None]
        asking.malformed += len(replies) - len(answers)
        return asking.outcome(majority(answers) or last_line(replies[0]))

    return as_method(kit, "self-consistency", answer)


def majority(answers: list[str]) -> str:
    """The most frequent answer in the words in which it came first; of equally frequent ones the first; "" of none.

    Example:
        >>> majority(["Rome", "the Paris", "Paris!"])
        'the Paris'
    """
    votes = Counter(map(_plain, answers))
    return max(answers, key=lambda answer: votes[_plain(answer)], default="")


def _plain(answer: str) -> str:
    """As answers are compared: lower case, without punctuation and articles."""
    return " ".join(word for word in re.findall(r"\w+", answer.lower()) if word not in ("a", "an", "the"))
