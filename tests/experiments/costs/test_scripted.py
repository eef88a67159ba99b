"""Scripts, the replies to them and the server that gives these over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_openai import ChatOpenAI

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import NOT_KNOWN, Script, load_script, make_script
from experiments.costs.scripted_model import ScriptedReplies, ScriptedServer, count_tokens
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.verification import Evidence, as_verifier, judge
from langgraph_convcoa.verification.verdicts import as_claim
from tests.experiments.baselines.served import ASKING
from tests.fakes import ScriptedModel


def model_of(server: ScriptedServer, **settings: Any) -> ChatOpenAI:
    return ChatOpenAI(model="script", base_url=server.base_url, api_key="none", max_retries=0, **settings)


@given(st.integers(1, 7), st.floats(0, 1), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99))
def test_made_scripts_have_the_shares_that_are_asked_for(
    n: int, share: float, questions: int, missing: float, seed: int
) -> None:
    script = make_script(n, share, questions, seed=seed, missing_share=missing)
    subs = [sub for one in script.questions for sub in one.sub_questions]
    assert len(script.questions) == questions
    assert len(subs) == n * questions
    right = sum(sub.right for sub in subs)
    assert abs(right - share * len(subs)) <= 0.5
    assert abs(sum(not sub.guess for sub in subs) - missing * (len(subs) - right)) <= 0.5
    assert all((sub.guess == sub.answer) == sub.right for sub in subs)
    assert script == make_script(n, share, questions, seed=seed, missing_share=missing)


def test_the_verification_tells_right_guesses_of_made_scripts_from_wrong_ones() -> None:
    script = make_script(4, 0.5, questions=10, missing_share=0.0, sentences=6)
    passages = script.retriever()
    for one in script.questions:
        for sub in one.sub_questions:
            found = passages.invoke(f"{sub.question} {sub.guess}")
            assert found[0].page_content == sub.passage
            assert len(found) == 5
            [verdict] = judge([as_claim(sub.guess, sub.question)], Evidence.of(found), as_verifier("lexical"))
            assert verdict.supported == sub.right


def test_a_script_reads_back_the_same(tmp_path: Path) -> None:
    script = make_script(3, 0.4, questions=4)
    script.save(tmp_path / "script.json")
    assert load_script(tmp_path / "script.json") == script


def test_a_script_by_hand_needs_only_questions_answers_and_guesses(tmp_path: Path) -> None:
    subs = [{"question": "Who?", "answer": "Ada.", "guess": "Ada.", "right": True}, {"question": "When?", "answer": "1843."}]
    rows = [{"question": "Who and when?", "answer": "Ada, 1843.", "sub_questions": subs, "conversation": "c"}]
    rows.append({"question": "Why?", "answer": "So.", "sub_questions": subs[:1], "conversation": "c", "id": "b"})
    (tmp_path / "s.json").write_text(json.dumps({"questions": rows}))
    script = load_script(tmp_path / "s.json")
    assert [(one.id, one.right_share, one.draft) for one in script.questions] == [("1", 0.5, ""), ("b", 1.0, "")]
    assert script.turns()[1].history == (("Who and when?", "Ada, 1843."),)
    assert {found.page_content for found in script.retriever().invoke("Ada 1843")} == {"Ada.", "1843."}


ROW = {"question": "Q?", "answer": "a", "sub_questions": [{"question": "S?", "answer": "a"}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "no JSON object"),
        ("[1]", "no JSON object"),
        ('{"questions": []}', "holds no questions"),
        ('{"questions": [3]}', r"questions\[0\]"),
        (json.dumps({"questions": [{**ROW, "answer": ""}]}), r"questions\[0\]\.answer: String should have at least 1"),
        (json.dumps({"questions": [{**ROW, "sub_questions": []}]}), r"questions\[0\]\.sub_questions: "),
        (
            json.dumps({"questions": [{**ROW, "sub_questions": [{"question": "S?"}]}]}),
            r"sub_questions\[0\]\.answer: Field",
        ),
        (json.dumps({"questions": [{**ROW, "sub_questions": [{**ROW, "right": True}]}]}), "there must be a guess"),
        (json.dumps({"questions": [ROW, ROW]}), "asks twice: 'Q\\?'"),
    ],
)
def test_a_bad_script_is_one_line_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_script(path)
    assert "\n" not in str(caught.value)


def test_bad_numbers_and_files_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_script(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be written"):
        make_script(1, 1.0).save(tmp_path / "none" / "s.json")
    with pytest.raises(InputError, match="at least 1"):
        make_script(0, 1.0)


# The prompts of search-in-the-chain are exchanges of several messages, which this model does not tell apart.
@pytest.mark.parametrize("name", [name for name in ASKING if name != "search-in-the-chain"])
def test_the_replies_know_every_prompt_of_every_method(name: str) -> None:
    """A prompt that no reply knows gets the answer of one who knows nothing, which this script never gives."""
    script = make_script(2, 0.5, questions=1, missing_share=0.0)
    replies = ScriptedReplies(script)
    said: list[str] = []

    def answer(prompt: str) -> str:
        said.append(replies.reply([("user", prompt)]))
        return said[-1]

    kit = Kit(ScriptedModel(by_prompt=answer), script.retriever(), max_steps=3, samples=1)
    asyncio.run(make_method(name, kit, ALL_METHODS).ainvoke(script.turns()[0]))
    assert said
    assert NOT_KNOWN not in said


def test_strangers_get_no_answer() -> None:
    replies = ScriptedReplies(make_script(1, 1.0, questions=1))
    assert replies.reply([("user", "Which architects gave plans for everything?")]) == NOT_KNOWN


def test_the_wire_carries_schemas_stops_streams_and_the_same_usage() -> None:
    script = make_script(2, 1.0, questions=1)
    one = script.questions[0]
    prompt = f"Break a question into an action chain\n[Question]: {one.question}"
    with ScriptedServer(script) as server:
        model = model_of(server)
        plain = model.invoke(prompt)
        schema = {"title": "chain", "type": "object", "properties": {"chain": {"type": "array"}}}
        typed = model.with_structured_output(schema, method="json_schema", include_raw=True).invoke(prompt)
        chunks = list(model_of(server, stream_usage=True).stream(prompt))
        cut = model.invoke(prompt, stop=['"chain"'])
        assert server.requests == 4
    assert json.loads(plain.text)["final_answer"] == one.draft
    assert plain.usage_metadata is not None
    assert plain.usage_metadata["input_tokens"] == count_tokens(prompt) + 4
    assert plain.usage_metadata["output_tokens"] == count_tokens(plain.text)
    assert typed["parsed"] == json.loads(plain.text)
    assert typed["raw"].usage_metadata["input_tokens"] > plain.usage_metadata["input_tokens"], "a schema is input too"
    assert "".join(chunk.text for chunk in chunks) == plain.text
    usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert [usage["output_tokens"] for usage in usages] == [plain.usage_metadata["output_tokens"]]
    assert cut.text == plain.text.split('"chain"')[0]


def test_turns_of_a_conversation_are_answered_for_the_last_question() -> None:
    parts = [make_script(2, 1.0, questions=1, seed=seed).questions[0] for seed in (1, 2)]
    script = Script(tuple(type(one)(**{**vars(one), "conversation": "c", "id": str(n)}) for n, one in enumerate(parts)))
    with ScriptedServer(script) as server:
        for name in ("ours", "react", "least-to-most", "history-aware-rag"):
            method = make_method(name, Kit(model_of(server), script.retriever(), max_steps=4), ALL_METHODS)
            outcomes = [asyncio.run(method.ainvoke(turn)) for turn in script.turns()]
            answers = [outcome.answer.replace(" [1]", "").replace(" [2]", "").rstrip(".") for outcome in outcomes]
            assert answers == [one.answer.rstrip(".") for one in parts], name
