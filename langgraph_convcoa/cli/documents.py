"""Inputs of the commands: documents or an index at a path, the cache of encoded documents, earlier turns from a file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from langgraph_convcoa.errors import InputError, RetrievalError, redact

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage

    from langgraph_convcoa.datasets.queries import Dataset
    from langgraph_convcoa.retrieval.encoders.base import Encoder
    from langgraph_convcoa.retrieval.encoders.cache import PatternCache
    from langgraph_convcoa.retrieval.progress import Progress
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_LOGGER = logging.getLogger(__name__)


def open_retriever(
    docs: str, *, k: int = 5, graph: bool | None = None, max_mb: float = 50.0, cache: bool = True, progress: bool = False
) -> HopfieldRetriever:
    """Open a retriever over documents, an index or an engine. "demo" means the demo documents, unless that path exists."""
    if is_engine(docs):
        from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

        return HopfieldRetriever.from_engine(docs, k=k)
    chosen: dict[str, Any] = {} if graph is None else {"graph": graph}
    from langgraph_convcoa.retrieval.documents.load import load_documents
    from langgraph_convcoa.retrieval.index.database import check_not_shards, is_index

    documents = None
    if is_web(docs):
        documents = list(web_documents(docs, max_bytes=int(max_mb * 1e6), cache=cache, progress=progress))
    elif not is_index(docs):
        check_not_shards(Path(docs))
        documents = load_documents(documents_path(docs), progress=progress, max_bytes=int(max_mb * 1e6))
    # The import comes after the documents are read: it takes seconds, and a wrong path should fail at once.
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    if documents is None:
        return HopfieldRetriever.from_pretrained(docs, k=k, **chosen)
    store = open_cache() if cache else None
    advice = f"This may take over a minute. To avoid this the next time: convcoa index {docs} --out DIR"
    return HopfieldRetriever.from_documents(documents, k=k, cache=store, progress=advice if progress else False, **chosen)


def default_encoder() -> Encoder:
    """The encoder of new indexes; its weights are loaded when it first encodes."""
    from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    return HopfieldRetriever(corpus=MemoryCorpus()).encoder


def searched(dataset: Dataset, docs: str | None, index: str | None) -> HopfieldRetriever:
    """Open a retriever over the named documents or index; without them, over the passages of the data set."""
    if path := documents_of(docs, index):
        return open_retriever(path, progress=True)
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    if not dataset.corpus:
        raise InputError(f"{dataset.name} has no passages to search: name documents with --docs, or an index with --index")
    return HopfieldRetriever.from_documents(dataset.corpus, cache=open_cache(), progress=True)


def is_engine(source: str) -> bool:
    """True for the address of an engine."""
    if "://" not in source:
        # This saves the import, which takes a while.
        return False
    from langgraph_convcoa.retrieval.engine.choose import is_engine as is_address

    return is_address(source)


def place_of(source: str) -> str:
    """A source in a form that is safe to store and show: an engine's address keeps server, database, collection, tenant.

    Example:
        >>> place_of("postgresql://ana:pw@db.example.org/docs?collection=manuals&sslmode=require")
        'postgresql://db.example.org/docs?collection=manuals&tenant=default'
    """
    if not is_engine(source):
        return source
    from langgraph_convcoa.retrieval.engine.choose import is_unclear

    if is_unclear(source):
        # Opening the address will raise an error. Its apparent host may be a part of the password.
        return f"{source.partition('://')[0]}://..."
    parts = urlsplit(source)
    options = dict(parse_qsl(parts.query))
    shown: dict[str, str] = {
        name: options[name] for name in ("service", "host", "hostaddr", "port", "dbname") if name in options
    }
    shown |= {"collection": options.get("collection", ""), "tenant": options.get("tenant", "default")}
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}?{urlencode(shown, safe='/')}"


def is_web(source: str) -> bool:
    """True for a web address, unless a path of that name exists."""
    return source.lower().startswith(("http://", "https://")) and not Path(source).exists()


def web_documents(
    address: str, *, max_bytes: int, cache: bool = True, progress: Progress = False, most: int | None = None
) -> Iterator[Document]:
    """The documents of a page or of a sitemap's pages. Pages are cached for a day, so a stopped run can continue."""
    from langgraph_convcoa.actions.web.documents import MOST_PAGES, iter_pages

    kept = cache_folder() / "web.sqlite" if cache else None
    return iter_pages(address, most=most or MOST_PAGES, max_bytes=max_bytes, cache=kept, progress=progress)


def documents_of(docs: str | None, index: str | None) -> str:
    """The path or address that `--docs` or `--index` names; "" if neither is given."""
    if index is None:
        return docs or ""
    if docs:
        raise InputError("--docs and --index cannot be used together: give the documents, or an index of them")
    if is_engine(index):
        return index
    if "://" in index:
        from langgraph_convcoa.retrieval.engine.choose import SCHEMES

        raise InputError(f"{redact(index)} is the address of no engine: those begin with {' or '.join(SCHEMES)}")
    from langgraph_convcoa.retrieval.index.database import check_not_shards, is_index

    if not is_index(index):
        check_not_shards(Path(index))
        raise InputError(f"{index} holds no index: make one with convcoa index PATH --out {index}")
    return index


def documents_path(docs: str) -> Path:
    """The path to read documents from. "demo" means the demo documents, unless that path exists."""
    path = Path(docs)
    if docs == "demo" and not path.exists():
        from langgraph_convcoa.datasets.demo import demo_folder

        return demo_folder()
    return path


def open_cache() -> PatternCache | None:
    """The cache of encoded documents, or None with a logged warning if it cannot be used."""
    from langgraph_convcoa.retrieval.encoders.cache import PatternCache

    try:
        return PatternCache(cache_folder() / "patterns.sqlite")
    except RetrievalError as error:
        _LOGGER.warning("%s Continuing without a cache.", error)
        return None


def cache_folder() -> Path:
    """The folder of encoded documents and web pages: the user's cache folder, or CONVCOA_CACHE_DIR."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("CONVCOA_CACHE_DIR") or user_cache_dir("langgraph-convcoa", appauthor=False))


def read_history(path: Path) -> list[BaseMessage] | list[tuple[str, str]]:
    """Earlier turns from a JSON file: [question, answer] pairs or {"role", "content"} messages, oldest first."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"the history {path} cannot be opened ({error.strerror}): give another file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the history {path} is no valid JSON ({error}): mend it") from error
    turns = content if isinstance(content, list) else [content]
    if turns and all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in turns):
        from langchain_core.messages import convert_to_messages

        try:
            return convert_to_messages([{"role": turn.get("role"), "content": turn["content"]} for turn in turns])
        except (ValueError, NotImplementedError) as error:
            raise InputError(f"the history {path} has a message of an unknown role: use user and assistant") from error
    if all(isinstance(turn, list) and len(turn) == 2 and all(isinstance(text, str) for text in turn) for turn in turns):
        return [(turn[0], turn[1]) for turn in turns]
    raise InputError(f'the history {path} must be a list of [question, answer] pairs or of {{"role", "content"}} messages')
