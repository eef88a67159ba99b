"""Reading of a response's body within limits, compressed or not, and the wait before a request is repeated."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from langgraph_convcoa.errors import RetrievalError

RETRIED = frozenset({429, 500, 502, 503, 504})
"""Statuses after which asking again may help."""
_FIRST_WAIT = 0.5
_UNSUSPECTED = 500_000
_MAX_RATIO = 100
"""A body over so many bytes that is so many times its compressed size is no page."""


class PageError(RetrievalError):
    """A page cannot be read, with the reason."""


async def read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The decoded body; at most `max_bytes` of it are ever held.

    Raises:
        PageError: It is larger, compressed in an unknown way, or a decompression bomb.
        httpx.TransportError: The connection broke.
    """
    declared = (response.headers.get("content-length") or "").strip()
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    decoder = BodyDecoder(response.headers.get("content-encoding", ""), max_bytes)
    async for chunk in response.aiter_raw(65_536):
        decoder.feed(chunk)
    return bytes(decoder.body)


class BodyDecoder:
    """Undoes gzip or deflate piece by piece, and stops at a limit rather than after it.

    Args:
        encoding: The `Content-Encoding`.
        max_bytes: How many bytes a body may have, before and after decoding.

    Raises:
        PageError: The encoding is none of gzip, deflate and identity; and from `feed`.

    Example:
        >>> decoder = BodyDecoder("gzip", 1_000)
        >>> decoder.feed(zlib.compress(b"Sparsemax", wbits=31))
        >>> bytes(decoder.body)
        b'Sparsemax'
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise PageError("the page is compressed in a way that was not asked for")
        self.body = bytearray()
        self._max_bytes = max_bytes
        self._received = 0
        self._encoding = encoding
        self._inflater = None if encoding in ("", "identity") else zlib.decompressobj(wbits=47)

    def feed(self, data: bytes) -> None:
        """Take a piece of the body as it was sent."""
        self._received += len(data)
        if self._received > self._max_bytes:
            raise _too_large(self._max_bytes)
        if self._inflater is None:
            self._add(data)
            return
        while data:
            try:
                self._add(self._inflater.decompress(data, self._max_bytes - len(self.body) + 1))
            except zlib.error as error:
                # Some servers send deflate without its header.
                if self._encoding != "deflate" or self.body or self._received > len(data):
                    raise PageError("the page's compression is damaged") from error
                self._encoding, self._inflater = "raw", zlib.decompressobj(wbits=-15)
                continue
            data = self._inflater.unused_data if self._encoding == "gzip" else b""
            if data:
                self._inflater = zlib.decompressobj(wbits=47)

    def _add(self, piece: bytes) -> None:
        self.body += piece
        if len(self.body) > self._max_bytes:
            raise _too_large(self._max_bytes)
        if len(self.body) > max(_UNSUSPECTED, _MAX_RATIO * self._received):
            raise PageError(f"the page grows more than {_MAX_RATIO} times when it is decompressed")


def wait_before(attempt: int, response: httpx.Response | None = None) -> float:
    """Seconds before the next attempt: as the server asks, else twice as long each time.

    Args:
        attempt: 0 after the first one.
        response: The server's, if it answered.

    Example:
        >>> wait_before(1), wait_before(0, httpx.Response(429, headers={"Retry-After": "7"}))
        (1.0, 7.0)
    """
    own = _FIRST_WAIT * float(2**attempt)
    said = (response.headers.get("retry-after") or "").strip() if response is not None else ""
    if said.isdecimal():
        return max(own, float(said[:9]))
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return own
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(own, (until - datetime.now(UTC)).total_seconds())


def _too_large(max_bytes: int) -> PageError:
    return PageError(f"the page is larger than {max_bytes / 1e6:g} MB")
