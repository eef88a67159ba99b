"""`convcoa evaluate qa` with a model on loopback: real methods, real graph, small data."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.commands import convcoa
from tests.data import write_dataset
from tests.fake_encoder import WordEncoder
from tests.fakes import corrections, node, plan
from tests.openai_server import OpenAIServer, Reply, kind_of, prompt_of

KEY = "sk-secret-0123456789"
WORDS = ["ants", "bees", "crabs", "ducks"]


@pytest.fixture(autouse=True)
def surroundings(encoder: WordEncoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two questions a conversation, and one conversation without answers."""
    corpus = [
        {"id": f"p{i}", "title": word, "text": f"The {word} were counted in {1900 + i}. Dr. {word.title()} counted them."}
        for i, word in enumerate(WORDS)
    ]
    queries: list[dict[str, Any]] = []
    for i, word in enumerate(WORDS):
        first, second = f"When were the {word} counted?", f"Who counted the {word}?"
        more = {"gold": [f"p{i}"], "split": "dev", "conversation_id": word}
        queries.append({"id": f"{word}-1", "question": first, "answer": f"{1900 + i}", "history": [], **more})
        history = [[first, f"{1900 + i}"]]
        queries.append({"id": f"{word}-2", "question": second, "answer": f"Dr. {word.title()}", "history": history, **more})
    queries.append({"id": "x", "question": "Unknown?", "split": "dev", "conversation_id": "x"})
    return write_dataset(tmp_path / "animals", queries, corpus, ".jsonl.gz")


def answer_of(question: str) -> str:
    word = next((word for word in WORDS if word in question), "")
    if not word:
        return "I do not know."
    return f"In {1900 + WORDS.index(word)} [1]." if "When" in question else f"Dr. {word.title()} [1]."


def judged(text: str) -> str:
    if "[Answer A]" in text:
        letter = re.findall(r"\[Answer ([AB])\]: Nobody knows", text)
        return json.dumps({"reason": "", "better": {"A": "B", "B": "A"}[letter[0]] if letter else "tie"})
    right = 0 if "[Answer]: Nobody knows" in text else 2
    marks = {"reason": "", "correct": right, "complete": right, "faithful": 2, "concise": 1}
    return "maybe" if "[Question]: When were the ants" in text else json.dumps(marks)


def script(body: dict[str, Any]) -> Reply | str:
    """Ours: one sub-question without a guess, corrected and answered right; to all else the right answer, but of the crabs."""
    text = prompt_of(body)
    if "gpt-judge" in body["model"]:
        return judged(text)
    question = re.findall(r"(?:When were|Who counted) the \w+(?: counted)?\?", text)[-1]
    kind = kind_of(body)
    if kind == "correct":
        return corrections(answer_of(question), final=answer_of(question))
    if kind == "plan":
        return plan(node(question), optimized=question)
    return "Nobody knows." if "crabs" in question else answer_of(question).replace(" [1]", "")


def evaluate(*arguments: object, code: int | None = None) -> Result:
    return convcoa("evaluate", "qa", *arguments, code=code)


def report_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_methods_are_compared_and_everything_is_in_the_folder(data: Path, tmp_path: Path) -> None:
    with OpenAIServer(script) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--out", tmp_path / "run"]
        arguments += ["--methods", "closed-book,ours,extractive"]
        report = report_of(evaluate(*arguments, "--json"))
        asked = len(server.requests)
        again = evaluate(*arguments, code=0)
        assert len(server.requests) == asked
    assert (report["questions"], report["conversations"], report["left_out"], report["partial"]) == (8, 4, 1, False)
    assert list(report["methods"]) == ["closed-book", "ours", "extractive"]
    closed, ours, extractive = report["methods"].values()
    assert (closed["quality"]["cover_em"]["mean"], ours["quality"]["cover_em"]["mean"]) == (0.75, 1.0)
    assert (closed["costs"]["calls"], closed["costs"]["retrievals"], closed["gold_found"]) == (1.0, 0.0, None)
    assert (ours["costs"]["calls"], ours["gold_found"]) == (2.0, 1.0)
    assert (extractive["costs"]["calls"], extractive["costs"]["input_tokens"], extractive["gold_found"]) == (0.0, 0.0, 1.0)
    assert extractive["quality"]["cover_em"]["mean"] == 1.0
    for title in ("Quality", "Costs per question", "What was asked, and what went wrong"):
        assert title in again.stdout
    stored = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert KEY.encode() not in stored
    assert {"report.md", "report.json", "answers.jsonl", "settings.json"} <= {p.name for p in (tmp_path / "run").iterdir()}
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report


