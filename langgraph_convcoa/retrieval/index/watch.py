"""An index that is kept equal to the files of folders: they are read again when watchfiles says that something changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
)
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress

_DEBOUNCE, _STEP = 1_000, 200
"""Milliseconds: changes that come together are one, once none has come for a fifth of a second or one has passed."""
_LOOK_EVERY = 15_000
"""Milliseconds after which is looked without a notice too: of a network folder none may come."""

_Stamps = dict[str, tuple[int, int, int]]
"""When each file of a path was written, how large it is, and its inode."""


class Changed(NamedTuple):
    """How many documents a round added, updated and deleted."""

    added: int = 0
    updated: int = 0
    deleted: int = 0


class WatchedFiles:
    """Files and folders, and what an index holds of them.

    After a change all files are read again, and only what is new in them is encoded.

    Args:
        paths: Each with what the ids and sources of its documents begin with, which may be nothing.
        max_bytes: The most text of a path.
        told: Called with the name of a file, and why it or a part of it is not read; once for each reason.

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
        self._stamps: list[_Stamps | None] = []
        self._held: list[set[str]] = [set() for _ in paths]
        self._said: set[tuple[str, str]] = set()
        self._told = told

    def __enter__(self) -> WatchedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for _prefix, files in self._folders:
            files.__exit__()

    @property
    def ids(self) -> set[str]:
        """The ids of all documents of the last round."""
        return set().union(*self._held)

    def sync(self, index: Index, encoder: Encoder, progress: Progress = False) -> Changed:
        """Put into the index what the files hold now, and delete what they no longer hold.

        A file that cannot be read counts as one that holds nothing. Where this raises, the next round tries again.
        """
        stamps = [self._read_stamps(number) for number in range(len(self._paths))]
        if stamps == self._stamps:
            return Changed()
        fresh: list[set[str]] = []
        done = Committed.total(index.ingest(self._documents(stamps, fresh), encoder, replace=True, progress=progress))
        gone = index.delete(sorted(self.ids - set().union(*fresh)))
        self._held, self._stamps = fresh, stamps
        return Changed(done.added, done.updated, len(gone))

    def watch(self, index: Index, encoder: Encoder, stop: threading.Event | None = None) -> Iterator[Changed]:
        """Rounds that changed something, as files change, until `stop` is set or Ctrl-C raises KeyboardInterrupt.

        An error of a round, such as of an index that another program writes to, is told, and tried again.

        Raises:
            InputError: The system does not tell of changes in the folders.
        """
        from watchfiles import watch

        times: dict[str, Any] = {"debounce": _DEBOUNCE, "step": _STEP, "rust_timeout": _LOOK_EVERY}
        try:
            for _ in watch(*self._paths, watch_filter=None, yield_on_timeout=True, stop_event=stop, **times):
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

    def _read_stamps(self, number: int) -> _Stamps | None:
        """The files of a path, in order; None where the path is not there, as of a drive that is off."""
        (prefix, files), path = self._folders[number], self._paths[number]
        try:
            names = files.names(Skipped(partial(self._say_of, prefix)))
        except DocumentError as error:
            if not path.exists():
                self._say(str(path), "is not there; what the index has of it stays")
                return None
            if not path.is_dir():
                raise
            self._say(str(path), str(error).removeprefix(str(path)).strip())
            return {}
        found: _Stamps = {}
        for name, file in names.items():
            try:
                state = file.stat()
            except OSError:
                found[name] = (0, 0, 0)
            else:
                found[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return found

    def _documents(self, stamps: Sequence[_Stamps | None], fresh: list[set[str]]) -> Iterator[Document]:
        """The documents of all files; their ids are put into `fresh`, a set for each path."""
        for (prefix, files), names, held in zip(self._folders, stamps, self._held, strict=True):
            fresh.append(held if names is None else set())
            files.forget()
            seen: Counter[str] = Counter()
            for name in names or ():
                try:
                    pieces = files.pieces(name, partial(self._say_of, prefix))
                except DocumentError as error:
                    if isinstance(error, TooMuchTextError) and not self._stamps:
                        raise
                    self._say(_joined(prefix, name), str(error))
                    continue
                for piece in pieces:
                    document = document_of(piece, name, seen)
                    document.id = _joined(prefix, str(document.id))
                    document.metadata["source"] = _joined(prefix, document.metadata["source"])
                    fresh[-1].add(document.id)
                    yield document

    def _say_of(self, prefix: str, name: str, reason: str) -> None:
        self._say(_joined(prefix, name), reason)

    def _say(self, name: str, reason: str) -> None:
        """Tell what was not told before."""
        if (name, reason) not in self._said:
            self._said.add((name, reason))
            self._told(name, reason)


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
