"""Reading pages over a real server: retries, politeness, robots.txt, types."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from langgraph_convcoa.actions.web.fetch import Fetcher, FetchLimits, PageError, RawPage
from langgraph_convcoa.actions.web.url_guard import Guard
from langgraph_convcoa.errors import InputError, RetrievalError
from tests.actions.web.site import Served, Site
from tests.bounds import SECONDS

PAGE = Served("<p>Hello.</p>")


async def fetch(site: Site, *urls: str, limits: FetchLimits | None = None, **settings: Any) -> list[RawPage | BaseException]:
    fetcher = Fetcher(site.guard(), limits or FetchLimits(seconds=SECONDS), **settings)
    async with fetcher.client() as client:
        return await asyncio.gather(*(fetcher.fetch(client, url) for url in urls), return_exceptions=True)


async def test_a_page_comes_with_its_address_after_redirects_and_its_type() -> None:
    moved = Served(status=308, headers={"Location": "b?x=1#part"})
    with Site({"/a/a": moved, "/a/b": Served("hi", kind="text/plain; charset=koi8-r")}) as site:
        (page,) = await fetch(site, site.url("/a/a"))
        assert page == RawPage(site.url("/a/b?x=1"), "text/plain", "koi8-r", b"hi")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_busy_site_is_asked_again(status: int) -> None:
    with Site({"/": Served("<p>Hello.</p>", first_status=status)}) as site:
        (page,) = await fetch(site, site.url("/"))
        assert isinstance(page, RawPage)
        assert site.asked["/"] == 2


async def test_a_site_that_stays_broken_or_asks_for_a_long_wait_is_asked_so_often_and_no_more() -> None:
    wait = Served(status=429, headers={"Retry-After": "3600"})
    with Site({"/": Served(status=500), "/gone": Served(status=404), "/cut": Served(drop=True), "/wait": wait}) as site:
        paths = ["/", "/gone", "/cut", "/wait"]
        told = await fetch(site, *map(site.url, paths), limits=FetchLimits(seconds=SECONDS, retries=1))
        for reason, failure in zip(("status 500", "status 404", "connection failed", "status 429"), told, strict=True):
            assert reason in str(failure)
        assert [site.asked[path] for path in paths] == [2, 1, 2, 1]


async def test_a_host_gets_few_requests_at_a_time_and_others_are_not_held_up() -> None:
    three = {host: threading.Barrier(3, timeout=SECONDS) for host in ("a.test", "b.test")}
    with Site({"/": Served("<p>Hello.</p>", wait=lambda host: three[host.partition(":")[0]].wait())}) as site:
        urls = [site.url("/", host) for host in three for _ in range(6)]
        pages = await fetch(site, *urls, limits=FetchLimits(seconds=SECONDS, per_host=3), respect_robots=False)
        assert all(isinstance(page, RawPage) for page in pages)
        assert dict(site.most_running) == {f"a.test:{site.port}": 3, f"b.test:{site.port}": 3}


async def test_waiting_for_a_place_does_not_count_as_the_pages_time() -> None:
    slow = {f"/slow{n}": Served("late", delay=10) for n in range(2)}
    with Site({**slow, "/": PAGE}) as site:
        urls = [*(site.url(path) for path in slow), site.url("/")]
        *late, page = await fetch(site, *urls, limits=FetchLimits(seconds=2, per_host=2, retries=0), respect_robots=False)
        assert all("longer than 2 s" in str(failure) for failure in late)
        assert isinstance(page, RawPage)


ROBOTS = "User-agent: *\nDisallow: /no\n\nUser-agent: langgraph-convcoa\nDisallow: /never\n"


@pytest.mark.parametrize(
    ("robots", "refused"),
    [
        (Served(ROBOTS, kind="text/plain"), {"/never"}),
        (Served("User-agent: *\nDisallow: /", kind="text/plain"), {"/no", "/never", "/yes"}),
        (Served("", kind="text/plain"), set()),
        (Served(status=404), set()),
        (Served(status=403), set()),
        (Served(status=500), {"/no", "/never", "/yes"}),
        (Served(b"x" * 65_536, repeat=20, kind="text/plain"), {"/no", "/never", "/yes"}),
        (Served(b"\xff\xfe\x00nonsense", kind="text/plain"), set()),
    ],
)
async def test_robots_txt_is_read_once_and_followed(robots: Served, refused: set[str]) -> None:
    with Site({"/robots.txt": robots, "/no": PAGE, "/never": PAGE, "/yes": PAGE}) as site:
        paths = ["/no", "/never", "/yes", "/yes"]
        found = await fetch(site, *map(site.url, paths))
        assert {path for path, page in zip(paths, found, strict=True) if isinstance(page, PageError)} == refused
        assert site.asked["/robots.txt"] == 1
        assert not refused & set(site.asked)
        found = await fetch(site, *map(site.url, paths), respect_robots=False)
        assert all(isinstance(page, RawPage) for page in found)
        assert site.asked["/robots.txt"] == 1


@pytest.mark.parametrize("kind", ["image/png", "application/zip", "application/octet-stream", "video/mp4", "application/json"])
async def test_other_types_are_not_downloaded(kind: str) -> None:
    with Site({"/x": Served(b"x" * 65_536, kind=kind, repeat=100)}) as site:
        (failure,) = await fetch(site, site.url("/x"))
        assert kind in str(failure)
        assert site.sent < 6_000_000


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"max_bytes": 0}, {"per_host": 0}, {"retries": -1}, {"redirects": -1}])
def test_limits_out_of_range_are_told(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        FetchLimits(**wrong)  # type: ignore[arg-type]


_PLACES = """
data: data:, data:text/html,x data:text/html;base64,eA== javascript:alert(1) mailto:a@b.c file:///etc/passwd file: ftp://a.org/
about:blank blob:https://a.org/1 tel:1 urn:x:y http: http:// http:/// https: //: // //@ //[ //[::1 //[::g]/ //a:b@c/ //a:99999/
//a:-1/ //a:x/ ?\x00 # http://% http://%00/ http://%zz/ http://xn--/ http://xn--a-/ http://..../ http://a..b/ http://[fe80::1%25eth0]/
http://1.2.3.4.5/ http://0x7f.1/ http://[::]/ http://localhost/ ws://a.org/ HTTP://LOCALHOST http:a.org :// :a
::: ../../.. gopher://a/ dict://a/ ldap://a/ jar:http://a/!/b view-source:http://a/ http://user@/ http://@/ http://?x http://#x
""".split()  # noqa: SIM905


@pytest.mark.parametrize("robots", [False, True])
def test_a_redirect_to_anything_is_an_error_of_the_page(robots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_PLACES) >= 50
    monkeypatch.setattr("langgraph_convcoa.actions.web.fetch._FIRST_WAIT", 0.0)

    async def fetch_each() -> list[str]:
        async def fetched(place: str) -> str:
            moved = httpx.MockTransport(lambda request: httpx.Response(302, headers=[(b"location", place.encode())]))
            fetcher = Fetcher(Guard(), FetchLimits(seconds=5), respect_robots=robots)
            async with httpx.AsyncClient(transport=moved) as client:
                with pytest.raises(RetrievalError) as caught:
                    await fetcher.fetch(client, "https://example.org/a")
            return str(caught.value)

        return [await fetched(place) for place in _PLACES]

    assert [told for told in asyncio.run(fetch_each()) if not told or "\n" in told] == []
