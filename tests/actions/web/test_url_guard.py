"""What the guard lets through: no connection to a forbidden address is ever made, however it is written or reached."""

from __future__ import annotations

import asyncio
from typing import Any

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.actions.web.fetch import Fetcher, FetchLimits, PageError
from langgraph_convcoa.actions.web.url_guard import BlockedURLError, Guard, is_public, never_holds_pages, resolve
from langgraph_convcoa.errors import InputError
from tests.actions.web.site import Canary, Served, Site, article

PUBLIC = "93.184.215.14"
NAMES = {
    "public.test": [PUBLIC], "private.test": ["10.0.0.1"], "loopback.test": ["127.0.0.1"], "localhost": ["127.0.0.1"],
    "localhost.": ["127.0.0.1"], "six.test": ["::1"], "mixed.test": [PUBLIC, "127.0.0.1"], "mapped.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"], "zone.test": ["fe80::1%lo"], "metadata.test": ["169.254.169.254"], "nowhere.test": [],
}  # fmt: skip

ADDRESSES = [
    "http://127.0.0.1:{port}/", "http://127.0.0.1:{port}/secret?x=http://public.test", "http://127.1:{port}/",
    "http://127.0.1:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/", "http://2130706433:{port}/",
    "http://0x7f000001:{port}/", "http://0x7f.0.0.1:{port}/", "http://0x7F.1:{port}/", "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/", "http://127.0.0.1.:{port}/", "http://127.0.0.01:{port}/", "http://[::1]:{port}/",
    "http://[::]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/", "http://[::127.0.0.1]:{port}/", "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/", "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2a00::5efe:7f00:1]/", "http://[fe80::1]/", "http://[fe80::1%25lo]:{port}/", "http://[fc00::1]/",
    "http://[fec0::1]/", "http://[fd00:ec2::254]/latest/meta-data/", "http://[ff02::1]/",
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://2852039166/", "http://10.0.0.1/",
    "http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://100.100.100.200/", "http://168.63.129.16/",
    "http://192.0.0.192/", "http://198.18.0.1/", "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/",
    "http://localhost:{port}/", "http://LOCALHOST:{port}/", "http://localhost.:{port}/", "http://loopback.test:{port}/",
    "http://private.test/", "http://six.test:{port}/", "http://mixed.test:{port}/", "http://mapped.test:{port}/",
    "http://nat64.test/", "http://zone.test/", "http://metadata.test/", "https://loopback.test:{port}/",
    "http://public.test@127.0.0.1:{port}/", "http://127.0.0.1:{port}@public.test/", "http://user:password@public.test/",
    "http://127.0.0.1:{port}\\@public.test/", "http://public.test\\@127.0.0.1:{port}/", "http://%31%32%37.0.0.1:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/", "http://127。0。0。1:{port}/", "http://127.0.0.1:{port}\t/",
    "http://127.0.0.1%00.public.test:{port}/", "http://public.test:22/", "http://public.test:{port}/", "http://public.test:0/",
    "http://public.test:99999/", "file:///etc/passwd", "ftp://public.test/a", "gopher://127.0.0.1:{port}/_GET",
    "data:text/html,hello", "javascript:alert(1)", "unix:///run/docker.sock", "//127.0.0.1:{port}/", "127.0.0.1:{port}", "",
    "http://", "http:///secret", "http://[::1", "http://" + "a" * 300 + ".test/", "http://public.test/" + "a" * 3_000,
]  # fmt: skip

REDIRECTS = [
    "http://127.0.0.1:{port}/secret", "http://localhost:{port}/secret", "//127.0.0.1:{port}/secret",
    "http://[::1]:{port}/secret", "http://[::ffff:127.0.0.1]:{port}/secret", "http://2130706433:{port}/secret",
    "http://0x7f.1:{port}/secret", "http://169.254.169.254/latest/meta-data/", "http://private.test/",
    "http://loopback.test:{port}/secret", "http://public.test@127.0.0.1:{port}/secret", "https://127.0.0.1:{port}/secret",
    "file:///etc/passwd", "http://[broken", "http://127.0.0.1:{port}\r\nX: y",
]  # fmt: skip


