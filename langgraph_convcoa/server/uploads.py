"""Files into a collection: taken within limits, read and encoded by a thread of the server's, which tells how far it is."""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import time
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock

from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.files import private_folder
from langgraph_convcoa.retrieval.documents.kinds import readable_suffixes
from langgraph_convcoa.retrieval.documents.load import read_file
from langgraph_convcoa.retrieval.documents.worker import Workers
from langgraph_convcoa.server.collections import remove_upload, upload_lock
from langgraph_convcoa.server.runs import error_json

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.server.collections import Collection

MOST_FILES = 500
"""Of one upload."""
MOST_SOURCES = 20_000
"""Files of one collection."""
MOST_TEXT = 50_000_000
"""Bytes of the text of one file."""
_LONGEST_NAME, _LONGEST_SUFFIX = 150, 20
_KEPT_JOBS, _MOST_WAITING, _MOST_SKIPPED = 200, 50, 1_000
_LOGGER = logging.getLogger(__name__)


def extensions() -> list[str]:
    """The endings of files that can be read, which depends on what is installed."""
    return sorted(readable_suffixes())


def plain_name(name: str) -> str:
    r"""A file's name without folders, and without characters that lead or look elsewhere.

    Example:
        >>> [plain_name(name) for name in ("../../etc/pass\0wd", "C:\\notes\\a.md", "...", "fdp\u202e.exe")]
        ['passwd', 'a.md', 'file', 'fdp.exe']
    """
    last = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8")).replace("\\", "/").rsplit("/", 1)[-1]
    # Control characters, and those that turn the direction of the text after them.
    kept = "".join(one for one in last if unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
    kept = " ".join(kept.split()).lstrip(". ").replace(":", "-")
    stem, dot, suffix = kept.rpartition(".")
    if dot and len(suffix) < _LONGEST_SUFFIX:
        return f"{stem[:_LONGEST_NAME]}.{suffix}"
    return kept[:_LONGEST_NAME] or "file"


def _unlike(name: str, ending: str, others: Set[str]) -> str:
    """The name, numbered before its ending where another file of the upload has it: of two folders, say."""
    stem, suffix = name[: -len(ending)], name[-len(ending) :]
    numbered = (f"{stem} ({number}){suffix}" for number in range(2, len(others) + 3))
    return name if name not in others else next(one for one in numbered if one not in others)


class _StoppedError(Exception):
    """The job is not wanted any more."""


@dataclass
class Job:
    """An upload on its way into a collection; `done` and `total` are bytes of its files."""

    user: str
    collection: Collection
    folder: Path
    files: list[tuple[str, Path, int]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    status: str = "waiting"
    message: str = ""
    done: int = 0
    files_done: int = 0
    began: float = 0.0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: FileLock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = upload_lock(self.folder)

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(size for _, _, size in self.files)

    def skip(self, name: str, reason: str) -> None:
        """A file, or a part of it, is not taken."""
        if len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append({"name": name, "reason": reason})

    def as_json(self) -> dict[str, Any]:
        """As the page asks for it."""
        passed, left = time.monotonic() - self.began, None
        if self.status == "running" and self.done:
            left = round(passed * (self.total - self.done) / self.done)
        return {
            "job": self.id,
            "collection": self.collection.id,
            "status": self.status,
            "done": self.done,
            "total": self.total,
            "files_done": self.files_done,
            "files_total": len(self.files),
            "eta_seconds": 0 if self.status in ("done", "failed") else left,
            "skipped": list(self.skipped),
            "message": self.message,
        }


class Jobs:
    """Takes uploads and indexes them one after another, in a thread that ends with the server."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: queue.Queue[Job | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def take(self, user: str, collection: Collection, files: Sequence[tuple[str, BinaryIO]]) -> Job:
        """Copy what can be read of an upload into the collection's folder, and index it in time.

        Raises:
            InputError: The collection takes no files, or there are too many.
        """
        if collection.files is None:
            raise InputError(
                f"{collection.name!r} was given on the command line and takes no files: make a collection for them"
            )
        if not files or len(files) > MOST_FILES:
            raise InputError(f"an upload has from 1 to {MOST_FILES} files, not {len(files)}")
        if len(collection.documents()) + len(files) > MOST_SOURCES:
            raise InputError(f"a collection has at most {MOST_SOURCES:,} files: make another one")
        if self._waiting.qsize() >= _MOST_WAITING:
            raise InputError("many uploads are waiting to be indexed: try again in a while")
        job = Job(user, collection, collection.files / uuid.uuid4().hex)
        private_folder(collection.files)
        # Before there is a folder that another server could take for the remains of one that was killed.
        job.lock.acquire()
        taken, names = set(extensions()), set[str]()
        for number, (given, stream) in enumerate(files):
            name = plain_name(given)
            endings = [ending for ending in taken if name.lower().endswith(ending)]
            if not endings:
                job.skip(name, f"is not of a kind that can be read: accepted are {' '.join(sorted(taken))}")
                continue
            name = _unlike(name, max(endings, key=len), names)
            names.add(name)
            place = job.folder / str(number) / name
            private_folder(place.parent)
            with place.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
            job.files.append((name, place, place.stat().st_size))
        self._jobs[job.id] = job
        while len(self._jobs) > _KEPT_JOBS:
            self._jobs.popitem(last=False)
        if job.files:
            collection.status = "indexing"
        self._waiting.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="convcoa indexing", daemon=True)
            self._thread.start()
        return job

    def find(self, user: str, name: str) -> Job | None:
        """The job of this id, where it is the user's."""
        job = self._jobs.get(name)
        return job if job is not None and job.user == user else None

    def stop(self, collection: Collection | None = None) -> None:
        """Stop the jobs of a collection, or all, at their next step."""
        for job in list(self._jobs.values()):
            if collection is None or job.collection is collection:
                job.stopped.set()
        if collection is None:
            self._waiting.put(None)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            job.began, job.status = time.monotonic(), "running"
            status, job.message = "failed", ""
            try:
                with Workers() as workers:
                    self._index(job, workers)
                status = "done"
            except _StoppedError:
                job.message = "stopped"
            except Exception as error:  # noqa: BLE001 - the next job is not to suffer
                job.message = error_json(error)["message"]
            remove_upload(job.folder, job.lock)
            others = [one for one in self._all() if one.collection is job.collection and one is not job]
            waits = any(one.status in ("waiting", "running") for one in others)
            job.collection.status = "indexing" if waits else "ready"
            job.status = status

    def _all(self) -> list[Job]:
        return list(self._jobs.values())

    def _index(self, job: Job, workers: Workers) -> None:
        retriever = job.collection.retriever
        if retriever is None:
            raise InputError(job.collection.message or "the collection has no index")
        # Read once: the names of an upload differ, and the corpus is long.
        known = {entry["source"]: entry["ids"] for entry in job.collection.documents()}
        for name, place, size in job.files:
            if job.stopped.is_set():
                raise _StoppedError
            before = job.done
            documents = _read(job, name, place, workers)

            def progress(done: int, total: int, before: int = before, size: int = size) -> None:
                job.done = before + size * done // max(total, 1)
                if job.stopped.is_set():
                    raise _StoppedError

            if documents:
                with job.collection.lock:
                    try:
                        retriever.update(documents, progress=progress)
                    except ConvCoAError as error:
                        job.skip(name, str(error))
                    else:
                        fresh = {str(document.id) for document in documents}
                        retriever.delete([old for old in known.get(name, ()) if old not in fresh])
            place.unlink(missing_ok=True)
            job.done, job.files_done = before + size, job.files_done + 1
        # What makes the next start fast.
        with job.collection.lock:
            retriever.corpus.save_lexical()


def _read(job: Job, name: str, place: Path, workers: Workers) -> list[Document]:
    """The documents of a file, whose ids begin with its name, so that no file replaces a part of another."""
    documents, reasons = read_file(place, name=name, max_bytes=MOST_TEXT, workers=workers)
    for reason in reasons:
        job.skip(name, reason)
    for document in documents:
        if not str(document.id).startswith(name):
            document.id = f"{name}:{document.id}"
    return documents
