"""Tree of thoughts: Yao et al. 2023, "Tree of Thoughts: Deliberate Problem Solving with Large Language Models".

Breadth-first search (algorithm 1) in the form of the paper's section 4.2: two levels, plans and then answers, k of them drawn
at each level, the best one (b = 1) kept by a vote.
"""

from __future__ import annotations

import re
from collections import Counter

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method, last_line, short_answer
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.runs.answered import Outcome
from langgraph_convcoa.evaluation.runs.sampling import sample

PLAN = "Write a short plan for the question: which facts are needed, and how the answer follows. Do not answer it yet."
ANSWER = 'Carry out the plan, then end with "So the answer is:" and the answer to the question, as short as it can be.'
VOTE = (
    "Here are a question and several choices for it. Weigh each choice, then conclude in the last line with "
    '"The best choice is s", where s is the number of the most promising one.'
)
_BEST = re.compile(r"best choice is\D*(\d+)", re.IGNORECASE)


def make(kit: Kit) -> Method:
    """Draw plans, vote, draw answers, vote: 4 model calls for each of the kit's samples.

    A vote that names no choice is malformed and counts for none; an answer without "the answer is" is malformed too.
    """

    async def answer(asking: Asking) -> Outcome:
        question = f"{asking.context}Question: {asking.turn.question}"
        plan = await _best(asking, question, f"{PLAN}\n\n{question}\nPlan:")
        reply = await _best(asking, question, f"{ANSWER}\n\n{question}\nPlan: {plan}\nAnswer:")
        found = short_answer(reply)
        asking.malformed += found is None
        return asking.outcome(found or last_line(reply))

    return as_method(kit, "tree-of-thoughts", answer)


async def _best(asking: Asking, question: str, prompt: str) -> str:
    """One level of the tree: thoughts are drawn, then votes on them."""
    thoughts = await _drawn(asking, prompt)
    choices = "\n\n".join(f"Choice {n}:\n{thought}" for n, thought in enumerate(thoughts, 1))
    votes: Counter[int] = Counter()
    for reply in await _drawn(asking, f"{VOTE}\n\n{question}\n\n{choices}"):
        found = _BEST.search(reply)
        if found and 1 <= int(found.group(1)) <= len(thoughts):
            votes[int(found.group(1)) - 1] += 1
        else:
            asking.malformed += 1
    return max(enumerate(thoughts), key=lambda numbered: votes[numbered[0]])[1]


async def _drawn(asking: Asking, prompt: str) -> list[str]:
    drawn = []
    for number in range(asking.kit.samples):
        with sample(number):
            drawn.append(await asking.reply(prompt, sampled=True))
    return drawn
