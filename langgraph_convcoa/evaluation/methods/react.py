"""ReAct: Yao et al. 2022, "ReAct: Synergizing Reasoning and Acting in Language Models", section 3.

The loop is that of the released code. Search shows the retrieved passages; Lookup the next sentence of them that holds a text.
"""

from __future__ import annotations

import re

from langgraph_convcoa.evaluation.methods.base import WORKED, Asking, passages_text
from langgraph_convcoa.evaluation.records import Outcome
from langgraph_convcoa.text.words import sentences

INSTRUCTION = (
    "Answer the question with Thought, Action and Observation steps in turn. A Thought reasons about what is known so far. An "
    "Action is one of\n"
    "Search[query], which finds passages about it,\n"
    "Lookup[text], which gives the next sentence of the last passages that holds the text,\n"
    "Finish[answer], which gives the answer, as short as it can be, and ends.\n"
    "Write the next Thought and Action only; the Observation is given to you."
)
_ACTION = re.compile(r"\b(search|lookup|finish)\s*\[(.*?)\]\s*\.?\s*$", re.IGNORECASE | re.DOTALL)


async def react(asking: Asking) -> Outcome:
    """Think and act until Finish: n + 1 model calls for n searches, at most the kit's most steps.

    A reply without an action is malformed, and the action alone is asked for in one more call; an action of no known form is
    malformed and observed as invalid. Without Finish the answer is empty, as in the released code.
    """
    text = f"{INSTRUCTION}\n\n{_example()}\n\n{asking.context}Question: {asking.question}\n"
    environment = _Environment(asking)
    for number in range(1, asking.kit.max_steps + 1):
        reply = await asking.reply(f"{text}Thought {number}:", stop=[f"\nObservation {number}:", "\nObservation:"])
        thought, action = _parts(reply)
        if not action:
            asking.malformed += 1
            so_far = f"{text}Thought {number}: {thought}\nAction {number}:"
            action = (await asking.reply(so_far, stop=["\n"])).removeprefix(f"Action {number}:").strip()
        found = _ACTION.search(action)
        if found and found.group(1).lower() == "finish":
            return asking.outcome(found.group(2))
        if found:
            seen = await environment.step(found.group(1).lower(), found.group(2).strip())
        else:
            asking.malformed += 1
            seen = "Invalid action: it is Search[...], Lookup[...] or Finish[...]."
        text += f"Thought {number}: {thought}\nAction {number}: {action}\nObservation {number}: {seen}\n"
    return asking.outcome("")


class _Environment:
    """The passages that the actions search and look up in."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._sentences: list[str] = []
        self._looked_up = ""
        self._hits: list[str] = []

    async def step(self, action: str, argument: str) -> str:
        """Search or look up: the observation."""
        if action == "search":
            documents = await self._asking.search(argument)
            self._sentences = [sentence.text for document in documents for sentence in sentences(document.page_content)]
            self._looked_up = ""
            return passages_text(documents) or "Nothing was found."
        if argument.lower() != self._looked_up:
            self._looked_up = argument.lower()
            self._hits = [text for text in self._sentences if self._looked_up in text.lower()]
        return self._hits.pop(0) if self._hits else "No more results."


def _parts(reply: str) -> tuple[str, str]:
    """Thought and action of a reply; of one without an action its first line is the thought."""
    reply = re.sub(r"\A\s*Thought\s*\d*:\s*", "", reply)
    found = re.search(r"(?:^|\n)\s*Action\s*\d*:", reply)
    if found is None:
        return reply.strip().split("\n", 1)[0], ""
    return reply[: found.start()].strip(), reply[found.end() :].strip().split("\n", 1)[0].strip()


def _example() -> str:
    lines = [f"Question: {WORKED[0].question}"]
    for number, (question, seen) in enumerate(WORKED[0].steps, 1):
        lines += [
            f"Thought {number}: I need to find out: {question}",
            f"Action {number}: Search[{question}]",
            f"Observation {number}: [1] {seen}",
        ]
    last = len(WORKED[0].steps) + 1
    return "\n".join([*lines, f"Thought {last}: I can answer now.", f"Action {last}: Finish[{WORKED[0].answer}]"])
