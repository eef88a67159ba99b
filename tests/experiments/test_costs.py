"""Costs under a script: its shares, the replies to it over HTTP, and the table of the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.__main__ import main
from experiments.costs.measure import measure_costs
from experiments.costs.scripted import NOT_KNOWN, Script, load_script, make_script
from experiments.costs.scripted_model import ScriptedReplies, ScriptedServer, count_tokens
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from tests.fakes import ScriptedModel
from tests.openai_server import chat_model


@given(st.integers(1, 7), st.floats(0, 1), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99))
def test_made_scripts_have_the_shares_that_are_asked_for(
    n: int, share: float, questions: int, missing: float, seed: int
) -> None:
    script = make_script(n, share, questions, seed=seed, missing_share=missing)
    subs = [sub for one in script.questions for sub in one.sub_questions]
    assert (len(script.questions), len(subs)) == (questions, n * questions)
    right = sum(sub.right for sub in subs)
    assert abs(right - share * len(subs)) <= 0.5
    assert abs(sum(not sub.guess for sub in subs) - missing * (len(subs) - right)) <= 0.5
    assert all((sub.guess == sub.answer) == sub.right for sub in subs)


def test_a_script_by_hand_needs_only_questions_answers_and_guesses(tmp_path: Path) -> None:
    made = make_script(3, 0.4, questions=4)
    made.save(tmp_path / "made.json")
    assert load_script(tmp_path / "made.json") == made
    subs = [{"question": "Who?", "answer": "Ada.", "guess": "Ada.", "right": True}, {"question": "When?", "answer": "1843."}]
    rows = [{"question": "Who and when?", "answer": "Ada, 1843.", "sub_questions": subs, "conversation": "c"}]
    rows.append({"question": "Why?", "answer": "So.", "sub_questions": subs[:1], "conversation": "c", "id": "b"})
    (tmp_path / "s.json").write_text(json.dumps({"questions": rows}))
    script = load_script(tmp_path / "s.json")
    assert [(one.id, one.right_share, one.draft) for one in script.questions] == [("1", 0.5, ""), ("b", 1.0, "")]
    assert script.turns()[1].history == (("Who and when?", "Ada, 1843."),)
    for text, message in (("[1]", "no JSON object"), (json.dumps({"questions": [rows[0]] * 2}), "asks twice")):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(InputError, match=message):
            load_script(tmp_path / "s.json")


# The prompts of search-in-the-chain are exchanges of several messages, which this model does not tell apart.
@pytest.mark.parametrize("name", [name for name, one in ALL_METHODS.items() if one.asks and name != "search-in-the-chain"])
def test_the_replies_know_every_prompt_of_every_method(name: str) -> None:
    script = make_script(2, 0.5, questions=1, missing_share=0.0)
    replies = ScriptedReplies(script)
    said: list[str] = []

    def answer(prompt: str) -> str:
        said.append(replies.reply([("user", prompt)]))
        return said[-1]

    kit = Kit(ScriptedModel(by_prompt=answer), script.retriever(), max_steps=3, samples=1)
    asyncio.run(make_method(name, kit, ALL_METHODS).ainvoke(script.turns()[0]))
    assert NOT_KNOWN not in said != []


def test_the_wire_carries_schemas_stops_streams_and_the_same_usage() -> None:
    script = make_script(2, 1.0, questions=1)
    [one] = script.questions
    prompt = f"Break a question into an action chain\n[Question]: {one.question}"
    with ScriptedServer(script) as server:
        model = chat_model(server.base_url, stream_usage=True)
        plain = model.invoke(prompt)
        chunks = list(model.stream(prompt))
        cut = model.invoke(prompt, stop=['"chain"'])
    assert json.loads(plain.text)["final_answer"] == one.draft
    assert plain.usage_metadata is not None
    assert plain.usage_metadata["input_tokens"] == count_tokens(prompt) + 4
    assert plain.usage_metadata["output_tokens"] == count_tokens(plain.text)
    assert "".join(chunk.text for chunk in chunks) == plain.text
    assert cut.text == plain.text.split('"chain"')[0]


def test_ours_makes_one_or_two_calls_and_the_others_grow_with_the_chain() -> None:
    parts = [make_script(n, share, questions=2) for n in (1, 3, 7) for share in (0.0, 1.0)]
    script = Script(tuple(one for part in parts for one in part.questions))
    found = measure_costs(script, ["ours", "react", "self-ask", "search-in-the-chain"], k=3)
    rows = {(row.method, row.sub_questions, row.right_share): row for row in found.rows}
    for (method, n, share), row in rows.items():
        # Of seven things the look finds three.
        calls = {"ours": 2 if n == 7 else 1, "search-in-the-chain": 1 if share else n + 1}.get(method, n + 1)
        assert row.fewest_calls == row.calls == row.most_calls == calls
        assert row.retrievals == ((5 if n == 7 else 1) if method == "ours" else n)

    def growth(method: str) -> float:
        return rows[method, 7, 0.0].total_tokens / rows[method, 1, 0.0].total_tokens

    assert growth("ours") < 5 < min(growth(method) for method in ("react", "self-ask", "search-in-the-chain"))


def test_the_command_prints_a_table_and_writes_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["costs", *arguments, "--methods", "ours,react"])
        main()
        return capsys.readouterr().out

    files = ["--save-script", str(tmp_path / "s.json")]
    assert "Counted under a script" in run("--sub-questions", "1,2", "--right", "0,1", "--questions", "1", *files)
    again = json.loads(run(str(tmp_path / "s.json"), "--json"))
    assert [row["calls"] for row in again["rows"]] == [1, 2, 1, 3, 1, 2, 1, 3]
