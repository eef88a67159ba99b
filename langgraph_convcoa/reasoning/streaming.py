"""Streaming of an answer: the reply of a model is read while it is written, and each sentence is shown once it is verified."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.graph.message import push_message
from langgraph.pregel._messages import StreamMessagesHandler

from langgraph_convcoa.reasoning.parsing import LONGEST_REPLY, without_thought
from langgraph_convcoa.text.citation_marks import CitationFilter
from langgraph_convcoa.text.clean import cut_answer
from langgraph_convcoa.text.words import CLOSING, STOPS
from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.sentences import renumbered

_NEXT = re.compile(rf"(?:[{STOPS}:;…][{CLOSING}]*(?:\s*\[[\d,;\s–-]+\])*\s+|\n)(?=\S+\s)")
_ANSWER_FIRST = re.compile(r'[^"]{0,20}+(?:"clarification"\s*+:\s*+(?:""|null)\s*+,\s*+)?+"final_answer"')
_EMPTY_CHAIN = re.compile(r'"chain"\s*+:\s*+\[\s*+\]')
_ANSWER = re.compile(r'"final_answer"\s*+:\s*+"((?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*+)("?)', re.DOTALL)
_READ_AT_ONCE = 4_000
"""A reply is read at each piece up to this length, then at ever longer intervals, so that the work stays linear."""


class SentenceGate:
    """Streams an answer while the model writes it: each sentence once it is complete and verified.

    Nothing is shown after the first sentence that does not stand, since the second model call may change it, and nothing of a
    plan's answer that begins with a gap. `show` is called with each piece of the answer and the id of its message.
    """

    def __init__(self, checker: Checker, show: Callable[[str, str], None], message_id: str = "") -> None:
        self.shown = ""
        self.message_id = message_id or f"run-{uuid.uuid4()}"
        self._checker, self._show = checker, show
        self._marks = CitationFilter(len(checker.evidence))
        self._passed = self._ended = 0
        self._closed = self.needs_claim = False

    def feed(self, text: str, *, done: bool = False) -> None:
        """Take the answer so far; its marks have the numbers of the evidence."""
        if self._closed:
            return
        text = cut_answer(text)
        ended = max((match.end() for match in _NEXT.finditer(text)), default=0)
        if ended == self._ended and not done:
            # The pieces are small: no sentence has ended since the last call.
            return
        self._ended = ended
        # The last sentence may go on, and so may its last word.
        whole = text if done else text[: max(text.rfind(" "), text.rfind("\n"), 0)]
        checked = self._checker.check(whole)[: None if done else -1]
        # After "The passages do not say.", a plan may have look-ups. So such a sentence is not shown before a claim follows.
        if self.needs_claim and not self.shown and not any(sentence.claims for sentence in checked):
            return
        if len(checked) == 1 and not done and checked[0].claims and " " not in checked[0].plain:
            return  # "No." claims something only if nothing follows.
        new = ""
        for sentence in checked[self._passed :]:
            if (
                not sentence.stands
                or (self.needs_claim and sentence.is_gap and not self.shown + new)
                or not any(map(str.isalnum, text))
            ):
                self._closed = True
                break
            new += sentence.shown(self._marks)
            self._passed += 1
        if done or self._closed:
            self._closed = True
            new += self._marks.close()
        if new:
            self.shown += new
            self._show(new, self.message_id)


class AnswerStream:
    """Reads the answer in a JSON reply while the model writes it, and gives it to a gate.

    With `whole_answer`, "final_answer" is read beside any chain. In a plan, it must be first or follow an empty chain.
    `numbers[n - 1]` is the number of the evidence that the prompt shows as [n]; None: the same number.
    """

    def __init__(self, gate: SentenceGate, *, whole_answer: bool, numbers: Sequence[int] | None = None) -> None:
        self._gate, self._whole, self._numbers = gate, whole_answer, numbers
        gate.needs_claim = not whole_answer
        self._pieces: list[str] = []
        self._length = self._next = 0
        self._done = self.begun = False

    def feed(self, piece: str) -> bool:
        """Take the next piece; returns False if the reply is too long. `begun` is True after the first piece with text."""
        self._pieces.append(piece)
        self._length += len(piece)
        self.begun = self._length > 0
        if not self._done and self._length >= self._next:
            self._next = self._length + max(0, self._length - _READ_AT_ONCE) // 8
            self._read()
        return self._length <= LONGEST_REPLY

    def close(self) -> str:
        """Read what is left; returns the whole reply."""
        if not self._done:
            self._read()
        return "".join(self._pieces)

    def _read(self) -> None:
        answer, self._done = streamed_answer("".join(self._pieces), whole_answer=self._whole)
        if answer:
            answer = answer if self._numbers is None else renumbered(answer, self._numbers)
            self._gate.feed(answer, done=self._done)


def streamed_answer(reply: str, *, whole_answer: bool = True) -> tuple[str, bool]:
    """The value of "final_answer" in the beginning of a JSON reply, and whether it is complete."""
    reply = without_thought(reply)
    found = _ANSWER.search(reply)
    if found is None or not (whole_answer or _ANSWER_FIRST.match(reply) or _EMPTY_CHAIN.search(reply, 0, found.start())):
        return "", False
    try:
        return cut_answer(json.loads(f'"{found[1]}"', strict=False)), bool(found[2])
    except ValueError:
        # An escape that JSON does not have: the reply is mended when it is read whole.
        return "", True


def is_followed(config: RunnableConfig) -> bool:
    """Whether somebody follows the stream of messages of a run."""
    callbacks: Any = config.get("callbacks")
    return any(isinstance(handler, StreamMessagesHandler) for handler in getattr(callbacks, "handlers", callbacks) or ())


def show(text: str, message_id: str) -> None:
    """Put a piece of the answer into the stream of messages."""
    push_message(cast("Any", AIMessageChunk(content=text, id=message_id)), state_key=None)
