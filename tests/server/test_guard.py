"""Nobody but who may reaches the server: other names, origins and sites, no token, another user's things."""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.server import guard
from langgraph_convcoa.server.guard import Access, host_name
from tests.server.served import PROXY, QUESTION, Served, raw, served

TOKEN = "t0ken-of-a-test-0123456789"
LOCAL = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("closed"), Access(token=TOKEN, max_upload=1_000_000)) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server behind a reverse proxy that names the users, with things of ann's."""
    access = Access(user_header=PROXY, proxies=LOCAL, names=frozenset({"chat.example.org"}), max_upload=1_000_000)
    with served(tmp_path_factory.mktemp("shared"), access) as found:
        yield found


@pytest.fixture(scope="module")
def of_ann(shared: Served) -> dict[str, str]:
    """Ann's thread, run, collection and upload."""
    ann = {PROXY: "ann"}
    thread = shared.thread_id(**ann)
    shared.turn(thread, QUESTION, **ann)
    collection = shared.ask("POST", "/convcoa/collections", json={"name": "Hers"}, headers=ann).json()["id"]
    files = [("files", ("secret.md", b"# Secret\n\nThe secret is xylophone."))]
    job = shared.ask("POST", f"/convcoa/collections/{collection}/files", files=files, headers=ann).json()["job"]
    run = shared.ask("GET", f"/threads/{thread}/runs", headers=ann).json()[0]["run_id"]
    return {"thread": thread, "run": run, "collection": collection, "job": job}


def test_hosts_are_names_of_this_server_whatever_the_port(server: Served) -> None:
    for host in (server.host, "localhost", "LOCALHOST:1", "[::1]:8321", "127.0.0.1"):
        assert server.ask("GET", "/info", headers={"host": host}).status_code == 200, host


OTHER_NAMES = [
    "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.168.1.7", "0.0.0.0", "localhost@evil.example",
    "evil.example#localhost", "localhost:port", "xn--lcalhost-d4a", "127.1", "2130706433", "[::ffff:1.2.3.4]",
]  # fmt: skip


