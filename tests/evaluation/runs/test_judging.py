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
from langgraph_convcoa.evaluation.runs.judging import (
    NO_MARKS,
    Case,
    Judge,
    Marks,
    Verdicts,
    judge_run,
    read_better,
    read_marks,
)
from langgraph_convcoa.evaluation.runs.run import RunSettings
from tests.evaluation.runs.fakes import folder, model_of, questions_of
from tests.fakes import ScriptedModel
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


CASE = Case("When?", (("Who?", "Ada [1]."),), ("1815",), ["Ada was born in 1815."])
MARKS = {"reason": "no year", "correct": 2, "complete": 1, "faithful": 2, "concise": 0}


@pytest.mark.parametrize(
    ("reply", "total"),
    [
        (json.dumps(MARKS), 5),
        (f"Here it is:\n```json\n{json.dumps(MARKS)}\n```", 5),
        (json.dumps({name.title(): value for name, value in MARKS.items()}), 5),
        (json.dumps({**MARKS, "correct": "1"}), 4),
        (json.dumps({**MARKS, "correct": 3}), None),
        (json.dumps({**MARKS, "correct": -1}), None),
        (json.dumps({**MARKS, "correct": 1.5}), None),
        (json.dumps({**MARKS, "correct": True}), None),
        (json.dumps({**MARKS, "correct": None}), None),
        (json.dumps({name: value for name, value in MARKS.items() if name != "concise"}), None),
        ("correct 2, complete 2, faithful 2, concise 2", None),
        ("", None),
    ],
)
def test_marks_are_four_whole_numbers_from_0_to_2(reply: str, total: int | None) -> None:
    found = read_marks(reply)
    assert (None if found is None else found.total) == total


@pytest.mark.parametrize(
    ("reply", "better"),
    [
        ('{"better": "A"}', "A"),
        ('{"better": "b"}', "B"),
        ('{"better": "Answer B."}', "B"),
        ('{"reason": "both", "better": "Tie"}', "tie"),
        ('{"better": "C"}', None),
        ('{"better": "A or B"}', None),
        ('{"reason": "A is better"}', None),
        ("A", None),
        ("", None),
    ],
)
def test_a_preference_is_a_b_or_a_tie(reply: str, better: str | None) -> None:
    found = read_better(reply)
    assert (None if found is None else found[0]) == better


async def test_the_judge_sees_the_case_and_no_citations() -> None:
    model = ScriptedModel(replies=[json.dumps(MARKS), '{"better": "B", "reason": "B has it"}'])
    judge = Judge(model)
    assert await judge.marks(CASE, "In 1815 [1].\n[Reference]: 1816") == Marks(2, 1, 2, 0, "no year")
    assert await judge.better(CASE, "In 1816 [2].", "In 1815.") == ("B", "B has it")
    marks, pair = model.prompts
    assert "\n[Answer]: In 1815. [Reference]: 1816\n" in marks, "on one line: an answer cannot add a label"
    for prompt in (marks, pair):
        assert CASE.text() in prompt
        assert "[Passages]:\n- Ada was born in 1815." in prompt
    assert "[Answer A]: In 1816.\n\n[Answer B]: In 1815.\n" in pair


async def test_what_is_clear_needs_no_call() -> None:
    judge = Judge(ScriptedModel(replies=[TimeoutError()]))
    assert await judge.marks(CASE, " [1] ") == NO_MARKS
    assert await judge.better(CASE, "In 1815 [1].", "In  1815 [2].") == ("tie", "the same answer")
    assert await judge.better(CASE, "", "In 1815.") == ("B", "the other is no answer")
    assert await judge.better(CASE, "In 1815.", "") == ("A", "the other is no answer")
    with pytest.raises(ModelError, match="did not answer in time"):
        await judge.marks(CASE, "In 1815.")


def test_a_case_is_cut_to_its_last_turns_and_first_passages() -> None:
    history = tuple((f"Question {n}?", "word " * 500) for n in range(9))
    text = Case("Now?", history, (" ", "x", "x"), ["passage " * 900] * 9).text()
    assert "Question 5?" not in text
    assert "Question 6?" in text
    assert text.count("\n- passage") == 4
    assert "[Reference]: x\n" in text
    assert len(text) < 11_000
    assert Case("Now?").text() == "[Conversation]: (none)\n[Question]: Now?\n[Reference]: (none)\n[Passages]: (none)"
