from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from pydantic import SecretStr

from langgraph_convcoa import build_graph
from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.errors import LONGEST, ConvCoAError, InputError, RetrievalError, redact, secrets_of
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.storage.sqlite import SqliteStore

SECRET = "Zq7vTr4Kpw9xLm2"
NAMES = """
api_key api-key apikey access_token token refresh_token id-token client_secret secret password passwd pwd PGPASSWORD passphrase
x-api-key AccountKey aws_secret_access_key SharedAccessKey X-Amz-Signature x-amz-security-token credentials session_id
OPENAI_API_KEY userPassword privateKey DB_PASSWORD
""".split()  # noqa: SIM905
FORMS = r"""
{0}={1}
{0}: {1}
{0} = '{1}'
{0}="{1}"
"{0}": "{1}"
'{0}': '{1}'
https://a.org/?{0}={1}&q=x
{0}=>{1}
{{"{0}":"{1}","n":1}}
{{'{0}': b'{1}'}}
('{0}', '{1}')
\"{0}\": \"{1}\"
?x=1&{0}={1}
DRIVER=x;{0}={1};UID=u
{0}%3D{1}
{0}='{1} and more'
failed({0}={1})
Incorrect {0} provided: {1}.
""".strip().splitlines()
WRITTEN = r"""
https://a.org/?key={0}
/v1?q=2&key={0} failed
{{"key": "{0}"}}
sig={0}
Incorrect API key provided: {0}
Authorization: Basic {0}
authorization=Bearer {0}
{{'Authorization': 'Token {0}'}}
Authorization: {0}
Proxy-Authorization: Negotiate {0}
bearer {0}
Basic {0}
token {0}
Cookie: theme=dark; session={0}
Set-Cookie: a={0}; Path=/
Authorization: Digest username="u", response={0}
invalid token '{0}'
postgresql://ana:{0}@db/x
postgresql:ana:{0}@db
ana:{0}@db.example.org refused
https://{0}@github.com/a
redis://:{0}@h:1/0
postgresql://ana:a/{0}@db/x
postgresql://ana:a@{0}@db/x
mysql+pymysql://u:{0}@127.0.0.1
amqp:u:{0}@[::1]/v
host=h password='{0}'
curl --api-key {0} x
psql --password {0}
sk-{0}
ghp_{0}
AKIA{0}
xoxb-1-{0}
eyJhbGciOi.{0}.c
hf_{0}
PWD={{a {0}}}
-----BEGIN RSA PRIVATE KEY----- {0} -----END RSA PRIVATE KEY-----
password was {0}
x-api-key: {0}
the key=`{0}`
DB_PASS={0}
pw={0}
<password>{0}</password>
<ns:apiKey type="text">{0}</ns:apiKey>
npm_{0}
secret_key: !!str {0}
secret_key: !!str "{0}"
""".strip().splitlines()
CASES = [form.format(name, SECRET) for name in NAMES for form in FORMS] + [text.format(SECRET) for text in WRITTEN]
CASES.append(f"password: |\n  {SECRET}")


def test_no_form_of_a_secret_is_left() -> None:
    assert len(CASES) > 400
    assert [case for case in CASES if SECRET in redact(f"request failed: {case}")] == []