@pytest.mark.parametrize("host", ["", *OTHER_NAMES])
def test_a_name_that_is_not_the_servers_is_misdirected(server: Served, host: str) -> None:
    """As a page of an attacker's would come, whose name was made to mean 127.0.0.1 (DNS rebinding)."""
    answer = raw(server.host, f"GET /threads/count HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b"\r\n")[0].split()[1] in (b"421", b"400")
    assert server.ask("GET", "/", headers={"host": "evil.example"}).status_code == 421


def test_two_hosts_or_none_are_refused(server: Served) -> None:
    for head in ("", f"Host: {server.host}\r\nHost: evil.example\r\n"):
        answer = raw(server.host, f"GET /info HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        assert answer.split()[1] in (b"421", b"400")


FOREIGN = {
    "another origin": {"origin": "http://evil.example"}, "another port of this machine": {"origin": "http://127.0.0.1:1"},
    "an opaque origin": {"origin": "null"}, "an origin that begins alike": {"origin": "http://127.0.0.1.evil.example"},
    "a file": {"origin": "file://"}, "another site": {"sec-fetch-site": "cross-site"},
    "another port as its browser tells it": {"sec-fetch-site": "same-site"},
}  # fmt: skip


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(("method", "path"), [("POST", "/threads"), ("POST", "/runs/wait"), ("GET", "/convcoa/collections")])
def test_a_page_of_another_origin_reaches_nothing(server: Served, headers: dict[str, str], method: str, path: str) -> None:
    before = server.ask("POST", "/threads/count", json={}).json()
    body = {"json": {"input": {"question": QUESTION}}} if method == "POST" else {}
    response = server.ask(method, path, headers=headers, **body)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert server.ask("POST", "/threads/count", json={}).json() == before


def test_the_servers_own_page_is_let_through(server: Served) -> None:
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert server.ask("POST", "/threads", json={}, headers=own).status_code == 200
    # A link from elsewhere opens the page.
    assert server.ask("GET", "/", headers={"sec-fetch-site": "cross-site"}).status_code in (200, 404)


def test_an_origin_that_was_allowed_may_call(tmp_path_factory: pytest.TempPathFactory) -> None:
    access = Access(origins=frozenset({"http://localhost:3000"}))
    with served(tmp_path_factory.mktemp("origins"), access) as server:
        headers = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
        asked = {**headers, "access-control-request-method": "POST"}
        preflight = server.ask("OPTIONS", "/threads", headers=asked)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "http://localhost:3000")
        made = server.ask("POST", "/threads", json={}, headers=headers)
        assert (made.status_code, made.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
        assert server.ask("POST", "/threads", json={}, headers={"origin": "http://localhost:3001"}).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
def test_a_form_of_another_page_cannot_be_what_is_sent(server: Served, kind: str) -> None:
    response = server.ask("POST", "/threads", content=b"{}", headers={"content-type": kind})
    assert response.status_code == 415


ROUTES = [
    ("GET", "/info"), ("POST", "/threads"), ("POST", "/threads/search"), ("GET", "/convcoa/info"), ("POST", "/runs/wait"),
    ("GET", "/convcoa/collections"), ("GET", "/convcoa/passages"), ("POST", "/assistants/search"), ("GET", "/nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": f"Bearer {TOKEN}x"}, {"x-api-key": TOKEN[:-1]}, {"cookie": f"convcoa_session={TOKEN}"}],
    ids=["none", "wrong", "short", "the token as a cookie"],
)
def test_without_the_token_nothing_is_told(
    closed: Served, method: str, path: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "WRONG_TOKEN_SECONDS", 0.0)
    body = {"json": {}} if method == "POST" else {}
    response = closed.ask(method, path, headers=headers, **body)
    assert response.status_code == 401
    assert list(response.json()) == ["detail"]


def test_the_token_opens_in_each_of_its_forms(closed: Served) -> None:
    for headers in ({"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer {TOKEN}"}, {"x-api-key": TOKEN}):
        assert closed.ask("GET", "/info", headers=headers).status_code == 200
    with closed.client() as client:
        assert client.get("/convcoa/info").status_code == 401
        assert client.post("/convcoa/login", json={"token": "wrong"}).status_code == 401
        assert not client.cookies
        response = client.post("/convcoa/login", json={"token": TOKEN})
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/convcoa/info").status_code == 200
        # The page that asks for the token is shown to all.
        assert closed.ask("GET", "/ok").status_code == 200


def of_another(found: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    thread, run, collection, job = (found[name] for name in ("thread", "run", "collection", "job"))
    ask = {"json": {"input": {"question": QUESTION}}}
    return [
        ("GET", f"/threads/{thread}", {}), ("PATCH", f"/threads/{thread}", {"json": {"metadata": {"title": "x"}}}),
        ("DELETE", f"/threads/{thread}", {}), ("GET", f"/threads/{thread}/state", {}),
        ("GET", f"/threads/{thread}/history", {}), ("POST", f"/threads/{thread}/history", {"json": {}}),
        ("POST", f"/threads/{thread}/runs", ask), ("POST", f"/threads/{thread}/runs/stream", ask),
        ("POST", f"/threads/{thread}/runs/wait", ask), ("GET", f"/threads/{thread}/runs", {}),
        ("GET", f"/threads/{thread}/runs/{run}", {}), ("GET", f"/threads/{thread}/runs/{run}/stream", {}),
        ("GET", f"/threads/{thread}/runs/{run}/join", {}), ("POST", f"/threads/{thread}/runs/{run}/cancel", {}),
        ("POST", f"/convcoa/threads/{thread}/rating", {"json": {"round": 1, "rating": "up"}}),
        ("GET", f"/convcoa/collections/{collection}/files?source=secret.md", {}),
        ("GET", f"/convcoa/threads/{thread}", {}), ("GET", f"/convcoa/threads/{thread}/export", {}),
        ("GET", f"/convcoa/collections/{collection}/documents", {}),
        ("DELETE", f"/convcoa/collections/{collection}/documents?source=secret.md", {}),
        ("DELETE", f"/convcoa/collections/{collection}", {}),
        ("POST", f"/convcoa/collections/{collection}/files", {"files": [("files", ("a.md", b"x"))]}),
        ("GET", f"/convcoa/passages?collection={collection}&id=secret.md", {}), ("GET", f"/convcoa/jobs/{job}", {}),
        ("GET", f"/assistants/{collection}", {}), ("POST", "/threads", {"json": {"metadata": {"collection": collection}}}),
        ("POST", "/runs/wait", {"json": {"assistant_id": collection, "input": {"question": QUESTION}}}),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(27))
def test_what_is_anothers_is_not_there(shared: Served, of_ann: dict[str, str], number: int) -> None:
    method, path, body = of_another(of_ann)[number]
    if method == "POST" and path.endswith("/runs"):
        # Both in one request: her thread under his name makes a thread of his own, not hers.
        body = {"json": {**body["json"], "if_not_exists": "reject"}}
    response = shared.ask(method, path, headers={PROXY: "bob"}, **body)
    assert response.status_code == 404, response.text
    assert "xylophone" not in response.text
    assert "Hopfield network" not in response.text


def test_each_user_has_the_threads_and_collections_of_its_own(shared: Served, of_ann: dict[str, str]) -> None:
    ann, bob = {PROXY: "ann"}, {PROXY: "bob"}
    assert [one["thread_id"] for one in shared.ask("POST", "/threads/search", json={}, headers=ann).json()] == [
        of_ann["thread"]
    ]
    assert shared.ask("POST", "/threads/search", json={}, headers=bob).json() == []
    names = [one["name"] for one in shared.ask("GET", "/convcoa/collections", headers=bob).json()]
    assert names == ["Facts"]
    # The same name is another thread.
    made = {"thread_id": of_ann["thread"]}
    assert shared.ask("POST", "/threads", json=made, headers=bob).status_code == 200
    assert shared.ask("GET", f"/convcoa/threads/{of_ann['thread']}", headers=bob).json()["rounds"] == []
    assert shared.ask("DELETE", f"/threads/{of_ann['thread']}", headers=bob).status_code == 204
    assert len(shared.ask("GET", f"/convcoa/threads/{of_ann['thread']}", headers=ann).json()["rounds"]) == 1


@pytest.mark.parametrize("headers", [[], [(PROXY, "")], [(PROXY, "ann"), (PROXY, "bob")], [(PROXY, "x" * 201)]])
def test_a_user_must_be_named_once(shared: Served, headers: list[tuple[str, str]]) -> None:
    assert shared.ask("GET", "/info", headers=headers).status_code == 401


def test_the_user_header_is_believed_of_the_proxy_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    access = Access(user_header=PROXY, proxies=(ipaddress.ip_network("10.1.2.3"),))
    with served(tmp_path_factory.mktemp("proxy"), access) as server:
        for more in ({}, {"x-forwarded-for": "10.1.2.3"}, {"forwarded": "for=10.1.2.3"}):
            assert server.ask("GET", "/info", headers={PROXY: "ann", **more}).status_code == 401


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"host": "0.0.0.0"}, "others can reach the server"), ({"host": "192.168.1.7"}, "others can reach the server"),
        ({"host": "::"}, "others can reach the server"), ({"token": "short"}, "at least 16"),
        ({"token": "a token with spaces in it"}, "without spaces"), ({"user_header": "x-user"}, "go together"),
    ],
)  # fmt: skip
def test_what_would_be_open_to_all_is_refused_at_the_start(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Access(**given)


def test_a_server_on_every_address_is_reached_by_its_addresses_and_its_names() -> None:
    access = Access(host="0.0.0.0", token=TOKEN, names=frozenset({"chat.example.org"}))
    assert all(access.knows(host) for host in ("192.168.1.7:8321", "chat.example.org", "localhost", "[fe80::1]:80"))
    assert not any(access.knows(host) for host in ("evil.example", "", "chat.example.org.evil.example"))


def test_every_response_has_the_headers_of_safety(server: Served) -> None:
    with server.client() as client:
        for response in (
            client.get("/convcoa/collections"), client.get("/nothing"), client.post("/threads", content=b"{"),
            client.get("/info", headers={"host": "evil.example"}), client.put("/threads", json={}),
        ):  # fmt: skip
            headers = response.headers
            assert headers["content-type"].startswith("application/json")
            assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in headers
            assert response.json()


def test_too_much_is_refused_at_once(server: Served) -> None:
    length = "Content-Length: 2000000000\r\nConnection: close"
    head = f"POST /threads HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    assert raw(server.host, head.encode()).split()[1] == b"413"
    body = json.dumps({"metadata": {"title": "x" * 20_000}}).encode()
    assert server.ask("POST", "/threads", content=body, headers={"content-type": "application/json"}).status_code == 422

    def endless() -> Iterator[bytes]:
        for _ in range(60):
            yield b" " * 100_000

    chunked = server.ask("POST", "/threads", content=endless(), headers={"content-type": "application/json"})
    assert (chunked.status_code, "--max-upload-mb" in chunked.json()["detail"]) == (413, False)


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b"\xff", b"nul"])
def test_what_is_no_json_object_is_told(server: Served, body: bytes) -> None:
    response = server.ask("POST", "/threads", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "JSON" in response.json()["detail"]


def test_an_error_shows_neither_a_secret_nor_a_trace(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(user: str) -> None:
        raise RuntimeError("password=hunter2-of-the-database")

    monkeypatch.setattr(server.service.collections, "of", broken)
    response = server.ask("GET", "/convcoa/collections")
    assert response.status_code == 500
    assert "internal error (RuntimeError at test_guard.py:" in response.json()["detail"]
    assert "hunter2" not in response.text


def test_names_of_hosts() -> None:
    assert [host_name(text) for text in ("a.b:1", "a..b", "[::1]", "[::1", "a:99999", "ä.de", "a b", "a/b")][:3] == [
        "a.b",
        "a..b",
        "::1",
    ]
    wrong = ("[::1", "a:99999", "a b", "a/b", "a@b", "a%b", "[::1].evil.com", "a[::1]", "[a]", "::1", "a:1:2", "a:")
    assert not any(host_name(text) for text in wrong)


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(
    server: Served, collection_files: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path, kind in (("/threads", "application/json"), (collection_files, "multipart/form-data; boundary=B")):
        head = f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
        with socket.create_connection(server.listening.getsockname()[:2], timeout=10) as connection:
            connection.sendall(head.encode() + b'--B\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n\r\n')
        # Of another request, which is answered after that one.
        assert server.ask("GET", "/ok").status_code == 200
    time.sleep(0.3)
    assert "internal error" not in caplog.text


@pytest.fixture
def collection_files(server: Served) -> Iterator[str]:
    made: str = server.ask("POST", "/convcoa/collections", json={"name": "Left"}).json()["id"]
    yield f"/convcoa/collections/{made}/files"
    server.ask("DELETE", f"/convcoa/collections/{made}")