class Connections:
    """Every connection that is asked for; those to loopback are made, so that the canary sees them, the others fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, int]] = []
        connect = httpcore.AnyIOBackend.connect_tcp

        async def record(backend: Any, host: str, port: int, *arguments: Any, **options: Any) -> Any:
            self.asked.append((host, port))
            if host in ("127.0.0.1", "::1"):
                return await connect(backend, host, port, *arguments, **options)
            raise httpcore.ConnectError("no network in a test")

        monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", record)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


async def names(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise OSError(f"{host} is unknown")
    return NAMES[host]


def read(guard: Guard, url: str, **settings: Any) -> Any:
    settings = {"respect_robots": False, **settings}

    async def fetch() -> Any:
        fetcher = Fetcher(guard, FetchLimits(seconds=5, retries=0), **settings)
        async with fetcher.client() as client:
            return await fetcher.fetch(client, url)

    return asyncio.run(fetch())


@pytest.mark.parametrize("url", ADDRESSES)
@pytest.mark.parametrize("robots", [False, True], ids=["page", "robots.txt first"])
def test_a_forbidden_address_is_never_connected_to(url: str, robots: bool, canary: Canary, connections: Connections) -> None:
    with pytest.raises(BlockedURLError) as caught:
        read(Guard(resolver=names), url.format(port=canary.port), respect_robots=robots)
    assert connections.asked == []
    assert canary.reached == 0
    assert "\n" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value), "the message must not tell where a name leads"


@pytest.mark.parametrize("target", REDIRECTS)
@pytest.mark.parametrize("path", ["/moved", "/robots.txt"])
def test_a_redirect_to_a_forbidden_address_is_not_followed(
    target: str, path: str, canary: Canary, connections: Connections
) -> None:
    place = target.format(port=canary.port)
    served = Served(status=302, headers={"Location": place.replace("\r\n", "\r\n ")})
    with Site({path: served, "/page": Served(article("Page", "Text."))}) as site:

        async def resolver(host: str, port: int) -> list[str]:
            return ["127.0.0.1"] if host == "site.test" else await names(host, port)

        guard = Guard((f"127.0.0.1:{site.port}",), resolver=resolver)
        page = site.url("/page" if path == "/robots.txt" else path)
        with pytest.raises((BlockedURLError, PageError)):
            read(guard, page, respect_robots=path == "/robots.txt")
        assert set(connections.asked) == {("127.0.0.1", site.port)}
        assert site.asked[path] == 1
        assert site.asked["/page"] == 0
    assert canary.reached == 0


def test_the_canary_can_be_reached_when_it_is_allowed(canary: Canary, connections: Connections) -> None:
    """The tests above would notice a connection."""
    with Canary() as other:
        page = read(Guard(True, resolver=names), f"http://loopback.test:{other.port}/")
        assert page.body == b"secret"
        assert other.reached == 1
        assert connections.asked == [("127.0.0.1", other.port)]


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://[fe80::1]/", "http://0.0.0.0/", "http://metadata.test/", "http://[::]/"]
)
def test_link_local_and_metadata_addresses_are_refused_even_where_private_ones_are_allowed(
    url: str, connections: Connections
) -> None:
    with pytest.raises(BlockedURLError):
        read(Guard(True, resolver=names), url)
    assert connections.asked == []


def test_a_name_that_changes_its_address_gains_nothing(canary: Canary, connections: Connections) -> None:
    answers = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    asked = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    async def fetch() -> None:
        fetcher = Fetcher(Guard(resolver=rebinding), FetchLimits(seconds=5, retries=1), respect_robots=False)
        async with fetcher.client() as client:
            await fetcher.fetch(client, "http://rebinding.test/")

    # The first connection goes to the address that was checked; the second look-up is checked anew, and refused.
    with pytest.raises(BlockedURLError):
        asyncio.run(fetch())
    assert connections.asked == [(PUBLIC, 80)]
    assert asked == ["rebinding.test"] * 2
    assert canary.reached == 0


def test_the_site_still_sees_its_name(connections: Connections) -> None:
    with Site({"/": Served(article("Page", "Text."))}) as site:
        read(site.guard(), site.url("/", "wiki.test"))
        assert site.headers[0]["Host"] == f"wiki.test:{site.port}"
        assert "langgraph-convcoa" in site.headers[0]["User-Agent"]


def test_the_certificate_is_checked_against_the_name_and_not_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    class Stream(httpcore.AsyncMockStream):
        async def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
            seen.append(server_hostname)
            assert ssl_context.check_hostname
            return self

    class Backend(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, host: str, *arguments: Any, **options: Any) -> Any:
            seen.append(host)
            return Stream([b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"])

    monkeypatch.setattr(httpcore, "AnyIOBackend", Backend)
    assert read(Guard(resolver=names), "https://public.test/").body == b"hi"
    assert seen == [PUBLIC, "public.test"]


def test_a_proxy_of_the_environment_is_not_used(
    canary: Canary, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    with pytest.raises(PageError, match="connection failed"):
        read(Guard(resolver=names), "http://public.test/")
    assert connections.asked == [(PUBLIC, 80)]
    assert canary.reached == 0


def test_hosts_and_networks_can_be_allowed_one_by_one(connections: Connections) -> None:
    with Site({"/": Served(article("Page", "Text."))}) as site:
        for entry in (f"127.0.0.1:{site.port}", "127.0.0.0/8", "127.0.0.1", "loopback.test", f"LOOPBACK.test:{site.port}"):
            assert read(Guard((entry,), resolver=names), f"http://loopback.test:{site.port}/").body
        connections.asked.clear()
        for entry in ("127.0.0.1:1", "10.0.0.0/8", "other.test", f"other.test:{site.port}"):
            with pytest.raises(BlockedURLError):
                read(Guard((entry,), resolver=names), f"http://loopback.test:{site.port}/")
    assert connections.asked == []


@pytest.mark.parametrize("entry", ["", "http://wiki.intern", "2130706433", "a b", "127.0.0.1/8/9", "wiki.intern:port"])
def test_an_entry_that_is_no_host_is_told(entry: str) -> None:
    with pytest.raises(InputError, match="no host or network"):
        Guard((entry,))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_however_it_is_wrapped(address: Any) -> None:
    public = is_public(address)
    assert public == is_public(f"::ffff:{address}") == is_public(f"64:ff9b::{address}")
    assert not is_public(f"2002:{int(address) >> 16:x}:{int(address) & 0xFFFF:x}::1")
    assert not is_public(f"::{address}")
    assert not public or (address.is_global and not address.is_multicast and not never_holds_pages(address))


@given(st.integers(0, 2**32 - 1))
def test_a_number_is_no_host(number: int) -> None:
    for form in (str(number), hex(number), f"0{number:o}", f"{number >> 24}.{number & 0xFFFFFF}"):
        with pytest.raises(BlockedURLError):
            Guard().check_url(f"http://{form}/")


async def test_the_system_resolver_gives_addresses() -> None:
    assert "127.0.0.1" in await resolve("localhost", 80)


def test_public_pages_pass() -> None:
    for url in (
        "https://example.org/",
        "http://93.184.215.14/a?b=c#d",
        "https://sub.example.co.uk:443/ä",
        "https://münchen.de/",
    ):
        assert Guard().check_url(url).scheme in ("http", "https")
    assert httpx.URL(Guard().check_url("https://example.org/a#b")).fragment == ""