@pytest.mark.parametrize(
    "text",
    [
        "the token limit of 512 is passed",
        "password authentication failed for user ana",
        "set OPENAI_API_KEY, or give --base-url for a local server",
        "write it as postgresql://user:password@host/database",
        "https://example.org/@ana/post-1 answered with status 404",
        "cannot reach http://localhost:8080/v1: is the server running?",
        "max_tokens=512 is too many; tokens: 90",
        "no key for the model 'openai:gpt-4.1-mini'",
        "KeyError: 'name'",
        "the model claude-3@20240620 does not exist",
        "line 3 is no valid JSON (Expecting value, column 9): mend or remove it",
        "mail ana@example.org",
        "the bypass=on of the <p>text</p>",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert str(ConvCoAError(text)) == text


@given(st.text(min_size=1), st.text(max_size=40), st.text(max_size=40))
def test_a_given_secret_never_shows(secret: str, before: str, after: str) -> None:
    found = redact(f"{before}{secret}{after}", [secret])
    # What is put in its place, or ends a text that was cut, may itself hold a secret of a few letters.
    assert secret not in found.replace("[hidden]", "").replace("…", "") or len(secret) < 3


@given(st.text(), st.text(alphabet="pwdtokensecretkey=:'\"\\ @/?&{}[]", max_size=200))
def test_any_text_can_be_redacted_twice(free: str, noisy: str) -> None:
    for text in (free, noisy):
        once = redact(text)
        assert len(once) <= 4 * len(text) + 10
        assert isinstance(redact(once), str)


PARTS = [
    "password=",
    "'",
    "a:",
    "://:",
    'key"',
    "authorization: ",
    "token ",
    "eyJaaaaa",
    "pwd='",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.mark.parametrize("part", PARTS)
def test_long_texts_are_cut_and_cost_little(part: str) -> None:
    start = time.thread_time()
    assert len(redact(part * 1_000_000)) < 5 * LONGEST
    assert time.thread_time() - start < 30


def test_variables_that_hold_secrets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "plain-words-only")
    assert redact("refused: plain-words-only") == "refused: [hidden]"


def test_secrets_that_an_object_was_given() -> None:
    url = SimpleNamespace(password="db-pass-word", host="h")
    client = SimpleNamespace(api_key=SecretStr("inner-one"))
    thing = SimpleNamespace(tool={"client": [client]}, _key="outer-one", url=url, name="n")
    thing.itself = thing
    assert secrets_of(thing) == {"inner-one", "outer-one", "db-pass-word"}


def test_every_error_of_the_library_is_redacted() -> None:
    for kind in (InputError, RetrievalError, ActionInputError):
        assert str(kind(f"cannot reach https://a:{SECRET}@h")) == "cannot reach https://[hidden]@h"


class _Failing:
    name = "lookup"
    description = "looks up"

    def __init__(self, error: Exception, token: str = "") -> None:
        self.error, self.token = error, token

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "token"),
    [
        (RuntimeError(f"GET https://a.org/?key={SECRET} failed"), ""),
        (OSError(5, f"password={SECRET}"), ""),
        (KeyError(f"token {SECRET}"), ""),
        (ActionInputError(f"Authorization: Basic {SECRET}"), ""),
        (ConnectionError("the words correct horse were refused"), "correct horse"),
        (ActionInputError("the words correct horse were refused"), "correct horse"),
    ],
)
def test_a_failed_action_leaves_no_secret_in_answers_and_stores(error: Exception, token: str, tmp_path: Path) -> None:
    secret, path = token or SECRET, tmp_path / "s.sqlite"

    async def turn() -> dict[str, Any]:
        graph = build_graph(reasoner=ExtractiveReasoner(None), actions=[_Failing(error, token)])
        async with SqliteStore(path).opened() as saver:
            compiled = graph.compile(checkpointer=saver)
            config: Any = {"configurable": {"thread_id": "t"}}
            found = [
                part async for part in compiled.astream({"question": "Who was it?"}, config, stream_mode=["updates", "custom"])
            ]
            return {"found": repr(found), "state": repr((await compiled.aget_state(config)).values)}

    told = json.dumps(asyncio.run(turn()))
    with sqlite3.connect(path) as connection:
        stored = "\n".join(connection.iterdump()).encode() + b"".join(
            value
            for table in ("checkpoints", "writes")
            for row in connection.execute(f"SELECT * FROM {table}")
            for value in row
            if isinstance(value, bytes)
        )
    connection.close()
    assert "[hidden]" in told
    assert secret not in told
    assert secret.encode() not in stored
    assert secret.encode().hex().upper() not in stored.decode("ascii", "replace")
