"""The routes of the page: conversations with all their rounds, collections, passages, log-in, and the page itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.kinds import readable_suffixes
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.guard import COOKIE, WRONG_TOKEN_SECONDS, Access
from langgraph_convcoa.server.routes import as_response, body_of, route, whole
from langgraph_convcoa.server.runs import to_json
from langgraph_convcoa.server.service import Missing, Service
from langgraph_convcoa.server.thread_book import key_of
from langgraph_convcoa.server.upload_limits import MOST_FILES
from langgraph_convcoa.storage.thread_export import file_name, thread_as_file, thread_as_markdown

STATIC = Path(__file__).with_name("static")
_MOST_TEXT = 100_000  # Maximum number of characters of the text that is shown: the id may name a whole document.
_PART = re.compile(r"(.+)#(\d+)\Z", re.DOTALL)


async def _page(service: Service, user: str, request: Request) -> Any:
    return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")


async def _login(service: Service, user: str, request: Request) -> Any:
    access: Access = request.app.state.access
    given = (await body_of(request)).get("token")
    if not access.token:
        return {"ok": True}
    if not isinstance(given, str) or not access.holds(given):
        await asyncio.sleep(WRONG_TOKEN_SECONDS)
        return as_response({"detail": "the token is wrong"}, 401)
    response = as_response({"ok": True})
    # Behind a proxy with TLS, only the origin says https. The guard has compared the origin with the host.
    secure = "https" in (request.url.scheme, request.headers.get("origin", "").partition(":")[0])
    response.set_cookie(COOKIE, access.session, max_age=30 * 86_400, httponly=True, samesite="strict", secure=secure)
    return response


async def _about(service: Service, user: str, request: Request) -> Any:
    given, access = service.settings, request.app.state.access
    return {
        "models": given.models,
        "upload": {"max_mb": access.max_upload / 1e6, "extensions": sorted(await service.threaded(readable_suffixes))},
        "actions": [{"name": name} for name in given.actions],
    }


async def _collections(service: Service, user: str, request: Request) -> Any:
    return await service.collections.told(await service.threaded(service.collections.of, user))


async def _documents(service: Service, user: str, request: Request) -> Any:
    collection = await service.collection(user, request.path_params["collection"])
    listed = await service.threaded(collection.documents)
    offset, limit = (whole(request.query_params.get(name), most, 10**6) for name, most in (("offset", 0), ("limit", 10**6)))
    shown = listed[offset : offset + limit]
    return [{name: entry[name] for name in ("source", "title", "passages", "kind")} for entry in shown]


async def _add_collection(service: Service, user: str, request: Request) -> Any:
    name = (await body_of(request)).get("name")
    made = await service.threaded(service.collections.add, user, name if isinstance(name, str) else "")
    return as_response(await service.threaded(made.as_json), 201)


async def _delete_collection(service: Service, user: str, request: Request) -> Any:
    collection = await service.collection(user, request.path_params["collection"])
    service.jobs.stop(collection)
    await service.threaded(service.collections.delete, user, collection)


async def _delete_documents(service: Service, user: str, request: Request) -> Any:
    collection = await service.collection(user, request.path_params["collection"])
    source = request.query_params.get("source", "")
    if not await service.threaded(collection.remove, source):
        raise Missing(f"{collection.name} has no document {source[:100]!r}")


async def _upload(service: Service, user: str, request: Request) -> Any:
    collection = await service.collection(user, request.path_params["collection"])
    async with request.form(max_files=MOST_FILES, max_fields=10) as form:
        files = [(given.filename or "", given.file) for given in form.getlist("files") if isinstance(given, UploadFile)]
        job = await service.threaded(service.jobs.take, user, collection, files)
    return as_response({"job": job.id}, 202)


async def _job(service: Service, user: str, request: Request) -> Any:
    job = service.jobs.find(user, request.path_params["job"])
    if job is None:
        raise Missing("there is no such upload any more: see what the collection holds")
    return job.as_json()


async def _passages(service: Service, user: str, request: Request) -> Any:
    given = request.query_params
    collection = await service.collection(user, given.get("collection", ""))
    identity, text = given.get("id", ""), given.get("quote", "")[:4_000]
    if not identity:
        raise InputError("a passage is asked for by its id")
    found = None
    if collection.retriever is not None:
        found = await service.threaded(passage_json, collection.retriever, identity, text)
    if found is None:
        raise Missing(
            f"there is no passage {identity[:100]!r} in {collection.name}: its document was deleted, or it is no document"
        )
    return {**found, "pdf": await service.threaded(collection.pdf, found["source"]) is not None}


def passage_json(retriever: HopfieldRetriever, identity: str, cited: str) -> dict[str, Any] | None:
    """A passage as the page shows it, or None if no passage has this id."""
    found = retriever.get_by_ids([identity])
    if not found:
        return None
    passage = found[0]
    about = passage.metadata
    before = after = ""
    part = _PART.match(identity)
    if part is not None and about.get("document_id") == part[1]:
        names = [f"{part[1]}#{int(part[2]) + step}" for step in (-1, 1)]
        beside = {str(one.id): one.page_content for one in retriever.get_by_ids(names)}
        before, after = (beside.get(name, "") for name in names)
    text = passage.page_content[:_MOST_TEXT]
    return {
        "title": str(about.get("title") or ""),
        "source": str(about.get("source") or about.get("document_id") or identity),
        "page": about.get("page"),
        "text": text,
        "before": before,
        "after": after,
        "spans": [list(place) for place in spans(text, cited)],
    }


def spans(text: str, quote: str) -> Sequence[tuple[int, int]]:
    r"""The places of a quote's parts in a text, in order; white space may differ.

    Example:
        >>> spans("It stores patterns.\nThey are minima. It is old.", "It stores patterns. They are minima. … It is old.")
        [(0, 36), (37, 47)]
    """
    words = [*re.finditer(r"\S+", text)]
    # With single spaces, the search is linear. A pattern of the quote's words would try each place for each word.
    flat = " ".join(word[0] for word in words)
    # `flat[i]` stands at `origin[i]` in the text. A space counts as the place right after its word.
    origin = [index for word in words for index in range(word.start(), word.end() + 1)]
    places = []
    for part in quote.split(" … "):
        wanted = " ".join(part.split())
        if wanted and (found := flat.find(wanted)) >= 0:
            places.append((origin[found], origin[found + len(wanted) - 1] + 1))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


async def _conversation(service: Service, user: str, request: Request) -> Any:
    rounds = whole(request.query_params.get("rounds"), 10**6, 10**6)
    return await service.conversation(user, request.path_params["thread"], rounds)


async def _search(service: Service, user: str, request: Request) -> Any:
    return await service.search(user, request.query_params.get("words", ""))


async def _rate(service: Service, user: str, request: Request) -> Any:
    given = await body_of(request)
    number, rating = whole(given.get("round"), 0, 10**6), str(given.get("rating") or "")
    await service.rate(user, request.path_params["thread"], number, rating)


async def _file(service: Service, user: str, request: Request) -> Any:
    collection = await service.collection(user, request.path_params["collection"])
    source = request.query_params.get("source", "")
    found = await service.threaded(collection.pdf, source)
    if found is None:
        raise Missing(f"{collection.name} has no PDF {source[:100]!r}")
    return FileResponse(found, media_type="application/pdf", filename=found.name, content_disposition_type="inline")


async def _export(service: Service, user: str, request: Request) -> Any:
    thread, form = request.path_params["thread"], request.query_params.get("format", "json")
    if form not in ("json", "md"):
        raise InputError("a conversation is exported as json or md")
    entry = await service.entry(user, thread)
    snapshot, _ = await service.snapshot(user, entry)
    title = str(entry["metadata"].get("title") or thread)
    exported = thread_as_file(title if form == "md" else key_of(user, thread), snapshot.values)
    name = file_name(title).removesuffix(".json") + f".{form}"
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    if form == "md":
        return Response(thread_as_markdown(exported).encode("utf-8", "replace"), headers=headers, media_type="text/markdown")
    return Response(to_json(exported), headers=headers, media_type="application/json")


ROUTES = [
    route("/", _page),
    route("/convcoa/login", _login, "POST"),
    route("/convcoa/info", _about),
    route("/convcoa/collections", _collections),
    route("/convcoa/collections", _add_collection, "POST"),
    route("/convcoa/collections/{collection}", _delete_collection, "DELETE"),
    route("/convcoa/collections/{collection}/documents", _documents),
    route("/convcoa/collections/{collection}/documents", _delete_documents, "DELETE"),
    route("/convcoa/collections/{collection}/files", _upload, "POST"),
    route("/convcoa/collections/{collection}/files", _file),
    route("/convcoa/jobs/{job}", _job),
    route("/convcoa/passages", _passages),
    route("/convcoa/threads", _search),
    route("/convcoa/threads/{thread}", _conversation),
    route("/convcoa/threads/{thread}/rating", _rate, "POST"),
    route("/convcoa/threads/{thread}/export", _export),
]
