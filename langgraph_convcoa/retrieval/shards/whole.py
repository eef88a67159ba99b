"""All passages of all shards, which stay there: they are counted and listed, and some of them read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.corpus import Listed, Numbers, Passage, StaleSnapshot, View
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.shards.best import Best, Kind, united_best
from langgraph_convcoa.retrieval.shards.crew import Answers, Crew, MissingError
from langgraph_convcoa.retrieval.shards.wire import Message, packed, packed_filter, unpacked

_AT_ONCE = 10_000
"""Passages of a shard that are listed or filtered at once; then a question that waits has its turn."""


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
        wanted, rows = np.unique(numbers, return_inverse=True)
        answers = self._ask("wholes", self._own(wanted))
        found: list[Vectors] = [unpacked(answer["wholes"]) for answer in answers.values()]
        return np.concatenate(found)[rows] if found else np.zeros((0, self.dimension), dtype=np.float32)

    def __len__(self) -> int:
        return sum(count for _, count in self.counted.values())

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these numbers."""
        found, rows = self._read(np.array(numbers, dtype=np.int64))
        return found.fetch(rows.tolist())

    def listed(self, numbers: Numbers | None = None) -> list[Listed]:
        """The documents, shard by shard, and in each in the order of their first passages; those of one file together."""
        documents: dict[tuple[int, str], Listed] = {}
        for own in self._parts(self.numbers if numbers is None else numbers):
            for place, answer in self._ask("listed", own).items():
                there = np.split(unpacked(answer["numbers"]) + self._starts[place], np.cumsum(unpacked(answer["counts"]))[:-1])
                for name, metadata, some in zip(answer["ids"], answer["metadata"], there, strict=False):
                    one = documents.setdefault((place, name), Listed(name, json.loads(metadata), []))
                    one.numbers.extend(some.tolist())
        found = sorted(documents.values(), key=lambda one: one.numbers[0])
        first: dict[str, int] = {}
        for number, one in enumerate(found):
            first.setdefault(_file(one), number)
        # Each page of a file may be in another shard.
        return sorted(found, key=lambda one: (first[_file(one)], _place(one)))

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the passages that meet the condition; None where there is none. InputError for a function."""
        if condition is None:
            return None
        mask, wanted = np.zeros(len(self), dtype=np.bool_), packed_filter(condition)
        for own in self._parts(self.numbers):
            for place, answer in self._ask("allowed", own, filter=wanted).items():
                mask[own[place] + self._starts[place]] = unpacked(answer["allowed"])
        return mask

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
        parts = self._ask("fetch", self._own(wanted), there=True)
        found = united_best(self.kind, self.crew.names, parts, {place: {"lexical": None} for place in parts}, certified=True)
        return found, rows

    def _own(self, numbers: Numbers) -> dict[int, Numbers]:
        """Which of these passages, which grow, each shard has, by their places there; without shards that have none."""
        found = {}
        for place, start in self._starts.items():
            first, last = np.searchsorted(numbers, [start, start + self.counted[place][1]])
            if last > first:
                found[place] = numbers[first:last] - start
        return found

    def _parts(self, numbers: Numbers) -> Iterator[dict[int, Numbers]]:
        """`_own`, some of each shard at a time."""
        own = self._own(numbers)
        for first in range(0, max(map(len, own.values()), default=0), _AT_ONCE):
            yield {place: some[first : first + _AT_ONCE] for place, some in own.items() if len(some) > first}

    def _ask(self, what: str, own: Mapping[int, Numbers], **more: Any) -> Answers:
        asked: dict[int, Message] = {
            place: {"ask": what, "numbers": packed(some), "state": self.counted[place][0], **more}
            for place, some in own.items()
        }
        try:
            answers = self.crew.ask(asked, time.monotonic() + self.timeout, {})
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
