"""What is asked and what went before, read from a question or from the messages of a chat."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langgraph_convcoa.errors import InputError

LONGEST_QUESTION = 20_000
"""Characters; a longer text belongs into the documents."""
_REMEMBERED_PAIRS = 20
_REMEMBERED_CHARACTERS = 2_000


@dataclass(frozen=True)
class Asked:
    """The question of a turn.

    Attributes:
        question: Its text.
        message_id: The id of the message that asks it, or of the one that will stand for it.
        history: Earlier pairs of question and answer, oldest first.
        removals: Messages of abandoned turns to take out, in the form that the messages reducer reads.
    """

    question: str
    message_id: str
    history: list[tuple[str, str]]
    removals: list[dict[str, str]]


def read_conversation(question: str | None, messages: Sequence[AnyMessage]) -> Asked:
    """Find the question and the answered turns before it.

    A question of its own comes first; else the last message must be the user's. User messages that nobody answered belong to
    turns that failed and are discarded.

    Raises:
        InputError: No question, an empty one, or one longer than `LONGEST_QUESTION`.

    Example:
        >>> read_conversation(None, [HumanMessage("Who?"), AIMessage("Hopfield."), HumanMessage("When?")]).history
        [('Who?', 'Hopfield.')]
    """
    before = list(messages)
    message_id = str(uuid.uuid4())
    if question is None:
        if not before or not isinstance(before[-1], HumanMessage):
            raise InputError('give {"question": "..."} or {"messages": [...]} whose last message is the user\'s')
        last = before.pop()
        question, message_id = last.text, last.id or message_id
    if not isinstance(question, str) or not question.strip():
        raise InputError("the question is empty")
    if len(question) > LONGEST_QUESTION:
        raise InputError(
            f"the question has {len(question):,} characters, {LONGEST_QUESTION:,} at most: put long texts into the documents"
        )
    history: list[tuple[str, str]] = []
    removals: list[dict[str, str]] = []
    pending: HumanMessage | None = None
    for message in before:
        if isinstance(message, HumanMessage):
            if pending is not None and pending.id:
                removals.append(_removal(pending.id))
            pending = message
        elif isinstance(message, AIMessage) and pending is not None and message.text:
            history.append((pending.text[:_REMEMBERED_CHARACTERS], message.text[:_REMEMBERED_CHARACTERS]))
            pending = None
    if pending is not None and pending.id:
        removals.append(_removal(pending.id))
    return Asked(question.strip(), message_id, history[-_REMEMBERED_PAIRS:], removals)


def _removal(id_: str) -> dict[str, str]:
    # As a dict, so that a message stream does not show the removal.
    return {"role": "remove", "content": "", "id": id_}
