"""The application: routes, guard and the open store, for uvicorn or another ASGI server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.server import page, routes
from langgraph_convcoa.server.guard import Access, Guard, answer
from langgraph_convcoa.server.runs import error_json
from langgraph_convcoa.server.service import Busy, Missing, Service, Settings


def create_app(settings: Settings, access: Access | None = None) -> Guard:
    """Make the ASGI application of a server; without `access` for this machine alone. Its lifespan opens the store."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service:
            yield

    app = Starlette(
        routes=[*routes.ROUTES, *page.ROUTES, Mount("/static", StaticFiles(directory=page.STATIC))],
        lifespan=lifespan,
        exception_handlers={HTTPException: _of_starlette, ConvCoAError: _ours, ClientDisconnect: _left, Exception: _other},
    )
    app.state.service = service
    app.state.access = access or Access()
    return Guard(app, app.state.access, service)


async def _of_starlette(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(error.status_code, str(error.detail))


async def _left(request: Request, error: Exception) -> Response:
    # Nobody reads this answer: the client left in the middle of its request.
    return answer(400, "the request was not sent to its end")


async def _other(request: Request, error: Exception) -> Response:
    # An OSError may come from anywhere, not only from the store's file.
    reported = None if isinstance(error, OSError) else request.app.state.service.store.error(error)
    if reported is not None:
        return await _ours(request, reported)
    return answer(500, error_json(error)["message"])


async def _ours(request: Request, error: Exception) -> Response:
    known: dict[type[Exception], int] = {Missing: 404, Busy: 409}
    status = known.get(type(error), 422 if isinstance(error, InputError) else 503)
    return answer(status, str(error))
