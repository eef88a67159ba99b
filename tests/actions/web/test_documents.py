"""Pages and sitemaps as documents, read from a site on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.actions.web.documents import LIMITS, iter_pages
from langgraph_convcoa.errors import DocumentError, InputError
from tests.actions.web.site import Canary, Served, Site, article
from tests.data import pdf_bytes

pytest.importorskip("trafilatura")


def listing(*addresses: str, index: bool = False) -> str:
    kind, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    entries = "".join(f"<{inner}><loc>{address}</loc><lastmod>2024-01-01</lastmod></{inner}>" for address in addresses)
    return f'<?xml version="1.0"?><{kind} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</{kind}>'


def sitemap(*addresses: str, index: bool = False) -> Served:
    return Served(listing(*addresses, index=index), kind="text/xml")


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as running:
        running.pages |= {
            "/robots.txt": Served("User-agent: *\nDisallow: /private\n", kind="text/plain"),
            **{f"/{n}": Served(article(f"Page {n}", f"The bridge number {n} is long and red.")) for n in range(1, 6)},
            "/private": Served(article("Private", "This is nobody's business.")),
            "/paper.pdf": Served(pdf_bytes("A span of 214 metres."), kind="application/pdf"),
            "/moved": Served(status=301, headers={"Location": "/1"}),
            "/data.xml": Served("<a>no page</a>", kind="text/xml"),
            "/error": Served("broken", status=404),
            "/sitemap.xml": sitemap(*(running.url(f"/{n}") for n in range(1, 6))),
        }
        yield running


def pages(site: Site, path: str, **options: Any) -> tuple[list[Document], dict[str, str]]:
    told: dict[str, str] = {}
    options = {"guard": site.guard(), "told": told.__setitem__, **options}
    found = list(iter_pages(site.url(path), **options))
    return found, {address.replace(site.url("/"), "/"): reason for address, reason in told.items()}


def test_a_page_is_a_document_under_its_address(site: Site) -> None:
    site.pages["/1"] = Served(article("The bridge", "It was opened in 1931.", date="2021-05-12"))
    (page,), told = pages(site, "/moved")
    assert page.id == site.url("/1")
    assert page.metadata == {"source": site.url("/1"), "title": "The bridge", "date": "2021-05-12"}
    assert "It was opened in 1931." in page.page_content
    assert told == {}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/error", "the site answered with status 404"), ("/private", "robots.txt"), ("/data.xml", "is no sitemap"),
        ("/none.xml", "status 404"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_an_error_that_says_why(site: Site, path: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        pages(site, path)


def test_a_sitemap_lists_pages_of_its_own_host_and_of_sitemaps_within(site: Site) -> None:
    packed = gzip.compress(
        listing(site.url("/3"), f"<![CDATA[ {site.url('/moved')} ]]>", site.url("/paper.pdf?a=1&amp;b=2")).encode()
    )
    first = listing(
        site.url("/1"),
        site.url("/1"),
        "http://elsewhere.test/x",
        "javascript:alert(1)",
        site.url("/private"),
        site.url("/error"),
    )
    site.pages |= {
        "/sitemap.xml": Served(
            listing(site.url("/a.xml"), site.url("/b.xml.gz"), site.url("/lost.xml"), index=True), kind="application/xml"
        ),
        "/a.xml": Served(first, kind="text/xml"),
        "/b.xml.gz": Served(packed, kind="application/x-gzip"),
    }
    found, told = pages(site, "/sitemap.xml")
    # What moved is what is there already.
    assert [page.id for page in found] == [site.url("/1"), site.url("/3"), site.url("/paper.pdf?a=1&b=2")]
    assert "214" in found[2].page_content
    assert set(told) == {"/private", "/error", "/lost.xml", "/sitemap.xml"}
    assert told["/sitemap.xml"] == "lists 2 addresses of other hosts, which are not read"
    assert "robots.txt" in told["/private"]
    assert site.most_running[f"site.test:{site.port}"] <= LIMITS.per_host


def test_pages_are_counted_bounded_and_never_beyond_the_most(site: Site) -> None:
    seen: list[tuple[int, int]] = []
    found, told = pages(site, "/sitemap.xml", most=3, progress=lambda done, total: seen.append((done, total)))
    assert [page.metadata["title"] for page in found] == ["Page 1", "Page 2", "Page 3"]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert "the first 3 are read" in told["/sitemap.xml"]
    assert not any(site.asked[f"/{n}"] for n in (4, 5))
    with pytest.raises(DocumentError, match="more than 5e-05 MB of text"):
        pages(site, "/sitemap.xml", max_bytes=50)
    with pytest.raises(InputError, match="at least 1 page"):
        pages(site, "/sitemap.xml", most=0)


def test_what_was_read_before_a_stop_is_not_asked_for_again(site: Site, tmp_path: Path) -> None:
    reading = iter_pages(site.url("/sitemap.xml"), guard=site.guard(), cache=tmp_path / "web.sqlite")
    assert next(reading).metadata["title"] == "Page 1"
    reading.close()
    found, _ = pages(site, "/sitemap.xml", cache=tmp_path / "web.sqlite")
    assert [page.metadata["title"] for page in found] == [f"Page {n}" for n in range(1, 6)]
    assert {site.asked[f"/{n}"] for n in range(1, 6)} == {1}


def test_nothing_forbidden_is_reached_through_a_sitemap(site: Site) -> None:
    with Canary() as canary:
        inside = f"http://127.0.0.1:{canary.port}/secret"
        site.pages |= {
            "/hop": Served(status=302, headers={"Location": inside}),
            "/metadata": Served(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data/"}),
            "/away": Served(status=302, headers={"Location": f"http://other.test:{site.port}/2"}),
            "/sitemap.xml": sitemap(
                *(inside, "file:///etc/passwd", "http://169.254.169.254/", f"http://user:pw@site.test:{site.port}/1"),
                *(site.url(path) for path in ("/hop", "/metadata", "/away", "/2")),
            ),
            "/index.xml": sitemap(inside, site.url("/hop"), site.url("/sitemap.xml"), index=True),
        }
        for path in ("/sitemap.xml", "/index.xml"):
            found, told = pages(site, path)
            assert [page.id for page in found] == [site.url("/2")]
            assert "private or local network" in told["/hop"]
            assert "private or local network" in told["/metadata"]
            assert told["/away"] == "leads to another site"
        with pytest.raises(DocumentError, match="private or local network"):
            pages(site, "/hop")
        assert canary.reached == 0


def test_a_sitemap_is_no_bomb(site: Site) -> None:
    entities = '<!DOCTYPE u [<!ENTITY a "aaaaaaaaaaaaaaaa">]>' + listing(site.url("/&a;&a;"), site.url("/1"))
    site.pages |= {
        "/bomb.xml.gz": Served(gzip.compress(b"<urlset>" + bytes(60_000_000), 9), kind="application/gzip"),
        "/entities.xml": Served(entities, kind="text/xml"),
        "/loop.xml": sitemap(site.url("/loop.xml"), index=True),
        "/open.xml": Served("<urlset>" + "<loc>" * 200_000, kind="text/xml"),
    }
    with pytest.raises(DocumentError, match="larger than 20 MB"):
        pages(site, "/bomb.xml.gz")
    found, _ = pages(site, "/entities.xml")
    assert [page.id for page in found] == [site.url("/1")]
    for path in ("/loop.xml", "/open.xml"):
        with pytest.raises(DocumentError, match=r"no page of .* could be read"):
            pages(site, path)
    assert site.asked["/loop.xml"] == 1
