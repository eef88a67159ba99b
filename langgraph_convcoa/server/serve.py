"""The web server: it listens on a port, announces its start, and ends within seconds."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from langgraph_convcoa.server.service import Service

_GRACE_SECONDS = 3


class ConvCoAServer(uvicorn.Server):
    """Ends the turns before the connections: a connection stays open until its turn ends."""

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


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address.

    Raises:
        InputError: The port is taken, or there is no such address.
    """
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


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    """Settings of uvicorn: a client's proxy headers are ignored, and the server's name is not sent."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # The guard believes a user header by the address of its sender.
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="on",
    )
