"""An index that is kept equal to the files of folders while they change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, DocumentError, InputError
from langgraph_convcoa.retrieval.changes import Committed
from langgraph_convcoa.retrieval.documents.load import (
    MAX_BYTES,
    DocumentFiles,
    Skipped,
    Told,
    TooMuchTextError,
    document_of,
    identity_of,
)
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress

_DEBOUNCE, _STEP = 1_000, 200
"""Milliseconds: changes that come together are one, once none has come for a fifth of a second or one has passed."""
_LOOK_EVERY = 15_000
"""Milliseconds after which is looked without a notice too: of a network folder none may come."""


class Changed(NamedTuple):
    """How many documents a round added, updated and deleted."""

    added: int = 0
    updated: int = 0
    deleted: int = 0


Stamp = tuple[int, int, int]


@dataclass
class _Known:
    """What is known of a file: when and how large it was, and of each of its documents the key, whether it is own, the id."""

    stamp: Stamp
    keys: list[tuple[str, bool]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def identities(self, name: str, seen: Counter[str]) -> list[str]:
        """The ids that its documents get after those that are `seen`, without what they begin with."""
        return [identity_of(key, own, name, seen) for key, own in self.keys]


class WatchedFiles:
    """Files and folders, and what an index is to hold of them.

    Args:
        paths: Each with what the ids and sources of its documents begin with, which may be nothing.
        max_bytes: The most text of a path.
        told: Called with the name of a file, and why it or a part of it is not read.

    Example:
        >>> import tempfile
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("Ada wrote it.")
        >>> encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), name="fake")
        >>> index = Index.create(tempfile.mkdtemp(), encoder)
        >>> with WatchedFiles([(folder, "")]) as files:
        ...     first = files.sync(index, encoder)
        ...     _ = (folder / "a.txt").rename(folder / "b.txt")
        ...     second = files.sync(index, encoder)
        >>> first, second
        (Changed(added=1, updated=0, deleted=0), Changed(added=1, updated=0, deleted=1))
    """

    def __init__(
        self, paths: Sequence[tuple[Path, str]], *, max_bytes: int = MAX_BYTES, told: Told = lambda _name, _reason: None
    ) -> None:
        self._paths = [path for path, _ in paths]
        self._folders = [(prefix, DocumentFiles(path, max_bytes=max_bytes)) for path, prefix in paths]
        self._known: list[dict[str, _Known]] = [{} for _ in paths]
        self._fresh: list[dict[str, _Known]] = []
        self._said: set[tuple[str, str]] = set()
        self._told = told
        self._begun = False

    def __enter__(self) -> WatchedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for _prefix, files in self._folders:
            files.__exit__()

    @property
    def ids(self) -> set[str]:
        """The ids of all documents of the last round."""
        return _ids(self._known)

    def sync(self, index: Index, encoder: Encoder, progress: Progress = False) -> Changed:
        """Take over into the index what has changed since the last round: at first all; deletions of files among it.

        A file that cannot be read counts as one that holds nothing. Where this raises, the next round tries again.
        """
        stamps = [self._stamps(number) for number in range(len(self._paths))]
        if self._begun and all(
            now == {name: file.stamp for name, file in known.items()} for now, known in zip(stamps, self._known, strict=True)
        ):
            return Changed()
        done = Committed.total(index.ingest(self._documents(stamps), encoder, replace=True, progress=progress))
        gone = index.delete(sorted(self.ids - _ids(self._fresh)))
        self._known, self._begun = self._fresh, True
        return Changed(done.added, done.updated, len(gone))

    def watch(self, index: Index, encoder: Encoder, stop: threading.Event | None = None) -> Iterator[Changed]:
        """Rounds that changed something, as files change, until `stop` is set or Ctrl-C raises KeyboardInterrupt.

        An error of a round, such as of an index that another program writes to, is told, and tried again.

        Raises:
            InputError: The system does not tell of changes in the folders.
        """
        from watchfiles import watch

        try:
            for _ in watch(
                *self._paths,
                watch_filter=None,
                debounce=_DEBOUNCE,
                step=_STEP,
                rust_timeout=_LOOK_EVERY,
                yield_on_timeout=True,
                stop_event=stop,
            ):
                try:
                    changed = self.sync(index, encoder)
                except ConvCoAError as error:
                    self._say("the index", f"was not changed: {error}")
                    continue
                if any(changed):
                    yield changed
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"the files cannot be watched ({error}): raise the system's limit of watches, or set "
                "WATCHFILES_FORCE_POLLING=true to look for changes instead"
            ) from error

    def _stamps(self, number: int) -> dict[str, Stamp]:
        """The files of a path, in order; those of the last round where the path is not there, as of a drive that is off."""
        prefix, files = self._folders[number]
        found: dict[str, Stamp] = {}
        try:
            names = files.names(Skipped(partial(self._say_of, prefix)))
        except DocumentError as error:
            if not self._paths[number].exists():
                self._say(str(self._paths[number]), "is not there; what the index has of it stays")
                return {name: file.stamp for name, file in self._known[number].items()}
            if not self._paths[number].is_dir():
                raise
            self._say(str(self._paths[number]), str(error).removeprefix(str(self._paths[number])).strip())
            return {}
        for name, file in names.items():
            try:
                state = file.stat()
            except OSError:
                found[name] = (0, 0, 0)
            else:
                found[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return found

    def _documents(self, stamps: Sequence[dict[str, Stamp]]) -> Iterator[Document]:
        """The documents of files that have changed, or whose ids have: they depend on the files before."""
        self._fresh = [{} for _ in stamps]
        for (prefix, files), now, known, fresh in zip(self._folders, stamps, self._known, self._fresh, strict=True):
            for name in known.keys() - now.keys():
                files.forget(name)
            seen: Counter[str] = Counter()
            for name, stamp in now.items():
                old = known.get(name)
                if old is not None and old.stamp == stamp:
                    if [_joined(prefix, identity) for identity in old.identities(name, seen)] == old.ids:
                        fresh[name] = old
                        continue
                    seen = Counter()
                    for other, kept in fresh.items():
                        kept.identities(other, seen)
                fresh[name] = file = _Known(stamp)
                try:
                    pieces = files.pieces(name, partial(self._say_of, prefix))
                except DocumentError as error:
                    if isinstance(error, TooMuchTextError) and not self._begun:
                        raise
                    self._say(_joined(prefix, name), str(error))
                    continue
                for piece in pieces:
                    document = document_of(piece, name, seen)
                    document.id = _joined(prefix, str(document.id))
                    document.metadata["source"] = _joined(prefix, document.metadata["source"])
                    file.keys.append((piece.key, piece.own_id))
                    file.ids.append(document.id)
                    yield document

    def _say_of(self, prefix: str, name: str, reason: str) -> None:
        self._say(_joined(prefix, name), reason)

    def _say(self, name: str, reason: str) -> None:
        """Tell what was not told before."""
        if (name, reason) not in self._said:
            self._said.add((name, reason))
            self._told(name, reason)


def _ids(known: Sequence[dict[str, _Known]]) -> set[str]:
    return {identity for files in known for file in files.values() for identity in file.ids}


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
