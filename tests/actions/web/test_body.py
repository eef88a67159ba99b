"""Bodies within limits, and the wait before asking again."""

from __future__ import annotations

import gzip
import tracemalloc

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.actions.web.fetch import BodyDecoder, PageError, wait_before


def decoded(encoding: str, data: bytes, limit: int = 10_000_000, step: int = 1_000) -> bytes:
    decoder = BodyDecoder(encoding, limit)
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
    return bytes(decoder.body)


@given(st.binary(max_size=3_000), st.integers(1, 500))
def test_every_encoding_is_undone_in_whatever_pieces_it_comes(data: bytes, step: int) -> None:
    for encoding, sent in (("", data), ("identity", data), ("gzip", gzip.compress(data)), ("x-gzip", gzip.compress(data))):
        assert decoded(encoding, sent, step=step) == data
    assert decoded("gzip", gzip.compress(data) + gzip.compress(b"more"), step=step) == data + b"more"


def test_a_bomb_is_stopped_at_the_limit_and_not_after_it() -> None:
    bomb = gzip.compress(bytes(50_000_000), 9)
    tracemalloc.start()
    try:
        with pytest.raises(PageError, match="larger than 5 MB"):
            decoded("gzip", bomb, 5_000_000, step=len(bomb))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_a_body_that_grows_too_much_is_refused_below_the_limit_too() -> None:
    with pytest.raises(PageError, match="grows more than 100 times"):
        decoded("gzip", gzip.compress(bytes(3_000_000), 9), 50_000_000)
    page = b"".join(b"<p>Paragraph %d of a page.</p>" % n for n in range(50_000))
    assert decoded("gzip", gzip.compress(page)) == page


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "compress", "x"])
def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(PageError, match="not asked for"):
        BodyDecoder(encoding, 100)


def test_damage_is_told() -> None:
    with pytest.raises(PageError, match="damaged"):
        decoded("gzip", b"\x1f\x8b\x08damaged beyond repair" * 3)


def test_the_wait_grows_and_is_what_the_server_asks_for() -> None:
    assert [wait_before(n) for n in range(3)] == [0.5, 1.0, 2.0]
    for value, low, high in (("3", 3, 3), ("soon", 0.5, 0.5), ("-5", 0.5, 0.5), ("9" * 400, 1e8, 1e9)):
        assert low <= wait_before(0, httpx.Response(429, headers={"Retry-After": value})) <= high
