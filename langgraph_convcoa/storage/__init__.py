"""Conversation stores: an SQLite file on one machine, a PostgreSQL database for many, or memory."""

from __future__ import annotations

import os
from pathlib import Path

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.files import private_folder
from langgraph_convcoa.storage.base import ConversationStore


def open_store(where: str | Path | None) -> ConversationStore:
    """The store at a path or an address, or in memory for None. Nothing is opened or made yet.

    Example:
        >>> open_store("postgresql://reader:secret@db.example.org/talks").label
        'postgresql://db.example.org/talks'
        >>> open_store("talks.sqlite").label
        'talks.sqlite'
    """
    if where is None:
        return ConversationStore()
    text = str(where)
    if text.startswith(("postgresql://", "postgres://")):
        from langgraph_convcoa.storage.postgres import PostgresStore

        return PostgresStore(text)
    if "://" in text:
        scheme = text.partition("://")[0]
        raise StoreError(f"a store at {scheme}:// is not known: give an SQLite file or a postgresql:// address")
    if not text or "\0" in text:
        raise StoreError("the store has no name: give an SQLite file or a postgresql:// address")
    from langgraph_convcoa.storage.sqlite import SqliteStore

    return SqliteStore(Path(text))


def data_folder() -> Path:
    """The folder CONVCOA_DATA_DIR, or the user's data folder. It is made if missing, for its owner only."""
    from platformdirs import user_data_dir

    folder = Path(os.environ.get("CONVCOA_DATA_DIR") or user_data_dir("langgraph-convcoa", appauthor=False))
    try:
        private_folder(folder)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be made ({error.strerror}): give a --store FILE") from error
    return folder


def default_store() -> Path:
    """The file in the data folder for threads that are kept without `--store`."""
    return data_folder() / "conversations.sqlite"
