"""The guard checks every request (host, origin, user, type and size of the body) and sets the headers of every response."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.server.runs import error_json, to_json
from langgraph_convcoa.server.upload_limits import UPLOAD_BYTES

USER = "convcoa_user"  # Key of the user in a request's scope; "" is the anonymous user.
COOKIE = "convcoa_session"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16
MOST_JSON = 4_000_000  # Maximum number of bytes of a request's JSON.
WRONG_TOKEN_SECONDS = 0.5
_SAFE = ("GET", "HEAD", "OPTIONS")
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
    # Not even the page's own script can turn a text into HTML.
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
# With a sandbox, the browser would not show a PDF.
_PDF_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_OPEN = ("/", "/ok", "/convcoa/login", "/favicon.ico")  # Paths that need no token. The page asks the user for it.
_STATIC = "/static/"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\s\[\]/\\@?#,%:]{1,255}))(?::(\d{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"https?://[^\s/?#@*]+")


@dataclass(frozen=True)
class Access:
    """Who may reach the server, and under which names."""

    host: str = "127.0.0.1"  # The address that the server listens on.
    token: str = ""  # The token that every request must carry; "" if no token is needed.
    user_header: str = ""  # The header in which a reverse proxy names the user.
    proxies: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()  # The header is accepted from these addresses.
    names: frozenset[str] = frozenset()  # Host names of the server besides localhost, as browsers write them.
    origins: frozenset[str] = frozenset()  # Other origins whose pages may call the server, such as the URL of agent-chat-ui.
    max_upload: int = UPLOAD_BYTES  # The maximum number of bytes of an upload request.
    session: str = field(init=False, default="")  # Value of the cookie of a browser that logged in with the token.

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token and not self.user_header:
            raise InputError(
                f"on {self.host} others can reach the server: set CONVCOA_TOKEN to a long random text, or let a reverse proxy "
                "name the user (--user-header and --trusted-proxy); without either, only --host 127.0.0.1 is served"
            )
        if self.token and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii() or " " in self.token):
            raise InputError(
                f"the token must have at least {SHORTEST_TOKEN} ASCII characters without spaces: "
                'make one with python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        if bool(self.user_header) != bool(self.proxies):
            raise InputError("--user-header and --trusted-proxy go together: the header is believed from that address only")
        for own in self.names:
            if not _NAME.fullmatch(own) and _address(own) is None:
                raise InputError(f"--allow-host takes a name without a port or a path, as chat.example.org, not {own[:100]!r}")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InputError(
                    f"--allow-origin takes an address without a path, as https://chat.example.org, not {origin[:100]!r}"
                )
        object.__setattr__(self, "session", hmac.new(self.token.encode(), b"convcoa session", hashlib.sha256).hexdigest())

    def knows(self, host: str) -> bool:
        """True if a request's Host is a name of this server. An attacker's DNS may point other names to it."""
        name = host_name(host)
        if not name:
            return False
        if name in LOOPBACK or name in self.names or name == self.host.lower():
            return True
        # An IP address cannot be faked by DNS.
        return not is_loopback(self.host) and _address(name) is not None

    def holds(self, given: str) -> bool:
        """True if this is the token, compared in constant time."""
        return bool(self.token) and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def user(self, headers: Headers, client: str, cookie: str) -> str | None:
        """The authenticated user, "" for the anonymous user, or None if the request may not pass."""
        if self.user_header:
            named = headers.getlist(self.user_header)
            address = _address(client)
            by_proxy = address is not None and any(address in network for network in self.proxies)
            if by_proxy and len(named) == 1 and 0 < len(named[0].strip()) <= 200:
                return named[0].strip()
            if not self.token:
                return None
        if not self.token:
            return ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if given:
            return "" if self.holds(given) else None
        return "" if cookie and hmac.compare_digest(cookie.encode("utf-8", "replace"), self.session.encode()) else None


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The name as an IP address; None if it is not an address."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def host_name(host: str) -> str:
    """The name in a Host header, in lower case and without its port; "" if it is malformed."""
    found = _HOST.fullmatch(host)
    if found is None or int(found[3] or 0) > 65_535 or (found[1] and _address(found[1]) is None):
        return ""
    return str(found[1] or found[2]).lower().rstrip(".")


class Guard:
    """ASGI middleware: the application behind it sees only requests that passed the checks."""

    def __init__(self, app: ASGIApp, access: Access, service: Any = None) -> None:
        self.app, self.access, self.service = app, access, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        path = scope["path"]
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._secure(MutableHeaders(scope=message), headers, path)
            await send(message)

        try:
            if (preflight := self._checked(scope, headers)) is not None:
                await preflight(scope, receive, send_guarded)
                return
            if scope[USER] is None:
                if headers.get("authorization") or headers.get("x-api-key"):
                    await asyncio.sleep(WRONG_TOKEN_SECONDS)
                raise HTTPException(401, "a token is needed, or it is wrong: log in")
            await self.app(scope, self._limited(receive, headers), send_guarded)
        except HTTPException as refused:
            if not started:
                await answer(refused.status_code, refused.detail)(scope, receive, send_guarded)
        except Exception as error:  # noqa: BLE001 - no traceback reaches a client, and the server goes on
            if not started:
                await answer(500, error_json(error)["message"])(scope, receive, send_guarded)

    def _checked(self, scope: Scope, headers: Headers) -> Response | None:
        """Check a request, and set its user in the scope. Returns a response only for a CORS preflight."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.access.knows(hosts[0]):
            raise HTTPException(421, "this server is not known under that name: see --allow-host")
        origins = headers.getlist("origin")
        foreign = bool(origins) and (len(origins) > 1 or not _same(origins[0], hosts[0]))
        allowed = foreign and len(origins) == 1 and origins[0] in self.access.origins
        if foreign and not allowed:
            raise HTTPException(403, "a page of another origin may not ask this server: see --allow-origin")
        path, method = scope["path"], scope["method"]
        site = headers.get("sec-fetch-site", "none")
        public = path == "/" or path.startswith(_STATIC)
        if site not in ("same-origin", "none") and not allowed and not (public and method in _SAFE):
            raise HTTPException(403, "a page of another site may not ask this server")
        if method == "OPTIONS" and allowed:
            return Response(status_code=204)
        client = (scope.get("client") or ("", 0))[0]
        user = self.access.user(headers, client, cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
        scope[USER] = "" if user is None and (path in _OPEN or path.startswith(_STATIC)) else user
        length = headers.get("content-length", "0")
        size = int(length) if length.isascii() and length.isdecimal() else 0
        if method not in _SAFE and (size > 0 or "transfer-encoding" in headers or "content-type" in headers):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != ("multipart/form-data" if path.endswith("/files") else "application/json"):
                raise HTTPException(415, "send application/json, or files as multipart/form-data")
        limit, too_large = self._limit(headers)
        if size > limit:
            raise too_large
        return None

    def _limit(self, headers: Headers) -> tuple[int, HTTPException]:
        """The maximum number of bytes of a request's body, and the error for a longer body."""
        upload = headers.get("content-type", "").lower().startswith("multipart/")
        limit, option = (self.access.max_upload, " (--max-upload-mb)") if upload else (MOST_JSON, "")
        text = f"that is more than the {limit / 1e6:g} MB that this server takes at once{option}: send less"
        return limit, HTTPException(413, text)

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        left, too_large = self._limit(headers)

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise too_large
            return message

        return limited

    def _secure(self, response: MutableHeaders, request: Headers, path: str) -> None:
        response.update(_HEADERS)
        kind = response.get("content-type", "").partition(";")[0]
        policies = {"text/html": PAGE_POLICY, "application/pdf": _PDF_POLICY}
        response["content-security-policy"] = policies.get(kind, _DATA_POLICY)
        response["cache-control"] = "no-cache" if path == "/" or path.startswith(_STATIC) else "no-store"
        origin = request.get("origin", "")
        if origin in self.access.origins:
            response["access-control-allow-origin"] = origin
            response["access-control-allow-methods"] = "GET, POST, PATCH, DELETE"
            response["access-control-allow-headers"] = "content-type, authorization, x-api-key, last-event-id"
            response["access-control-expose-headers"] = "location, content-location"
            response["cross-origin-resource-policy"] = "cross-origin"
            response.add_vary_header("Origin")


def answer(status: int, detail: str) -> Response:
    """The response for an error, as JSON."""
    return Response(to_json({"detail": detail}), status, media_type="application/json")


def _same(origin: str, host: str) -> bool:
    """True if an origin has this host. The scheme may differ, because a proxy in front may use TLS."""
    try:
        parts = urlsplit(origin)
        name, port = host_name(parts.netloc), parts.port
        own = urlsplit(f"//{host}").port
    except ValueError:
        return False
    standard = {"http": 80, "https": 443}.get(parts.scheme)
    return standard is not None and bool(name) and name == host_name(host) and (port or standard) == (own or standard)
