"""What the readers of published formats share: a question with the passages that its file carries, and small conversions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError

_SPLITS = (("train", "train"), ("trn", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"), ("tst", "test"))


@dataclass(frozen=True)
class Record:
    """A question of a file, and the passages that stand beside it there; a passage may come with many questions."""

    query: Query
    passages: tuple[Document, ...] = ()


Records = Iterator[Record]


def split_of(path: Path) -> str:
    """The split that a file's name tells, empty where it tells none.

    Example:
        >>> [split_of(Path(name)) for name in ("qrecc_train.json", "val_v0.2.json", "reference.jsonl")]
        ['train', 'dev', '']
    """
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((split for start, split in _SPLITS if any(word.startswith(start) for word in words)), "")


def alternating_turns(value: Any, key: str, where: str) -> tuple[tuple[str, str], ...]:
    """Pairs of question and answer of a list in which they alternate.

    Raises:
        InputError: It is no list of strings.

    Example:
        >>> alternating_turns(["Who?", "Ada.", "When?"], "Context", "file, item 1")
        (('Who?', 'Ada.'), ('When?', ''))
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(f"{where}: `{key}` must be a list of strings, questions and answers in turn.")
    texts = [*value, ""] if len(value) % 2 else value
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def number_field(row: dict[str, Any], key: str, where: str) -> str:
    """A number or a string that must be there, as a string.

    Raises:
        InputError: It is not.
    """
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise InputError(f"{where}: `{key}` must be a number or a string.")
    return str(value)


def answer_list(row: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    """The answers of a row, which may have one string or a list of them; those that are blank or there twice are left out.

    Raises:
        InputError: It is neither.

    Example:
        >>> answer_list({"answers": ["Ada", " ", "Ada"]}, "answers", "file, item 1")
        ('Ada',)
    """
    value = row.get(key)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise InputError(f"{where}: `{key}` must be a string or a list of strings.")
    return tuple(dict.fromkeys(text.strip() for text in values if text.strip()))


def passage(identity: str, text: str, *titles: str) -> Document:
    """A passage; its title is made of the parts that are not empty."""
    title = ", ".join(part for part in titles if part)
    return Document(id=identity, page_content=text, metadata={"title": title} if title else {})


def no_gold(extra: dict[str, Any], gold: Sequence[str]) -> dict[str, Any]:
    """The extra fields, with `answerable` false where no passage is gold: published sets have many questions without one."""
    return extra if gold else extra | {"answerable": False}
