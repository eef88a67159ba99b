"""Replies in the forms that the baselines ask for: samples, short answers, and answers after "the answer is"."""

from __future__ import annotations

import re

from langchain_core.messages import HumanMessage

from langgraph_convcoa.evaluation.methods.prompting import Asking
from langgraph_convcoa.evaluation.records import Outcome

_TEMPERATURE = 0.7
"""Temperature of sampled replies (Wang et al. 2022 section 3.1, Yao et al. 2023 section 4)."""
_ANSWER_IS = re.compile(r"answer is\s*:?\s*([^\s:].*)", re.IGNORECASE | re.DOTALL)


async def samples(asking: Asking, prompt: str) -> list[str]:
    """Several replies to one prompt, as many as the kit says. Each has a number, so that the cache keeps them apart."""
    drawn = [HumanMessage(prompt, additional_kwargs={"sample": number}) for number in range(asking.kit.samples)]
    return [await asking.reply([message], temperature=_TEMPERATURE) for message in drawn]


async def short_reply(asking: Asking, prompt: str) -> str:
    """A reply that is the answer alone. An empty reply is malformed. A next example that the model adds is cut off."""
    reply = (await asking.reply(prompt)).split("\nQuestion:", 1)[0].removeprefix("Answer:").strip()
    asking.malformed += not reply
    return reply


def concluded(asking: Asking, reply: str) -> Outcome:
    """The outcome of a reply that ends with "the answer is". Without these words it is malformed, and its last line counts."""
    found = short_answer(reply)
    asking.malformed += found is None
    return asking.outcome(found or last_line(reply))


def short_answer(text: str) -> str | None:
    """The text after the last "the answer is", without its full stop; None if the words are missing."""
    parts = re.split(r"(?i)\bso the (?=(?:final )?answer is)", text)
    found = _ANSWER_IS.search(parts[-1])
    if found is None:
        return None
    lines = found.group(1).strip().splitlines()
    return lines[0].strip().strip("*").rstrip(".").strip() or None if lines else None


def last_line(text: str) -> str:
    """The last line with text: the answer of a reply in an unknown form."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
