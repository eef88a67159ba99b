"""All passages of all shards, which stay there: they are counted and listed, and some of them read."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.corpus import Listed, Numbers, Passage, StaleSnapshot, View
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.shards.best import Best, Kind, united_best
from langgraph_convcoa.retrieval.shards.crew import Answers, Crew, MissingError
from langgraph_convcoa.retrieval.shards.wire import Message, packed, packed_filter, unpacked

_LIST_SECONDS = 600.0


@dataclass(frozen=True, eq=False)
class Whole(View):
    """One state of all shards: their passages, shard by shard, and in each in its order, without those that are deleted.

    What is asked of it after a shard has changed is a StaleSnapshot.
    """

    crew: Crew
    kind: Kind
    timeout: float  # Seconds for each answer.
    counted: Mapping[int, tuple[str, int]]  # The state of each shard and how many passages it has, by its place.

    @property
    def source(self) -> str:
        """Of this state alone."""
        return " ".join(state for state, _ in self.counted.values())

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """(n,), 0 to n - 1, for another state has another source."""
        return np.arange(len(self))

    @property
    def numbers(self) -> Numbers:
        """The numbers of all passages."""
        return self.keys

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""
        return self.kind.dimension

    @property
    def patterns(self) -> Patterns:
        """All patterns, brought here from the shards."""
        return self._read(self.numbers)[0].patterns

    def patterns_for(self, sets: Numbers) -> Patterns:
        """All patterns, brought here from the shards."""
        return self.patterns

    def wholes(self, numbers: Numbers) -> Vectors:
        """The whole-passage patterns of these passages, (len(numbers), d)."""
        found, rows = self._read(numbers)
        return found.wholes(rows)

    def __len__(self) -> int:
        return sum(count for _, count in self.counted.values())

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these numbers."""
        found, rows = self._read(np.array(numbers, dtype=np.int64))
        return found.fetch(rows.tolist())

    def listed(self) -> list[Listed]:
        """The documents, shard by shard, and in each in the order of their first passages; those of one file together."""
        found: list[Listed] = []
        for place, answer in self._every({"ask": "listed"}, _LIST_SECONDS).items():
            numbers = np.split(unpacked(answer["numbers"]) + self._starts[place], np.cumsum(unpacked(answer["counts"]))[:-1])
            parts = zip(answer["ids"], answer["metadata"], numbers, strict=False)
            found += [Listed(name, json.loads(metadata), own.tolist()) for name, metadata, own in parts]
        first: dict[str, int] = {}
        for number, one in enumerate(found):
            first.setdefault(_file(one), number)
        # Each page of a file may be in another shard.
        return sorted(found, key=lambda one: (first[_file(one)], _place(one)))

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the passages that meet the condition; None where there is none. InputError for a function."""
        if condition is None:
            return None
        masks = [np.zeros(0, dtype=np.bool_)]
        for place, answer in self._every({"ask": "allowed", "filter": packed_filter(condition)}, _LIST_SECONDS).items():
            mask = unpacked(answer["allowed"])
            masks.append(np.ones(self.counted[place][1], dtype=np.bool_) if mask is None else mask)
        return np.concatenate(masks)

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError for an encoder that the shards were not built with."""
        self.kind.check_encoder(encoder)

    @cached_property
    def _starts(self) -> dict[int, int]:
        """The number of the first passage of each shard."""
        ends = np.cumsum([0, *(count for _, count in self.counted.values())]).tolist()
        return dict(zip(self.counted, ends, strict=False))

    def _read(self, numbers: Numbers) -> tuple[Best, Numbers]:
        """Passages with their patterns, each once, and where each of the numbers is among them."""
        wanted, rows = np.unique(numbers, return_inverse=True)
        messages: dict[int, Message] = {}
        for place, start in self._starts.items():
            own = wanted[(wanted >= start) & (wanted < start + self.counted[place][1])] - start
            if len(own):
                messages[place] = {"ask": "fetch", "numbers": packed(own), "there": True}
        parts = self._ask(messages, self.timeout)
        found = united_best(self.kind, self.crew.names, parts, {place: {"lexical": None} for place in parts}, certified=True)
        return found, rows

    def _every(self, message: Message, seconds: float) -> Answers:
        return self._ask(dict.fromkeys(self.counted, message), seconds)

    def _ask(self, messages: Mapping[int, Message], seconds: float) -> Answers:
        asked = {place: {**message, "state": self.counted[place][0]} for place, message in messages.items()}
        try:
            answers = self.crew.ask(asked, time.monotonic() + seconds, {})
        except MissingError:
            answers = {}
        if len(answers) < len(asked) or any(answer.get("changed") for answer in answers.values()):
            raise StaleSnapshot("The shards have changed since; ask again.")
        return answers


def _file(document: Listed) -> str:
    return str(document.metadata.get("source") or f"\0{document.id}")


def _place(document: Listed) -> list[int]:
    places = (document.metadata.get(name) for name in ("page", "chapter", "row"))
    return [place for place in places if isinstance(place, int)]
