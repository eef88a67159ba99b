"""The current question and the earlier turns, from a question or a list of messages."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.clean import clean

LONGEST_QUESTION = 20_000  # Maximum number of characters of a question.
_REMEMBERED_PAIRS, _REMEMBERED_CHARACTERS = 20, 2_000


class Asked(NamedTuple):
    """The question of a turn, the id of its message (a new id if it has none), and the earlier pairs, oldest first.

    `removals` are the messages of abandoned turns to take out, in the form that the messages reducer reads.
    """

    question: str
    message_id: str
    history: list[tuple[str, str]]
    removals: list[dict[str, str]]


def read_conversation(question: str | None, messages: Sequence[AnyMessage], abandoned: str | None = None) -> Asked:
    """Find the question and the answered turns before it.

    `question` wins. Without it the last messages must be the user's; several in a row are one question. The message of an
    unfinished turn (`abandoned` is its id) and an earlier message that is empty or too long are discarded.
    Raises InputError if there is no question, or an empty one, or one longer than `LONGEST_QUESTION`.
    """
    history: list[tuple[str, str]] = []
    removals: list[dict[str, str]] = []
    pending: list[HumanMessage] = []
    last = messages[-1] if messages else None
    for message in messages:
        if isinstance(message, HumanMessage):
            asked_now = question is None and message is last
            unusable = not 0 < len(message.text.strip()) <= LONGEST_QUESTION
            if not asked_now and message.id and (message.id == abandoned or unusable):
                # As a dict, so that a message stream does not show the removal.
                removals.append({"role": "remove", "content": "", "id": message.id})
            else:
                pending.append(message)
        elif isinstance(message, AIMessage) and pending and message.text:
            pair = (" ".join(m.text.strip() for m in pending), message.text)
            history.append((clean(pair[0][:_REMEMBERED_CHARACTERS]), clean(pair[1][:_REMEMBERED_CHARACTERS])))
            pending = []
    message_id = str(uuid.uuid4())
    if question is None:
        if not isinstance(last, HumanMessage):
            raise InputError('give {"question": "..."} or {"messages": [...]} whose last message is the user\'s')
        message_id = last.id or message_id
        joined = "\n".join(m.text.strip() for m in pending)
        question = joined if last.text.strip() and len(joined) <= LONGEST_QUESTION else last.text
    if not isinstance(question, str) or not question.strip():
        raise InputError("the question is empty")
    if len(question) > LONGEST_QUESTION:
        raise InputError(
            f"the question has {len(question):,} characters, {LONGEST_QUESTION:,} at most: put long texts into the documents"
        )
    return Asked(clean(question).strip(), message_id, history[-_REMEMBERED_PAIRS:], removals)
