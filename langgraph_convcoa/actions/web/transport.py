"""An httpx transport whose connections go to the addresses that the guard has checked, and to no others."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpcore
import httpx

from langgraph_convcoa.actions.web.url_guard import BlockedURLError, Guard

_ATTEMPTS = 4
"""Addresses of a host that are tried."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, has all its addresses checked, and connects to one of those.

    A name that leads elsewhere when it is asked again (DNS rebinding) gains nothing: it is not asked again. TLS and the
    Host header still see the name.
    """

    def __init__(self, guard: Guard, backend: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._guard = guard
        self._backend = backend or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._guard.addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the host {host} cannot be found") from error
        until = None if timeout is None else time.monotonic() + timeout
        tried = addresses[:_ATTEMPTS]
        for left, address in zip(range(len(tried), 0, -1), tried, strict=True):
            share = None if until is None else max(0.05, (until - time.monotonic()) / left)
            try:
                return await self._backend.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
        raise httpcore.ConnectError(f"the host {host} cannot be found")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise BlockedURLError("a page is never read from a socket file")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections of a `GuardedBackend`; a proxy of the environment is not used.

    Args:
        guard: Says which addresses are allowed.
        ssl_context: For https.
        backend: What the checked connections are made with.
    """

    def __init__(self, guard: Guard, ssl_context: ssl.SSLContext, backend: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._guard = guard
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context, network_backend=GuardedBackend(guard, backend), max_connections=64, keepalive_expiry=5.0
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._guard.check_url(request.url)
        assert isinstance(request.stream, httpx.AsyncByteStream)
        core = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx_errors(request):
            response = await self._pool.handle_async_request(core)
        assert isinstance(response.stream, AsyncIterable)
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Stream(response.stream, request),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes], request: httpx.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx_errors(self._request):
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


@contextmanager
def _as_httpx_errors(request: httpx.Request) -> Iterator[None]:
    """Errors of httpcore as the errors of httpx that say the same."""
    try:
        yield
    except httpcore.TimeoutException as error:
        raise httpx.TimeoutException(str(error) or "timed out", request=request) from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise httpx.TransportError(str(error) or type(error).__name__, request=request) from error
