"""Collections of documents: those of the command line, which all users share, and those that a user makes on the page."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.files import private_folder, replacing
from langgraph_convcoa.retrieval.corpus import Listed
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.runs import error_json, now
from langgraph_convcoa.server.thread_book import digest
from langgraph_convcoa.storage.turns import Turns

MOST_COLLECTIONS = 50  # Maximum number of collections of one user.
FIRST = "My documents"  # Name of the collection that is made for a user without collections.
_TELL_SECONDS = 2.0
_ABOUT, _INDEX, _ORIGINALS = "collection.json", "index", "files"


@dataclass
class Collection:
    """A collection of documents. `folder` is None for a collection of the command line.

    `sources` is a fingerprint of the documents: a turn over other documents is not resumed. `originals` is the folder of the
    files that the documents were read from, named by source; for uploads it holds only the PDFs.
    """

    id: str
    name: str
    sources: str
    retriever: HopfieldRetriever | None = None
    folder: Path | None = None
    originals: Path | None = None
    status: str = "ready"
    message: str = ""
    turns: Turns | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # Held while the documents are changed.
    _listed: tuple[Any, list[dict[str, Any]]] | None = None
    _telling: Future[dict[str, Any]] | None = None

    def documents(self) -> list[dict[str, Any]]:
        """The documents by source, read once for each state of the corpus. Empty for an engine."""
        if self.retriever is None:
            return []
        view = self.retriever.corpus.snapshot()
        keys = view.keys
        state = (view.source, len(view), int(keys[-1]) if len(keys) else 0)
        if self._listed is None or self._listed[0] != state:
            self._listed = (state, _by_source(view.listed()))
        return self._listed[1]

    def ids_of(self, source: str) -> list[str]:
        return [one for entry in self.documents() if entry["source"] == source for one in entry["ids"]]

    def remove(self, source: str) -> bool:
        """Delete the documents of a source. Returns False if it has no documents."""
        if self.folder is None or self.retriever is None:
            raise InputError(f"{self.name!r} was given on the command line and cannot be changed here")
        with self.lock:
            ids, original = self.ids_of(source), self.pdf(source)
            deleted = bool(ids) and self.retriever.delete(ids)["num_deleted"] > 0
            if original is not None:
                original.unlink()
            return deleted

    def pdf(self, source: str) -> Path | None:
        """The PDF of a source that has documents, or None if there is no PDF."""
        if self.originals is None or not source.lower().endswith(".pdf") or not self.ids_of(source):
            return None
        place = (self.originals / source).resolve()
        return place if place.is_relative_to(self.originals.resolve()) and place.is_file() else None

    def as_json(self, unavailable: str = "") -> dict[str, Any]:
        """The collection for the page. If it is unavailable, `unavailable` says why."""
        documents = passages = None
        if not unavailable:
            documents = len(self.documents()) if self.retriever is None or self.retriever.corpus.complete else None
            passages = 0 if self.retriever is None else len(self.retriever.corpus)
        ready = self.status == "ready"
        return {
            "id": self.id,
            "name": self.name,
            "documents": documents,
            "passages": passages,
            "status": "unavailable" if unavailable and ready else self.status,
            "message": (unavailable if ready else "") or self.message,
            "read_only": self.folder is None,
            "accepts_files": self.folder is not None and self.retriever is not None,
        }


def _by_source(documents: Sequence[Listed]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        source = str(document.metadata.get("source") or document.id)
        entry = found.get(source)
        if entry is None:
            title, kind = str(document.metadata.get("title") or source), Path(source).suffix.lstrip(".").lower()
            entry = found[source] = {"source": source, "title": title, "passages": 0, "kind": kind, "ids": []}
        entry["passages"] += len(document.numbers)
        entry["ids"].append(document.id)
    return [*found.values()]


class Collections:
    """All collections of a server: those of the command line (`shown`), and those of the users in `folder`.

    `new_retriever` opens the index in a folder, or makes an empty one. `sources` is the fingerprint of tables and web search.
    """

    def __init__(
        self, shown: list[Collection], folder: Path, new_retriever: Callable[[Path], HopfieldRetriever], sources: str
    ) -> None:
        self.shown = {collection.id: collection for collection in shown}
        self._folder, self._new_retriever, self._sources = folder, new_retriever, sources
        self._owned: dict[str, dict[str, Collection]] = {}
        self._lock = threading.Lock()
        # A separate pool: engines that do not answer would occupy all threads of a shared pool.
        self._tellers = ThreadPoolExecutor(len(shown) + MOST_COLLECTIONS, "collections")

    def of(self, user: str) -> list[Collection]:
        """The command line's collections, then the user's own. If both are missing, a collection is made for the user."""
        with self._lock:
            own = self._own(user)
            if not own and not self.shown:
                self._add(user, FIRST)
            return [*self.shown.values(), *own.values()]

    async def told(self, collections: Sequence[Collection]) -> list[dict[str, Any]]:
        """The collections for the page. One that fails, or does not answer in time, is marked as unavailable."""
        return list(await asyncio.gather(*map(self._told, collections)))

    async def _told(self, collection: Collection) -> dict[str, Any]:
        telling = collection._telling
        if telling is None or telling.done():
            # A collection that has not answered yet is not asked again.
            telling = collection._telling = self._tellers.submit(collection.as_json)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(telling)), _TELL_SECONDS)
        except TimeoutError:
            return collection.as_json("it does not answer at the moment")
        except Exception as error:  # noqa: BLE001 - the others can be used
            return collection.as_json(error_json(error)["message"])

    def find(self, user: str, name: str) -> Collection | None:
        """The collection of this id, if the user may ask it."""
        return next((one for one in self.of(user) if one.id == name), None)

    def add(self, user: str, name: str) -> Collection:
        """Make a new, empty collection for a user."""
        plain = " ".join(name.split())[:100]
        if not plain:
            raise InputError("the collection has no name: give one")
        with self._lock:
            if len(self._own(user)) >= MOST_COLLECTIONS:
                raise InputError(f"there are {MOST_COLLECTIONS} collections already: delete one first")
            return self._add(user, plain)

    def delete(self, user: str, collection: Collection) -> None:
        """Delete a collection of a user with its files."""
        if collection.folder is None:
            raise InputError(f"{collection.name!r} was given on the command line and cannot be deleted here")
        with collection.lock, self._lock:
            self._own(user).pop(collection.id, None)
            # Delete the file that makes the folder a collection first, in case the rest cannot be deleted.
            (collection.folder / _ABOUT).unlink(missing_ok=True)
            shutil.rmtree(collection.folder, ignore_errors=True)

    def _own(self, user: str) -> dict[str, Collection]:
        """The collections of a user. Other servers over the folder may have made or deleted some."""
        own = self._owned.setdefault(user, {})
        there = {path.parent.name: path for path in sorted((self._folder / digest(user)).glob(f"*/{_ABOUT}"))}
        for gone in own.keys() - there.keys():
            del own[gone]
        found = [(_about(path), path.parent) for name, path in there.items() if name not in own]
        for about, folder in sorted(found, key=lambda pair: str(pair[0].get("created") or "")):
            own[folder.name] = self._collection(folder, str(about.get("name") or folder.name))
        return own

    def _collection(self, folder: Path, name: str) -> Collection:
        sources = f"{self._sources} {folder.name}"
        collection = Collection(folder.name, name, sources, folder=folder, originals=folder / _ORIGINALS)
        try:
            collection.retriever = self._new_retriever(folder / _INDEX)
        except Exception as error:  # noqa: BLE001 - the others can be used
            collection.status, collection.message = "failed", error_json(error)["message"]
        return collection

    def _add(self, user: str, name: str) -> Collection:
        folder = self._folder / digest(user) / uuid.uuid4().hex[:12]
        private_folder(folder)
        collection = self._collection(folder, name)
        # This file is written last: other servers ignore a folder without it.
        with replacing(folder / _ABOUT, private=True) as file:
            file.write_text(json.dumps({"name": name, "created": now()}), encoding="utf-8")
        self._owned.setdefault(user, {})[collection.id] = collection
        return collection


def _about(path: Path) -> Mapping[str, Any]:
    """Name and time of a collection; {} if its file is damaged."""
    with suppress(OSError, ValueError):
        about: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return about
    return {}