@pytest.mark.slow
def test_the_default_folder_goes_on_and_other_settings_get_another(data: Path, tmp_path: Path) -> None:
    with OpenAIServer(script) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "closed-book"]
        stopped = evaluate(*arguments, "--max-tokens", "200", "--concurrency", "1", code=0)
        assert "partial" in stopped.stderr
        assert "budget of 200 tokens" in stopped.stderr
        [folder] = (tmp_path / "convcoa-runs").iterdir()
        assert folder.name.startswith("animals-test-")
        assert "PARTIAL" in (folder / "report.md").read_text()
        assert report_of(evaluate(*arguments, "--json"))["answered"] == 8
        assert len(server.requests) == 8
        report_of(evaluate(*arguments, "--gold-history", "--json"))
        assert len([*(tmp_path / "convcoa-runs").iterdir()]) == 2
        refused = evaluate(*arguments, "--out", folder, "--seed", "3", code=2)
        assert "made with seed = 0, not 3" in refused.stderr


def test_failures_are_in_the_report_and_can_be_asked_again(data: Path, tmp_path: Path) -> None:
    broken = True

    def failing(body: dict[str, Any]) -> Reply | str:
        return Reply("no", status=400) if broken and "bees" in prompt_of(body) else script(body)

    with OpenAIServer(failing) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "closed-book", "--json"]
        figures = report_of(evaluate(*arguments))["methods"]["closed-book"]
        assert (figures["asked"], figures["failed"]) == (8, 2)
        assert "rejected the request (400)" in next(iter(figures["errors"]))
        assert figures["quality"]["cover_em"]["mean"] == 0.5
        broken = False
        assert report_of(evaluate(*arguments))["methods"]["closed-book"]["failed"] == 2
        assert report_of(evaluate(*arguments, "--retry-failed"))["methods"]["closed-book"]["failed"] == 0


def test_verdicts_that_failed_are_asked_for_again_and_no_answer_is(data: Path) -> None:
    broken = True

    def failing(body: dict[str, Any]) -> Reply | str:
        return Reply("no", status=400) if broken and "gpt-judge" in body["model"] else script(body)

    with OpenAIServer(failing) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "closed-book", "--json"]
        arguments += ["--judge", "gpt-judge"]
        assert report_of(evaluate(*arguments))["methods"]["closed-book"]["marks"] is None
        broken, before = False, len(server.requests)
        marks = report_of(evaluate(*arguments))["methods"]["closed-book"]["marks"]
        assert (marks["malformed"], marks["total"]["questions"]) == (1, 7)
        assert {body["model"] for body in server.requests[before:]} == {"gpt-judge"}


@pytest.mark.slow
def test_a_judge_marks_compares_and_may_join_later(data: Path, tmp_path: Path) -> None:
    with OpenAIServer(script) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "ours,closed-book"]
        arguments += ["--out", tmp_path / "run", "--json"]
        report_of(evaluate(*arguments))
        before = len(server.requests)
        arguments += ["--judge", "gpt-judge"]
        report = report_of(evaluate(*arguments))
        assert {body["model"] for body in server.requests[before:]} == {"gpt-judge"}, "the answers are there"
        assert any("[Passages]:\n- The ants were counted in 1900." in prompt_of(body) for body in server.requests[before:])
        asked = len(server.requests)
        assert report_of(evaluate(*arguments)) == report
        assert len(server.requests) == asked
    ours, closed = report["methods"]["ours"], report["methods"]["closed-book"]
    assert ours["marks"]["means"] == {"correct": 2.0, "complete": 2.0, "faithful": 2.0, "concise": 1.0}
    assert (ours["marks"]["right"], ours["marks"]["malformed"], ours["preference"]) == (1.0, 1, None)
    assert closed["marks"]["total"]["mean"] == pytest.approx((5 * 7 + 2 * 3) / 7)
    assert (closed["preference"]["wins"], closed["preference"]["losses"], closed["preference"]["ties"]) == (0, 2, 6)
    page = (tmp_path / "run" / "report.md").read_text()
    for title in ("Marks of the judge", "Preferred to ours"):
        assert f"## {title}" in page


