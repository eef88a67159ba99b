"""The routes of LangGraph's server, as `langgraph_sdk` and agent-chat-ui call them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.server.collections import Collection
from langgraph_convcoa.server.guard import USER
from langgraph_convcoa.server.runs import GRAPH, Run, RunRequest, read_run, to_json
from langgraph_convcoa.server.service import VALUES, Missing, Service
from langgraph_convcoa.server.thread_book import key_of
from langgraph_convcoa.storage.turns import before_last, without_last_turn

Endpoint = Callable[[Service, str, Request], Awaitable[Any]]


def route(path: str, endpoint: Endpoint, *methods: str) -> Route:
    """Make a route. The endpoint gets the service and the user, and returns a response or a value for JSON."""

    async def respond(request: Request) -> Response:
        given = await endpoint(request.app.state.service, request.scope[USER], request)
        return given if isinstance(given, Response) else as_response(given)

    return Route(path, respond, methods=list(methods or ("GET",)))


def as_response(value: Any, status: int = 200) -> Response:
    """A value as JSON; None as an empty response."""
    if value is None:
        return Response(status_code=204)
    return Response(to_json(value), status, media_type="application/json")


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object in a request's body; {} for an empty body."""
    raw = await request.body()
    if not raw:
        return {}
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError("the body of the request is no valid JSON") from error
    if not isinstance(given, dict):
        raise InputError("the body of the request must be a JSON object")
    return given


def whole(value: Any, default: int, most: int) -> int:
    """A client's whole number, cut to the range 0 to `most`."""
    if value is None:
        return default
    try:
        return max(0, min(int(value), most))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"a whole number is needed, not {str(value)[:50]!r}") from None


async def _ok(service: Service, user: str, request: Request) -> Any:
    return {"ok": True}


async def _info(service: Service, user: str, request: Request) -> Any:
    return {"version": version("langgraph-convcoa"), "flags": {"assistants": True, "crons": False}}


def _described(collection: Collection, name: str) -> dict[str, Any]:
    return {
        "assistant_id": name,
        "graph_id": GRAPH,
        "name": collection.name,
        "description": f"Verified, cited answers about {collection.name}",
        "metadata": {"created_by": "system", "collection": collection.id},
        "version": 1,
        **{"config": {}, "context": {}},
        **dict.fromkeys(("created_at", "updated_at"), "1970-01-01T00:00:00+00:00"),
    }


async def _assistants(service: Service, user: str, request: Request) -> Any:
    given = await body_of(request)
    if given.get("graph_id", GRAPH) != GRAPH:
        return []
    found = await service.threaded(service.collections.of, user)
    # Clients are often configured with the graph's name, so the first collection has that id.
    return [_described(one, GRAPH if number == 0 else one.id) for number, one in enumerate(found)]


async def _assistant(service: Service, user: str, request: Request) -> Any:
    name = request.path_params["assistant"]
    return _described(await service.collection(user, name), name)


async def _schemas(service: Service, user: str, request: Request) -> Any:
    graph = (await service.turns_of(user, {"metadata": {}}, request.path_params["assistant"])).graph
    return {
        "graph_id": GRAPH,
        "input_schema": graph.get_input_jsonschema(),
        "output_schema": graph.get_output_jsonschema(),
        "state_schema": graph.get_output_jsonschema(),
        "config_schema": {},
        "context_schema": graph.get_context_jsonschema(),
    }


