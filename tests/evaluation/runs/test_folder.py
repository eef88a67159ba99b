"""A run's folder: settings that must agree, lines that a kill tears, one writer at a time."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.folder import ReplyCache, ReplyCacheError, RunFolder, keep_replies
from langgraph_convcoa.evaluation.runs.run import Meter
from tests.bounds import wait_until
from tests.evaluation.runs.fakes import model_of
from tests.openai_server import OpenAIServer, Reply, prompt_of


def record(n: int, method: str = "m", error: str = "", conversation: str = "c") -> Answered:
    return Answered(method, f"q{n}", conversation, "Wo läuft das?", 1, ("x",), answer=f"answer {n} \ud800 ü", error=error)


def test_answers_come_back_and_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    settings = {"data": "d", "k": 5}
    with RunFolder(tmp_path / "deep" / "run", settings) as folder:
        for n in range(3):
            folder.append(record(n))
    path = tmp_path / "deep" / "run" / "answers.jsonl"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[:100].replace(b"\n", b""))
    with RunFolder(path.parent, settings) as folder:
        assert [one.id for one in folder.answers()] == ["q0", "q1", "q2"]
        folder.append(record(3))
        folder.append(record(4, "other"))
        assert [one.id for one in folder.answers({"m"})] == ["q0", "q1", "q2", "q3"]
    assert path.read_bytes().startswith(whole)


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {"data": "d", "sample": 100}) as folder:
        folder.append(record(1))
    with pytest.raises(InputError, match=r"made with sample = 100, not 200.*--fresh"):
        RunFolder(tmp_path, {"data": "d", "sample": 200})
    with RunFolder(tmp_path, {"data": "d", "sample": 200}, fresh=True) as folder:
        assert list(folder.answers()) == []
    assert json.loads((tmp_path / "settings.json").read_text()) == {"data": "d", "sample": 200}


@pytest.mark.parametrize("files", range(9))
def test_a_kill_while_starting_afresh_leaves_no_answers_to_other_settings(
    tmp_path: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path, {"data": "d"}) as folder:
        folder.append(record(1))
    unlink, removed = Path.unlink, 0

    def killed(path: Path, **options: bool) -> None:
        nonlocal removed
        if removed == files:
            raise KeyboardInterrupt
        removed += 1
        unlink(path, **options)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        RunFolder(tmp_path, {"data": "other"}, fresh=True).__exit__(None, None, None)
    with suppress(InputError), RunFolder(tmp_path, {"data": "other"}) as folder:
        assert list(folder.answers()) == []


def test_methods_and_a_judge_may_change(tmp_path: Path) -> None:
    settings = {"data": "d", "methods": ["a"], "judge": None}
    with RunFolder(tmp_path, settings) as folder:
        folder.append(record(1))
    with RunFolder(tmp_path, {**settings, "methods": ["b"], "judge": "x"}) as folder:
        assert [one.id for one in folder.answers()] == ["q1"]
    assert json.loads((tmp_path / "settings.json").read_text())["judge"] == "x"


def test_a_folder_of_something_else_is_refused_even_afresh(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(InputError, match="holds no run"):
            RunFolder(tmp_path, {}, fresh=fresh)
    with pytest.raises(InputError, match="holds no run"):
        RunFolder(tmp_path / "thesis.txt", {})
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_failed_questions_and_what_came_after_them_can_be_forgotten(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {}) as folder:
        for row in (record(1), record(2, error="no"), record(3), record(4, "other"), record(5, conversation="d")):
            folder.append(row)
        assert (folder.drop_failed(), [one.id for one in folder.answers()]) == (2, ["q1", "q4", "q5"])
        folder.append(record(2))
        assert (folder.drop_failed(), [one.id for one in folder.answers()]) == (0, ["q1", "q4", "q5", "q2"])


def test_two_cannot_write_at_the_same_time(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {}), pytest.raises(InputError, match="another process"):
        RunFolder(tmp_path, {})
    RunFolder(tmp_path, {}).__exit__(None, None, None)


@pytest.fixture
def cache(tmp_path: Path) -> Any:
    opened = ReplyCache(tmp_path / "replies.sqlite")
    yield opened
    opened.close()


def test_a_model_in_wrappers_is_refused(cache: ReplyCache) -> None:
    with pytest.raises(ModelError, match="not of RunnableRetry: give the model in it"):
        keep_replies(FakeListChatModel(responses=["a"]).with_retry(), cache)  # type: ignore[type-var]


def test_a_request_is_paid_once_also_by_another_process_with_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replies.sqlite"
    with OpenAIServer(lambda body: prompt_of(body).upper()) as server:
        for key in ("sk-first-secret", "sk-second-secret"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            cache = ReplyCache(path)
            model = keep_replies(model_of(server), cache)
            assert model.invoke("abc").text == "ABC"
            assert model.invoke("abc").usage_metadata["input_tokens"] == 100
            assert cache.tokens == 120
            cache.close()
        assert len(server.requests) == 1
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret" not in stored
    assert b"abc" not in stored


async def test_requests_made_at_once_are_all_counted_and_the_first_reply_stays(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"

    class Server(OpenAIServer):
        def _send(self, handler: Any, body: dict[str, Any], reply: Reply) -> None:
            if reply.text == "slow":
                wait_until(lambda: cache.tokens, "the fast reply is kept")
            super()._send(handler, body, reply)

    with closing(ReplyCache(path)) as cache, Server(["slow", "fast"]) as server:
        model = keep_replies(model_of(server), cache)
        await asyncio.gather(model.ainvoke("abc"), model.ainvoke("abc"))
        assert cache.tokens == 240
        assert (await model.ainvoke("abc")).text == "fast"
    with closing(ReplyCache(path)) as cache:
        assert cache.tokens == 240


async def test_what_makes_another_request(cache: ReplyCache) -> None:
    with OpenAIServer(lambda body: "reply") as server:
        model = keep_replies(model_of(server), cache)
        await model.ainvoke("a")
        await model.ainvoke("b")
        await model.bind(temperature=0.7).ainvoke("a")
        await model.bind(stop=["x"]).ainvoke("a")
        sample = HumanMessage("a", additional_kwargs={"sample": 1})
        await model.ainvoke([sample])
        await keep_replies(model_of(server, max_tokens=5), cache).ainvoke("a")
        assert len(server.requests) == 6
        await model.ainvoke([sample])
        await model.bind(stop=["x"]).ainvoke("a")
        assert len(server.requests) == 6


def test_tool_calls_and_what_providers_add_survive(cache: ReplyCache) -> None:
    call = {"name": "look", "args": {"q": "x"}, "id": "1", "type": "tool_call"}
    message = AIMessage("hm", tool_calls=[call], additional_kwargs={"parsed": object(), "reasoning": "r"})
    prompt = json.dumps([])
    cache.update(prompt, "m", [ChatGeneration(message=message)])
    [found] = cache.lookup(prompt, "m") or []
    assert isinstance(found, ChatGeneration)
    assert found.message.tool_calls == [call]
    assert found.message.additional_kwargs == {"reasoning": "r"}


def test_failures_are_not_kept(cache: ReplyCache) -> None:
    replies = [Reply("no", status=500), "yes"]
    with OpenAIServer(list(replies)) as server:
        model = keep_replies(model_of(server), cache)
        with pytest.raises(Exception, match="no"):
            model.invoke("a")
        assert model.invoke("a").text == "yes"
        assert model.invoke("a").text == "yes"
        assert len(server.requests) == 2


def test_a_kept_reply_costs_what_it_cost(cache: ReplyCache) -> None:
    with OpenAIServer(lambda body: Reply("r", delay=0.1)) as server:
        model = keep_replies(model_of(server), cache)
        first, second = Meter(), Meter()
        for meter in (first, second):
            model.invoke("a", {"callbacks": [meter]})
    assert len(server.requests) == 1
    assert first.costs().calls == second.costs().calls == 1
    assert first.costs().input_tokens == second.costs().input_tokens == 100
    assert second.costs().seconds >= 0.1


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    with closing(ReplyCache(path)) as cache:
        model = keep_replies(FakeListChatModel(responses=["x"]), cache)
        model.invoke("a")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE replies SET reply = '[{]'")
        with pytest.raises(ReplyCacheError, match="cannot be used"):
            model.invoke("a")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE things (a)")
    for name in ("text", "other"):
        with pytest.raises(ReplyCacheError):
            ReplyCache(tmp_path / f"{name}.sqlite")