def test_other_documents_are_searched(data: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("The bees were counted in 1901.")
    with OpenAIServer(script) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "ours", "--docs", docs]
        report = report_of(evaluate(*arguments, "--sample", "1", "--json"))
    assert report["questions"] == 2
    assert report["settings"]["searched"] == str(docs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "ours"], "the method 'ours' needs --model; without a model there is 'extractive'"),
        (["--model", "a", "--methods", "ours,magic"], "no method 'magic'; choose from closed-book"),
        (["--model", "a", "--methods", "ours,few-shot"], "python -m experiments.baselines"),
        (["--model", "a", "--methods", ""], "at least one method"),
        (["--model", "a", "--methods", "ours,ours"], "each method once"),
        (["--model", "a", "--docs", "a", "--index", "b"], "together"),
        (["--model", "nobody:at-all"], "unknown model"),
        (["--model", "openai:gpt-4.1-mini", "--split", "test"], "test"),
    ],
)
def test_wrong_arguments_are_one_line(data: Path, arguments: list[str], message: str) -> None:
    result = evaluate(data, *arguments, code=2)
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_wrong_key_is_one_line_and_says_where_the_answers_are(data: Path) -> None:
    with OpenAIServer(lambda body: Reply(f"bad key {KEY}", status=401)) as server:
        result = evaluate(data, "--model", "test", "--base-url", server.base_url, "--methods", "closed-book", code=2)
    assert "refused the key (401)" in result.stderr.splitlines()[-1]
    assert "the same command resumes the run" in result.stderr
    assert KEY not in result.output


def test_a_password_in_the_address_is_neither_shown_nor_kept(data: Path, tmp_path: Path) -> None:
    with OpenAIServer(lambda body: Reply("no", status=400) if "bees" in prompt_of(body) else script(body)) as server:
        url = server.base_url.replace("http://", "http://ada:hunter2@")
        result = evaluate(data, "--model", "test", "--base-url", url, "--methods", "closed-book", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    stored = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"rejected the request (400)" in stored
    assert b"hunter2" not in stored + result.output.encode()


def test_ctrl_c_ends_with_one_line_and_the_same_command_goes_on(data: Path) -> None:
    asked = 0

    def interrupting(body: dict[str, Any]) -> Reply | str:
        nonlocal asked
        asked += 1
        if asked == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return script(body)

    with OpenAIServer(interrupting) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url, "--methods", "closed-book", "--concurrency", "1"]
        stopped = evaluate(*arguments, code=130)
        assert "Ctrl-C once more stops at once" in stopped.stderr
        assert "the same command resumes the run" in stopped.stderr
        assert 3 <= asked < 8
        assert report_of(evaluate(*arguments, "--split", "all", "--json"))["answered"] == 8
        assert report_of(evaluate(*arguments, "--json"))["answered"] == 8
        # All of it in the other folder, and here what was left.
        assert len(server.requests) == 16


def test_help_names_every_method() -> None:
    from langgraph_convcoa.evaluation.methods.registry import METHODS

    shown = " ".join(evaluate("--help").stdout.split())
    for name, entry in METHODS.items():
        assert f"{name}: {entry.description}" in shown


def test_a_data_set_without_passages_is_for_methods_that_do_not_search(data: Path, tmp_path: Path) -> None:
    (data / "corpus.jsonl.gz").unlink()
    with OpenAIServer(script) as server:
        arguments = [data, "--model", "test", "--base-url", server.base_url]
        assert report_of(evaluate(*arguments, "--methods", "closed-book", "--json"))["answered"] == 8
        refused = evaluate(*arguments, "--methods", "closed-book,react", code=2)
        assert "give documents or an index" in refused.stderr
        (tmp_path / "docs.txt").write_text("The bees were counted in 1901.")
        arguments += ["--docs", tmp_path / "docs.txt"]
        assert report_of(evaluate(*arguments, "--methods", "history-aware-rag", "--json"))["answered"] == 8