def _thread(service: Service, user: str, entry: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    if values is None:
        # Clients show each thread of a list under its first message, so only that message is sent.
        question = str(entry.get("question") or "")
        values = {"messages": [{"type": "human", "content": question, "id": "first"}]} if question else {}
    known = {name: entry[name] for name in ("thread_id", "created_at", "updated_at", "metadata")}
    return {**known, "status": service.status(user, entry), "config": {}, "values": values, "interrupts": {}}


async def _create_thread(service: Service, user: str, request: Request) -> Any:
    given = await body_of(request)
    thread = None if given.get("thread_id") is None else str(given["thread_id"])
    entry = await service.create(user, thread, given.get("metadata"), str(given.get("if_exists") or "raise"))
    return _thread(service, user, entry, {})


async def _search_threads(service: Service, user: str, request: Request) -> Any:
    given = await body_of(request)
    found = await _matching(service, user, given)
    if given.get("sort_by") in ("created_at", "updated_at", "thread_id"):
        found.sort(key=lambda entry: str(entry[given["sort_by"]]), reverse=given.get("sort_order") != "asc")
    offset, limit = whole(given.get("offset"), 0, 10**6), whole(given.get("limit"), 10, 1_000)
    return [_thread(service, user, entry) for entry in found[offset : offset + limit]]


async def _count_threads(service: Service, user: str, request: Request) -> Any:
    return len(await _matching(service, user, await body_of(request)))


async def _matching(service: Service, user: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted, ids, status = given.get("metadata") or {}, given.get("ids"), given.get("status")
    if not isinstance(wanted, Mapping) or not (ids is None or isinstance(ids, list)):
        raise InputError("threads are searched by metadata, an object, and ids, a list")
    return [
        entry
        for entry in await service.entries(user)
        if all(entry["metadata"].get(name) == value for name, value in wanted.items())
        and (not ids or entry["thread_id"] in ids)
        and (not status or service.status(user, entry) == status)
    ]


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in VALUES if name in values}


async def _get_thread(service: Service, user: str, request: Request) -> Any:
    entry = await service.entry(user, request.path_params["thread"])
    snapshot, _ = await service.snapshot(user, entry)
    found = _thread(service, user, entry, _public(snapshot.values))
    found["interrupts"] = {task.id: list(task.interrupts) for task in snapshot.tasks if task.interrupts}
    return found


async def _patch_thread(service: Service, user: str, request: Request) -> Any:
    given = await body_of(request)
    return _thread(service, user, await service.update(user, request.path_params["thread"], given.get("metadata")))


async def _delete_thread(service: Service, user: str, request: Request) -> Any:
    await service.delete(user, request.path_params["thread"])


async def _get_state(service: Service, user: str, request: Request) -> Any:
    thread = request.path_params["thread"]
    snapshot, _ = await service.snapshot(user, await service.entry(user, thread))

    def checkpoint(identity: str | None) -> dict[str, Any]:
        return {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": identity}

    before = before_last(snapshot)
    tasks = [{"id": one.id, "name": one.name, "error": None, "interrupts": list(one.interrupts)} for one in snapshot.tasks]
    return {
        "values": _public(snapshot.values),
        "next": list(snapshot.next),
        "checkpoint": checkpoint(snapshot.config["configurable"].get("checkpoint_id")),
        "metadata": {},
        "created_at": snapshot.created_at,
        "parent_checkpoint": checkpoint(before) if before else None,
        "tasks": tasks,
        "interrupts": [interrupt for task in snapshot.tasks for interrupt in task.interrupts],
    }


async def _get_history(service: Service, user: str, request: Request) -> Any:
    # Only the last checkpoint of a finished turn is kept; a client may fork from the state before it.
    state = await _get_state(service, user, request)
    before = state["parent_checkpoint"]
    if before is None:
        return [state] if state["created_at"] is not None else []
    left = _public(without_last_turn(state["values"]))
    return [state, {**state, "values": left, "checkpoint": before, "parent_checkpoint": None}]


async def _started(service: Service, user: str, request: Request) -> tuple[Run, RunRequest]:
    given = read_run(await body_of(request))
    return await service.start(user, request.path_params.get("thread"), given), given


async def _stream_run(service: Service, user: str, request: Request) -> Any:
    run, given = await _started(service, user, request)
    return _stream(service, run, 0, given.cancel_on_disconnect)


def _stream(service: Service, run: Run, after: int, cancel: bool = False) -> StreamingResponse:
    async def events() -> AsyncIterator[bytes]:
        try:
            async for part in run.follow(after):
                yield part
        finally:
            if cancel and not run.ended:
                service.runs.cancel(run)

    place = f"/threads/{quote(run.thread)}/runs/{run.id}"
    headers = {"x-accel-buffering": "no", "location": f"{place}/stream", "content-location": place}
    return StreamingResponse(events(), headers=headers, media_type="text/event-stream")


async def _create_run(service: Service, user: str, request: Request) -> Any:
    return (await _started(service, user, request))[0].as_json()


async def _wait_run(service: Service, user: str, request: Request) -> Any:
    return await _output((await _started(service, user, request))[0])


async def _output(run: Run) -> Response:
    """The last values of a run, or its error, as they were streamed."""
    last = b"{}"
    async for part in run.follow():
        head, _, data = part.partition(b"\ndata: ")
        if head.endswith(b"event: error"):
            return Response(b'{"__error__":%s}' % data, media_type="application/json")
        if head.endswith(b"event: values"):
            last = data
    return Response(last, media_type="application/json")


async def _list_runs(service: Service, user: str, request: Request) -> Any:
    thread = request.path_params["thread"]
    await service.entry(user, thread)
    given = request.query_params
    limit, offset = whole(given.get("limit"), 10, 100), whole(given.get("offset"), 0, 10**6)
    status = given.get("status")
    found = [run for run in service.runs.of(key_of(user, thread)) if not status or run.status == status]
    return [run.as_json() for run in found[offset : offset + limit]]


def _run(service: Service, user: str, request: Request) -> Run:
    for run in service.runs.of(key_of(user, request.path_params["thread"])):
        if run.id == request.path_params["run"]:
            return run
    raise Missing("there is no such run any more: the conversation itself says how it ended")


async def _get_run(service: Service, user: str, request: Request) -> Any:
    return _run(service, user, request).as_json()


async def _join_stream(service: Service, user: str, request: Request) -> Any:
    last = request.headers.get("last-event-id", "")
    return _stream(service, _run(service, user, request), int(last) if re.fullmatch(r"[0-9]{1,18}", last) else 0)


async def _join_run(service: Service, user: str, request: Request) -> Any:
    return await _output(_run(service, user, request))


async def _cancel_run(service: Service, user: str, request: Request) -> Any:
    run = _run(service, user, request)
    key = key_of(user, run.thread)
    if service.runs.active.get(key) is run:
        await service.runs.stop(key)


ROUTES = [
    route("/ok", _ok),
    route("/info", _info),
    route("/assistants/search", _assistants, "POST"),
    route("/assistants/{assistant}", _assistant),
    route("/assistants/{assistant}/schemas", _schemas),
    route("/threads", _create_thread, "POST"),
    route("/threads/search", _search_threads, "POST"),
    route("/threads/count", _count_threads, "POST"),
    route("/threads/{thread}", _get_thread),
    route("/threads/{thread}", _patch_thread, "PATCH"),
    route("/threads/{thread}", _delete_thread, "DELETE"),
    route("/threads/{thread}/state", _get_state),
    route("/threads/{thread}/history", _get_history, "GET", "POST"),
    route("/threads/{thread}/runs/stream", _stream_run, "POST"),
    route("/threads/{thread}/runs/wait", _wait_run, "POST"),
    route("/threads/{thread}/runs", _create_run, "POST"),
    route("/threads/{thread}/runs", _list_runs),
    route("/threads/{thread}/runs/{run}", _get_run),
    route("/threads/{thread}/runs/{run}/stream", _join_stream),
    route("/threads/{thread}/runs/{run}/join", _join_run),
    route("/threads/{thread}/runs/{run}/cancel", _cancel_run, "POST"),
    route("/runs/stream", _stream_run, "POST"),
    route("/runs/wait", _wait_run, "POST"),
]
