"""The web server: an application with routes, a guard and an open store, run by uvicorn. It shuts down within seconds."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.server import page, routes
from langgraph_convcoa.server.guard import Access, Guard, answer
from langgraph_convcoa.server.runs import error_json
from langgraph_convcoa.server.service import Busy, Missing, Service, Settings


def create_app(settings: Settings, access: Access | None = None) -> Guard:
    """Make the ASGI application. Without `access`, only this machine can reach it. Its lifespan opens the store."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service:
            yield

    app = Starlette(
        routes=[*routes.ROUTES, *page.ROUTES, Mount("/static", StaticFiles(directory=page.STATIC))],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((HTTPException, ConvCoAError, ClientDisconnect, Exception), _failed),
    )
    app.state.service = service
    app.state.access = access or Access()
    return Guard(app, app.state.access, service)


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return answer(error.status_code, str(error.detail))
    if isinstance(error, ClientDisconnect):
        # Nobody reads this answer: the client left in the middle of its request.
        return answer(400, "the request was not sent to its end")
    # An OSError may come from anywhere, not only from the store's file.
    if not isinstance(error, ConvCoAError | OSError):
        error = request.app.state.service.store.error(error) or error
    if not isinstance(error, ConvCoAError):
        return answer(500, error_json(error)["message"])
    known: dict[type[Exception], int] = {Missing: 404, Busy: 409}
    return answer(known.get(type(error), 422 if isinstance(error, InputError) else 503), str(error))


class ConvCoAServer(uvicorn.Server):
    """Shuts down turns first, then connections, since a connection stays open until its turn ends."""

    def __init__(self, app: ASGIApp, service: Service, announce: Callable[[], None] = lambda: None) -> None:
        super().__init__(uvicorn_config(app))
        self._service, self._announce = service, announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.runs.close()
        await super().shutdown(sockets)


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    """Settings of uvicorn: a client's proxy headers are ignored, and the server's name is not sent."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # The guard accepts a user header only from the proxy's address.
        server_header=False,
        timeout_graceful_shutdown=3,  # Seconds.
        lifespan="on",
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address. Raises InputError if the port is taken, or there is no such address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"--host {host} is no address of this machine ({error.strerror or error})") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        if error.errno is not None and "in use" in str(error.strerror).lower():
            raise InputError(f"the port {port} of {host} is taken by another program: give another with --port") from error
        raise InputError(f"{host}:{port} cannot be listened on ({error.strerror}): give another --host or --port") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """The URL of a listening socket, as a browser on this machine opens it."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
