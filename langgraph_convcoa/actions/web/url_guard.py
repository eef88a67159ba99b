"""The guard against server-side request forgery: the allowed addresses, and an httpx transport that uses only those."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import httpcore
import httpx

from langgraph_convcoa.errors import InputError, RetrievalError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]  # A function from a host name and a port to the addresses of the host.

_MAX_URL = 2_048
_ATTEMPTS = 4  # At most this many addresses of a host are tried.
_PORTS = frozenset({80, 443})
_WITH_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*):(?P<port>\d{1,5})")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.IGNORECASE)
_NUMERIC = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$", re.IGNORECASE)
_METADATA_ADDRESSES = ("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")
_METADATA = tuple(map(ipaddress.ip_network, _METADATA_ADDRESSES))
_UNUSABLE = (
    "192.0.0.0/24",  # protocol assignments
    "192.88.99.0/24",  # relays of 6to4
    "2002::/16",  # 6to4
    "2001::/32",  # Teredo
    "64:ff9b:1::/48",  # NAT64 of a local network
    "::/96",  # IPv4-compatible
    "fec0::/10",  # site-local
)
_REFUSED_NETWORKS = (*_METADATA, *map(ipaddress.ip_network, _UNUSABLE))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


class BlockedURLError(RetrievalError):
    """The guard refuses a URL; nothing was sent to it."""


def is_public(address: str | IPAddress) -> bool:
    """True if an address (IPv4 or IPv6) is public. A mapped or NAT64 address counts as the IPv4 address inside it."""
    parsed = _unwrapped(address)
    if parsed is None or any(parsed in network for network in _REFUSED_NETWORKS):
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and (int(parsed) >> 32) & 0xFFFFFFFF in _ISATAP:
        return False
    # `is_global` is also true for multicast addresses.
    return parsed.is_global and not (
        parsed.is_multicast or parsed.is_reserved or parsed.is_private or parsed.is_loopback or parsed.is_link_local
    )


def never_holds_pages(address: str | IPAddress) -> bool:
    """True for addresses that are always refused: link-local, cloud metadata, multicast, 0.0.0.0."""
    parsed = _unwrapped(address)
    return (
        parsed is None
        or parsed.is_link_local
        or parsed.is_multicast
        or parsed.is_unspecified
        or any(parsed in network for network in _METADATA)
    )


def _unwrapped(address: str | IPAddress) -> IPAddress | None:
    """The address, or the IPv4 address inside it; None if it is invalid or has a scope (`%eth0`)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv4Address):
        return parsed
    if parsed.scope_id is not None:
        return None
    if parsed in _NAT64:
        return ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
    return parsed.ipv4_mapped or parsed


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host from the system's resolver. Raises OSError if there are none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    """Decides which URLs, and which addresses behind them, may be used.

    Public addresses on the ports 80 and 443 are allowed. `allow_private` adds hosts and networks ("wiki.intern",
    "10.1.0.0/16", "127.0.0.1:8080"; InputError for anything else). True adds all except those of `never_holds_pages`.
    """

    def __init__(self, allow_private: bool | str | Sequence[str] = False, resolver: Resolver = resolve) -> None:
        entries = [allow_private] if isinstance(allow_private, str) else allow_private
        self.allow_private = entries if isinstance(entries, bool) else tuple(entries)
        self.resolver = resolver
        self._allowed = [] if isinstance(entries, bool) else [_Allowed.parse(entry) for entry in entries]

    def check_url(self, url: str | httpx.URL) -> httpx.URL:
        """Check and parse a URL. The address behind it is checked on connecting.

        Raises BlockedURLError for an invalid URL, a scheme other than http(s), a user name, or a disguised host.
        """
        if len(str(url)) > _MAX_URL:
            raise BlockedURLError(f"the address is longer than {_MAX_URL} characters")
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError, ValueError) as error:
            raise BlockedURLError("the address is no valid URL") from error
        if parsed.scheme not in ("http", "https"):
            raise BlockedURLError(f"only http and https pages are read, not {parsed.scheme[:20] or 'a relative address'}")
        if parsed.userinfo:
            raise BlockedURLError("the address holds a user name or password")
        # Port 0 would count as no port.
        if parsed.port is not None and not 0 < parsed.port < 65_536:
            raise BlockedURLError(f"port {parsed.port} is not allowed")
        host = parsed.raw_host.decode("ascii")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            # Resolvers take 127.1, 0x7f000001 and 2130706433 for addresses; nobody writes a page's address like that.
            if len(host) > 253 or not _NAME.fullmatch(host) or _NUMERIC.search(host):
                raise BlockedURLError("the address has no valid host name") from None
        return parsed.copy_with(fragment=None)

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host. Raises BlockedURLError unless all are allowed on that port."""
        try:
            found = [str(ipaddress.ip_address(host))]
        except ValueError:
            found = await self.resolver(host, port)
        if not found:
            raise OSError(f"{host} has no address")
        for address in found:
            never = never_holds_pages(address)
            if not never and (self.allow_private is True or any(entry.holds(host, address, port) for entry in self._allowed)):
                continue
            if never or not is_public(address):
                # The message does not name the address, which would reveal the user's network.
                raise BlockedURLError("the address leads to a private or local network")
            if port not in _PORTS:
                raise BlockedURLError(f"port {port} is not allowed")
        return found


class _Allowed(NamedTuple):
    """An entry of `allow_private`: a host or a network, on one port or on every port."""

    host: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int | None

    @classmethod
    def parse(cls, entry: str) -> _Allowed:
        host, port = entry.strip().lower(), None
        if match := _WITH_PORT.fullmatch(host):
            host, port = match["host"], int(match["port"])
        host = host.removeprefix("[").removesuffix("]")
        try:
            return cls(host, ipaddress.ip_network(host), port)
        except ValueError:
            if not _NAME.fullmatch(host) or _NUMERIC.search(host):
                raise InputError(
                    f"allow_private: {entry!r} is no host or network; write it like wiki.intern, 10.1.0.0/16 or 127.0.0.1:8080"
                ) from None
            return cls(host, None, port)

    def holds(self, host: str, address: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is None:
            return host.lower().removesuffix(".") == self.host.removesuffix(".")
        parsed = _unwrapped(address)
        return parsed is not None and parsed in self.network


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks all its addresses, and connects to one of them.

    DNS rebinding has no effect: the name is not resolved again. TLS and the Host header still use the name.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._backend = httpcore.AnyIOBackend()

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
        *others, last = addresses[:_ATTEMPTS]
        share = None if timeout is None else timeout / (len(others) + 1)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._backend.connect_tcp(address, port, share, local_address, socket_options)
        return await self._backend.connect_tcp(last, port, share, local_address, socket_options)


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Sends requests over connections of a `GuardedBackend`; a proxy of the environment is not used."""

    def __init__(self, guard: Guard, ssl_context: ssl.SSLContext) -> None:
        super().__init__(verify=ssl_context, trust_env=False)
        # httpx has no argument for the network backend. If a release renames its pool, nothing may be sent unguarded.
        if not isinstance(getattr(self, "_pool", None), httpcore.AsyncConnectionPool):
            raise RuntimeError("this release of httpx is not supported: its connections cannot be guarded")
        self._guard = guard
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context, network_backend=GuardedBackend(guard), max_connections=64, keepalive_expiry=5.0
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._guard.check_url(request.url)
        return await super().handle_async_request(request)
