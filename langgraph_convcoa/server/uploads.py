"""Uploads: files are copied within limits, then read by a worker process and encoded by a thread of their collection."""

from __future__ import annotations

import shutil
import threading
import time
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Self

from filelock import FileLock, Timeout
from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, InputError, StoreError
from langgraph_convcoa.files import private_folder
from langgraph_convcoa.retrieval.documents.kinds import readable_suffixes
from langgraph_convcoa.retrieval.documents.load import Spool, stream_file
from langgraph_convcoa.retrieval.documents.worker import Workers
from langgraph_convcoa.server.collections import Collection
from langgraph_convcoa.server.runs import error_json
from langgraph_convcoa.server.upload_limits import FILE_SECONDS, MOST_FILES, MOST_SOURCES, MOST_TEXT, MOST_TEXTS

_LONGEST_NAME, _LONGEST_SUFFIX = 150, 20
_KEPT_JOBS, _MOST_WAITING, _MOST_SKIPPED = 200, 20, 1_000


def plain_name(name: str) -> str:
    r"""A file's name without folders, and without characters that point to another folder or disguise the name.

    Example:
        >>> [plain_name(name) for name in ("../../etc/pass\0wd", "C:\\notes\\a.md", "...", "fdp\u202e.exe")]
        ['passwd', 'a.md', 'file', 'fdp.exe']
    """
    last = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8")).replace("\\", "/").rsplit("/", 1)[-1]
    # Without control characters and characters that change the direction of the text.
    kept = "".join(one for one in last if unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
    kept = " ".join(kept.split()).lstrip(". ").replace(":", "-")
    stem, dot, suffix = kept.rpartition(".")
    if dot and len(suffix) < _LONGEST_SUFFIX:
        return f"{_first_bytes(stem, _LONGEST_NAME)}.{suffix}"
    return _first_bytes(kept, _LONGEST_NAME) or "file"


def _first_bytes(text: str, most: int) -> str:
    """The start of a text, at most `most` bytes of UTF-8: file systems count bytes."""
    return text.encode()[:most].decode("utf-8", "ignore")


def _unlike(name: str, ending: str, others: Set[str]) -> str:
    """The name, with a number before its ending if another file of the upload has the same name."""
    stem, suffix = name[: -len(ending)], name[-len(ending) :]
    numbered = (f"{stem} ({number}){suffix}" for number in range(2, len(others) + 3))
    return name if name not in others else next(one for one in numbered if one not in others)


@dataclass
class Job:
    """An upload on its way into a collection; `done` and `total` are bytes of its files."""

    user: str
    collection: Collection
    folder: TemporaryDirectory[str]
    files: list[tuple[str, Path, int]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    status: str = "waiting"
    message: str = ""
    done: int = 0
    files_done: int = 0
    began: float = 0.0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    stopped: threading.Event = field(default_factory=threading.Event)
    workers: Workers = field(default_factory=Workers)  # Worker process that reads the files.

    @property
    def total(self) -> int:
        return sum(size for _, _, size in self.files)

    @property
    def ended(self) -> bool:
        return self.status in ("done", "failed")

    def skip(self, name: str, reason: str) -> None:
        """Note a file, or a part of a file, that is left out."""
        if len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append({"name": name, "reason": reason})

    def as_json(self) -> dict[str, Any]:
        """The progress, for the page."""
        left = None
        if self.status == "running" and self.done:
            left = round((time.monotonic() - self.began) * (self.total - self.done) / self.done)
        known = {name: getattr(self, name) for name in ("status", "done", "total", "files_done", "message")}
        left = 0 if self.ended else left
        return {**known, "files_total": len(self.files), "eta_seconds": left, "skipped": list(self.skipped)}


class Jobs:
    """Takes uploads and indexes them; used in a `with` block. A thread of each collection indexes one upload after another.

    Files wait in a folder of this server inside `folder`. The folders of killed servers are deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._place = folder / uuid.uuid4().hex
        self._held = FileLock(self._place.with_suffix(".lock"))
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            private_folder(self._place)
            self._held.acquire()
        except OSError as error:
            raise StoreError(f"{self._place.parent} cannot be written ({error.strerror}): set CONVCOA_DATA_DIR") from error
        for place in self._place.parent.glob("*.lock"):
            # The lock of a running server cannot be taken.
            with suppress(Timeout), FileLock(place, timeout=0):
                shutil.rmtree(place.with_suffix(""), ignore_errors=True)
                place.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._place, ignore_errors=True)
        self._held.release()
        Path(self._held.lock_file).unlink(missing_ok=True)

    def take(self, user: str, collection: Collection, files: Sequence[tuple[str, BinaryIO]]) -> Job:
        """Copy the readable files of an upload into a temporary folder and index them in the background.

        Raises InputError if the collection takes no files, or there are too many.
        """
        if collection.folder is None:
            raise InputError(
                f"{collection.name!r} was given on the command line and takes no files: make a collection for them"
            )
        if collection.retriever is None:
            raise InputError(f"{collection.name!r} cannot be opened and takes no files: {collection.message}")
        if not files or len(files) > MOST_FILES:
            raise InputError(f"an upload has from 1 to {MOST_FILES} files, not {len(files)}")
        if len(collection.documents()) + len(files) > MOST_SOURCES:
            raise InputError(f"a collection has at most {MOST_SOURCES:,} files: make another one")
        if sum(job.user == user and not job.ended for job in [*self._jobs.values()]) >= _MOST_WAITING:
            raise InputError("many uploads are waiting to be indexed: try again in a while")
        job = Job(user, collection, TemporaryDirectory(dir=self._place))
        try:
            _copy(job, files)
        except BaseException:
            job.folder.cleanup()
            raise
        with self._lock:
            busy = any(one.collection is collection and not one.ended for one in self._jobs.values())
            self._jobs[job.id] = job
            for old in [one for one in self._jobs.values() if one.ended][: max(0, len(self._jobs) - _KEPT_JOBS)]:
                del self._jobs[old.id]
            if job.files:
                collection.status = "indexing"
            if not busy:
                threading.Thread(target=self._work, args=(collection,), name="convcoa indexing", daemon=True).start()
        return job

    def find(self, user: str, name: str) -> Job | None:
        """The user's job of this id, or None."""
        job = self._jobs.get(name)
        return job if job and job.user == user else None

    def stop(self, collection: Collection | None = None) -> None:
        """Stop the jobs of a collection, or all jobs. The reading of a file ends at once."""
        for job in [*self._jobs.values()]:
            if collection is None or job.collection is collection:
                job.stopped.set()
                job.workers.close()

    def _work(self, collection: Collection) -> None:
        while True:
            with self._lock:
                job = next((one for one in self._jobs.values() if one.collection is collection and not one.ended), None)
                if job is None:
                    return
            job.began, job.status, status = time.monotonic(), "running", "failed"
            try:
                with job.workers:
                    self._index(job)
                status = "done"
            except Exception as error:  # noqa: BLE001 - the next job must still run
                job.message = "stopped" if job.stopped.is_set() else error_json(error)["message"]
            job.folder.cleanup()
            with self._lock:
                waits = any(one.collection is collection and not one.ended and one is not job for one in self._jobs.values())
                collection.status = "indexing" if waits else "ready"
                job.status = status

    def _index(self, job: Job) -> None:
        retriever = job.collection.retriever
        assert retriever is not None, "`take` refuses files for a collection that failed"
        # The ids are listed once: the corpus is long, and no two files of an upload have the same name.
        known = {entry["source"]: entry["ids"] for entry in job.collection.documents()}
        for name, place, size in job.files:
            before, documents = job.done, _read(job, name, place, size)
            # Read the file before locking: a file without text needs no lock, and others can change the collection meanwhile.
            first = next(documents, None)
            if job.stopped.is_set():
                raise CancelledError
            if first is not None:
                with job.collection.lock:
                    try:
                        fresh = set(retriever.update(chain([first], documents)))
                        retriever.delete([old for old in known.get(name, ()) if old not in fresh])
                    except ConvCoAError as error:
                        job.skip(name, str(error))
                    else:
                        if job.collection.originals is not None and place.suffix.lower() == ".pdf":
                            # Keep the PDF: the page shows it beside a quote.
                            private_folder(job.collection.originals)
                            place.replace(job.collection.originals / place.name)
            place.unlink(missing_ok=True)
            job.done, job.files_done = before + size, job.files_done + 1
        # The BM25 index is saved, so that the next start is fast.
        with job.collection.lock:
            retriever.corpus.save_lexical()


def _copy(job: Job, files: Sequence[tuple[str, BinaryIO]]) -> None:
    taken, names = readable_suffixes(), set[str]()
    for number, (given, stream) in enumerate(files):
        name = plain_name(given)
        endings = [ending for ending in taken if name.lower().endswith(ending)]
        if not endings:
            job.skip(name, f"is not of a kind that can be read: accepted are {' '.join(sorted(taken))}")
            continue
        name = _unlike(name, max(endings, key=len), names)
        names.add(name)
        place = Path(job.folder.name, str(number), name)
        place.parent.mkdir()
        with place.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
        job.files.append((name, place, place.stat().st_size))


def _read(job: Job, name: str, place: Path, size: int) -> Iterator[Document]:
    """The documents of a file. Their ids begin with its name, so that no two files share an id."""
    before = job.done

    def progress(done: int, total: int) -> None:
        job.done = before + size * done // max(total, 1)

    # No upload is named "texts": a file that can be read has an ending.
    spool = Spool(place.with_name("texts"), FILE_SECONDS, MOST_TEXTS, progress)
    for document in stream_file(place, spool, job.workers, name=name, max_bytes=MOST_TEXT, told=partial(job.skip, name)):
        if job.stopped.is_set():
            raise CancelledError
        if not str(document.id).startswith(name):
            document.id = f"{name}:{document.id}"
        yield document
    spool.path.unlink(missing_ok=True)
