"""Keeps an index in step with files and folders: they are read again when watchfiles reports a change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, DocumentError, InputError
from langgraph_convcoa.files import file_state
from langgraph_convcoa.retrieval.changes import Committed
from langgraph_convcoa.retrieval.documents.load import MAX_BYTES, DocumentFiles, Skipped, Told, TooMuchTextError, document_of
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress

# In milliseconds: changes are collected for at most 1 s, or until none comes for 0.2 s.
_DEBOUNCE, _STEP = 1_000, 200
# In milliseconds: files are compared this often without a report, since network folders may send none.
_LOOK_EVERY = 15_000
# The state of each file of a path.
_Stamps = dict[str, tuple[int, ...] | None]


class Changed(NamedTuple):
    """Numbers of documents that a round added, updated and deleted."""

    added: int = 0
    updated: int = 0
    deleted: int = 0


class WatchedFiles:
    """Files and folders, and their documents in an index. After a change, all files are read, but only new text is encoded.

    Each of `paths` has a prefix for the ids and sources of its documents. `told` gets each file and reason once.
    """

    def __init__(
        self, paths: Sequence[tuple[Path, str]], *, max_bytes: int = MAX_BYTES, told: Told = lambda _name, _reason: None
    ) -> None:
        self._places = [(path, prefix, DocumentFiles(path, max_bytes=max_bytes)) for path, prefix in paths]
        self._stamps: list[_Stamps | None] = []
        self._held: list[set[str]] = [set() for _ in paths]
        self._said: set[tuple[str, str]] = set()
        self._told = told

    def __enter__(self) -> WatchedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for _path, _prefix, files in self._places:
            files.__exit__()

    @property
    def ids(self) -> set[str]:
        """The ids of all documents of the last round."""
        return set().union(*self._held)

    def sync(self, index: Index, encoder: Encoder, progress: Progress = False) -> Changed:
        """Add and update the files' documents in the index, and delete documents that are gone.

        A file that cannot be read counts as empty. After an error, the next call tries again.
        """
        stamps = [self._read_stamps(*place) for place in self._places]
        if stamps == self._stamps:
            return Changed()
        fresh: list[set[str]] = []
        done = Committed.total(index.ingest(self._documents(stamps, fresh), encoder, replace=True, progress=progress))
        gone = index.delete(sorted(self.ids - set().union(*fresh)))
        self._held, self._stamps = fresh, stamps
        return Changed(done.added, done.updated, len(gone))

    def watch(self, index: Index, encoder: Encoder, stop: threading.Event | None = None) -> Iterator[Changed]:
        """Yield the counts of each round that changed something, until `stop` is set or KeyboardInterrupt.

        An error in a round (for example, another program writes to the index) is reported, and the round is repeated.
        Raises InputError if the system cannot watch the folders.
        """
        from watchfiles import watch

        times: dict[str, Any] = {"debounce": _DEBOUNCE, "step": _STEP, "rust_timeout": _LOOK_EVERY}
        try:
            paths = [path for path, _prefix, _files in self._places]
            for _ in watch(*paths, watch_filter=None, yield_on_timeout=True, stop_event=stop, **times):
                try:
                    changed = self.sync(index, encoder)
                except ConvCoAError as error:
                    self._say("", "the index", f"was not changed: {error}")
                    continue
                if any(changed):
                    yield changed
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"the files cannot be watched ({error}): raise the system's limit of watches, or set "
                "WATCHFILES_FORCE_POLLING=true to look for changes instead"
            ) from error

    def _read_stamps(self, path: Path, prefix: str, files: DocumentFiles) -> _Stamps | None:
        """The stamps of a path's files, in order; None if the path is missing, for example on an unmounted drive."""
        try:
            names = files.names(Skipped(partial(self._say, prefix)))
        except DocumentError as error:
            if not path.exists():
                self._say("", str(path), "is not there; what the index has of it stays")
                return None
            if not path.is_dir():
                raise
            self._say("", str(path), str(error).removeprefix(str(path)).strip())
            return {}
        return {name: file_state(file) for name, file in names.items()}

    def _documents(self, stamps: Sequence[_Stamps | None], fresh: list[set[str]]) -> Iterator[Document]:
        """The documents of all files; `fresh` gets a set of their ids for each path."""
        for (_path, prefix, files), names, held in zip(self._places, stamps, self._held, strict=True):
            fresh.append(held if names is None else set())
            files.forget()
            seen: Counter[str] = Counter()
            for name in names or ():
                try:
                    pieces = files.pieces(name, partial(self._say, prefix))
                except DocumentError as error:
                    if isinstance(error, TooMuchTextError) and not self._stamps:
                        raise
                    self._say(prefix, name, str(error))
                    continue
                for piece in pieces:
                    document = document_of(piece, name, seen)
                    document.id = _joined(prefix, str(document.id))
                    document.metadata["source"] = _joined(prefix, document.metadata["source"])
                    fresh[-1].add(document.id)
                    yield document

    def _say(self, prefix: str, name: str, reason: str) -> None:
        if (said := (_joined(prefix, name), reason)) not in self._said:
            self._said.add(said)
            self._told(*said)


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
