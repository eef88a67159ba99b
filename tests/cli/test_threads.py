"""`convcoa threads`, and what `ask` and `chat` do with threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from langgraph_convcoa.cli.chat import Chat, continuing
from langgraph_convcoa.cli.options import ConversationOptions
from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.storage import data_folder, default_store
from tests.cli.commands import convcoa, error_of
from tests.fake_encoder import WordEncoder
from tests.fakes import KeywordRetriever, corrections, node, plan
from tests.openai_server import OpenAIServer, Reply, kind_of
from tests.storage.test_threads import WHEN


@pytest.fixture(autouse=True)
def _here(encoder: WordEncoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def rounds(result: Result) -> int:
    assert result.exit_code == 0, result.output
    return len(json.loads(result.stdout)["knowledge_set"]["Contextual knowledge set"])


def test_a_named_thread_is_kept_without_a_store_and_an_unnamed_one_is_not(docs: Path, tmp_path: Path) -> None:
    assert [rounds(convcoa("ask", WHEN, "--docs", docs, "--json")) for _ in range(2)] == [1, 1]
    assert not list(data_folder().iterdir())
    assert [rounds(convcoa("ask", WHEN, "--docs", docs, "--json", "--thread", "t")) for _ in range(2)] == [1, 2]
    chat = convcoa("chat", "--docs", docs, "--json", "--thread", "t", input=f"{WHEN}\n")
    assert rounds(chat) == 3
    assert (data_folder() / "conversations.sqlite").exists()


def test_a_store_may_be_named_in_the_environment(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVCOA_STORE", str(tmp_path / "mine.sqlite"))
    assert [rounds(convcoa("ask", WHEN, "--docs", docs, "--json")) for _ in range(2)] == [1, 2]
    assert json.loads(convcoa("threads", "list", "--json").stdout)[0]["thread"] == "default"


def test_threads_are_listed_shown_exported_deleted_and_imported(docs: Path, tmp_path: Path) -> None:
    assert "There are no conversations" in convcoa("threads", "list").stderr
    assert not (data_folder() / "conversations.sqlite").exists()
    for thread in ("../a", "b"):
        convcoa("ask", WHEN, "--docs", docs, "--thread", thread)
    assert [line.split()[0] for line in convcoa("threads", "list").stdout.splitlines()] == ["b", "../a"]
    shown = convcoa("threads", "show", "../a").stdout
    assert WHEN in shown
    assert "1982" in shown
    assert len(json.loads(convcoa("threads", "show", "../a", "--json", "-n", 1).stdout)) == 1
    assert convcoa("threads", "export", "../a", "--out", "a.json").exit_code == 0
    assert json.loads(convcoa("threads", "export", "../a").stdout)["state"] == json.loads(Path("a.json").read_text())["state"]
    assert "already" in error_of(convcoa("threads", "export", "../a", "--out", "a.json"))
    assert "--out b.json" in error_of(convcoa("threads", "export", "../a", "b.json"))
    assert "--yes" in error_of(convcoa("threads", "delete", "../a"))
    assert "no thread 'nosuch'" in error_of(convcoa("threads", "delete", "nosuch"))
    assert convcoa("threads", "delete", "../a", "--yes").exit_code == 0
    assert "no thread '../a'" in error_of(convcoa("threads", "show", "../a"))
    assert convcoa("threads", "import", "a.json").exit_code == 0
    assert convcoa("threads", "import", "a.json", "--thread", "c").exit_code == 0
    assert rounds(convcoa("ask", WHEN, "--docs", docs, "--json", "--thread", "../a")) == 2
    assert convcoa("threads", "export", "c", "--out", "c.md").exit_code == 0
    assert Path("c.md").read_text().startswith("# c\n\n## When")


def test_what_cannot_be_done_is_one_line(docs: Path, tmp_path: Path) -> None:
    assert "no store" in error_of(convcoa("threads", "list", "--store", tmp_path / "none.sqlite"))
    assert "no store" in error_of(convcoa("threads", "show", "x"))
    assert "cannot be opened" in error_of(convcoa("threads", "import", "none.json"))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    assert "no exported thread" in error_of(convcoa("threads", "import", "bytes.json"))
    (tmp_path / "list.json").write_text("[]")
    assert "no exported thread" in error_of(convcoa("threads", "import", "list.json"))
    assert not (data_folder() / "conversations.sqlite").exists()
    assert "has no name" in error_of(convcoa("ask", WHEN, "--docs", docs, "--thread", " "))


def test_an_interrupted_ask_goes_on_when_it_is_asked_again(docs: Path) -> None:
    kept = plan(node(WHEN, "John Hopfield described the Hopfield network in 1982."))
    replies = {"plan": kept, "correct": corrections(final="It was in 1982 [1].")}
    failing = {"correct"}
    asked: list[str] = []

    def script(body: dict[str, object]) -> Reply:
        kind = kind_of(body)
        asked.append(kind)
        return Reply("no", status=400) if kind in failing else Reply(replies[kind])

    with OpenAIServer(script) as server:
        command = ["ask", WHEN, "--docs", docs, "--thread", "t", "--model", "m", "--base-url", server.base_url]
        error_of(convcoa(*command))
        listed = convcoa("threads", "list").stdout
        failing.clear()
        asked.clear()
        result = convcoa(*command, code=0)
    assert "interrupted in: When was the Hopfield" in listed
    assert asked == ["correct"]
    assert "resuming the interrupted turn" in result.stderr
    assert "It was in 1982 [1]." in result.stdout


def test_the_commands_of_a_chat(docs: Path) -> None:
    before, after = ["/history", "/export"], ["/history 1", "/history x", "/why", "/sources", "/export", "/export out.md"]
    lines = "\n".join([*before, WHEN, *after, "/resume", "/nonsense", "/help", ""])
    result = convcoa("chat", "--docs", docs, "--thread", "../t x", input=lines)
    assert "There is no answer yet." in result.stderr
    assert "nothing to export yet" in result.stderr
    assert f"> {WHEN}" in result.stderr
    assert "/history takes the number" in result.stderr
    assert "evidence: hopfield.md" in result.stderr
    assert "no interrupted turn" in result.stderr
    assert "no such command" in result.stderr
    assert "/export [FILE]" in result.stderr
    assert json.loads(Path("t-x.json").read_text())["thread"] == "../t x"
    assert WHEN in Path("out.md").read_text()
    again = convcoa("chat", "--docs", docs, "--thread", "../t x", input="/why\n")
    assert "evidence: hopfield.md" in again.stderr


def test_the_command_that_goes_on_names_the_store_where_it_is_not_the_users_own(tmp_path: Path) -> None:
    graph = build_graph(retriever=KeywordRetriever())
    elsewhere = Session(graph, ConvCoAContext(), "[/x] a", "talk.sqlite")
    over = ConversationOptions(docs="my papers", web=True, k=3, thread="a", store="talk.sqlite")
    sources = "convcoa chat --docs 'my papers' --web --k 3"
    assert continuing(elsewhere, over) == f"{sources} --thread '[/x] a' --store talk.sqlite"
    assert continuing(Session(graph, ConvCoAContext(), "a", default_store()), over) == f"{sources} --thread a"


def test_a_file_to_export_to_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Session(build_graph(retriever=KeywordRetriever()), ConvCoAContext(), "a") as session:
        session.ask(WHEN)
        Chat(session, ConversationOptions(docs="demo")).command("/export ~/out.json")
    assert json.loads((tmp_path / "out.json").read_text())["thread"] == "a"
