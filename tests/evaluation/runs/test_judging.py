"""A judge over a run's folder: what it is asked, in which order, and what is not asked twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.folder import RunFolder, keep_replies
from langgraph_convcoa.evaluation.runs.judging import NO_MARKS, Judge, Verdicts, judge_run
from langgraph_convcoa.evaluation.runs.run import RunSettings
from tests.evaluation.runs.fakes import folder, model_of, questions_of
from tests.openai_server import OpenAIServer, Reply, prompt_of

ASKED = questions_of(10, 2)
ROWS = ["a", "b", "c"]


def fill(place: RunFolder) -> None:
    """The answers of a are right, those of b wrong, those of c the same as those of a, and its first failed."""
    for conversation in ASKED.conversations:
        for one in conversation.questions:
            for method in ROWS:
                right = f"It is {one.references[0]}" + (" [1]." if method == "c" else ".")
                failed = method == "c" and one.id == "q0-0"
                answer = "" if failed else "It is 7." if method == "b" else right
                error = "the model failed" if failed else ""
                place.append(
                    Answered(method, one.id, conversation.id, one.question, 1, one.references, answer=answer, error=error)
                )


def script(body: dict[str, Any]) -> str:
    """Prefers the right answer; marks a wrong one 0."""
    text = prompt_of(body)
    right = re.findall(r"\[Reference\]: (\d+)", text)[0]
    if "[Answer A]" in text:
        shown = re.findall(r"\[Answer ([AB])\]: It is (\d+)", text)
        return json.dumps({"better": next(letter for letter, number in shown if number == right), "reason": "right"})
    mark = 2 * (f"[Answer]: It is {right}" in text)
    return json.dumps({"correct": mark, "complete": mark, "faithful": mark, "concise": 2, "reason": ""})


def judge(place: RunFolder, server: OpenAIServer, **more: Any) -> Verdicts:
    judging = Judge(keep_replies(model_of(server), place.replies))
    seed, settings = more.pop("seed", 0), RunSettings(**more)
    return judge_run(place, ASKED, ROWS, judging, {}, seed=seed, settings=settings)


def test_every_answer_is_marked_and_compared_with_the_first_methods(tmp_path: Path) -> None:
    with OpenAIServer(script) as server, folder(tmp_path) as place:
        fill(place)
        judged = judge(place, server, concurrency=1)
        calls = len(server.requests)
        assert judge(place, server) == judged
        assert len(server.requests) == calls, "the replies are kept"
    marks = {(one.method, one.id): one.marks for one in judged.marks}
    assert len(marks) == 60
    assert {found.total for (method, _), found in marks.items() if method == "a" and found is not None} == {8}
    assert {found.total for (method, _), found in marks.items() if method == "b" and found is not None} == {2}
    assert marks["c", "q0-0"] == NO_MARKS
    pairs = {(one.id, *sorted([one.first, one.second])): one for one in judged.preferences}
    assert len(pairs) == 40
    assert {one.better for key, one in pairs.items() if key[2] == "b"} == {"a"}
    # The same answer but for its citation is a tie, and a failed one lost, both without a call.
    others = [one for key, one in pairs.items() if key[2] == "c"]
    assert [one.better for one in others if one.id == "q0-0"] == ["a"]
    assert {one.better for one in others if one.id != "q0-0"} == {""}
    # Marks of c are those of a, from the same prompts.
    assert calls == 20 + 20 + 20
    written = [json.loads(line) for line in (tmp_path / "judgements.jsonl").read_text().splitlines()]
    assert len(written) == 100
    assert written[0]["marks"]["correct"] == 2


def test_the_order_of_a_pair_is_drawn_with_the_seed(tmp_path: Path) -> None:
    with OpenAIServer(script) as server, folder(tmp_path) as place:
        fill(place)
        orders = [[one.first for one in judge(place, server, seed=seed).preferences] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert 5 <= sum(first == "a" for first in orders[0]) <= 35


def test_a_malformed_verdict_and_a_spent_budget_are_no_verdicts(tmp_path: Path) -> None:
    def odd(body: dict[str, Any]) -> str:
        return "A good answer!" if "[Reference]: 1000\n" in prompt_of(body) else script(body)

    with OpenAIServer(odd) as server, folder(tmp_path) as place:
        fill(place)
        judged = judge(place, server)
        assert [(one.method, one.id) for one in judged.marks if one.marks is None] == [("a", "q0-0"), ("b", "q0-0")]
        [unread] = [one for one in judged.preferences if one.better is None]
        assert unread.id == "q0-0"
        # What there is a reply to would be free, but the budget does not tell that before it is asked.
        spent = judge(place, server, max_tokens=1)
        assert {one.marks for one in spent.marks if one.method == "a"} == {None}


# anyio leaves a connection unawaited that is cancelled before it began.
@pytest.mark.filterwarnings("ignore:coroutine 'connect_tcp.<locals>.try_connect' was never awaited:RuntimeWarning")
def test_a_judge_that_is_not_there_ends_it_and_one_failure_does_not(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: Reply("no", status=404)) as server, folder(tmp_path / "gone") as place:
        fill(place)
        with pytest.raises(ModelError, match=r"the judge: .* in a row failed so"):
            judge(place, server)
        assert len(server.requests) < 40

    def failing(body: dict[str, Any]) -> Reply | str:
        return Reply("no", status=400) if "[Reference]: 1000\n" in prompt_of(body) else script(body)

    with OpenAIServer(failing) as server, folder(tmp_path / "once") as place:
        fill(place)
        assert sum(one.marks is None for one in judge(place, server).marks) == 2
