"""Reading what models write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.reasoning.parsing import parse_chain, parse_corrections, without_thought
from langgraph_convcoa.text.clean import clean
from tests.fakes import node, plan

ACTIONS = ["knowledge_retrieval", "web_querying", "data_analysis"]


def parse(output: Any, **more: Any) -> Any:
    return parse_chain(output, question="q?", actions=ACTIONS, **more)


GOOD: dict[str, Any] = json.loads(plan(node("s?")))
MALFORMED = {
    "code fence": f"Here you are:\n```json\n{json.dumps(GOOD)}\n```\nAnything else?",
    "python": str(GOOD),
    "single quotes": str(GOOD).replace("True", "true"),
    "trailing commas": json.dumps(GOOD).replace("}]", ",},]"),
    "truncated": json.dumps(GOOD)[:-40],
    "unknown action": json.dumps({"chain": [{"action": "Oracle", "Sub": "s?"}]}),
    "nested lists": json.dumps({"chain": [[[{"Action": "Knowledge-retrieval", "Sub": "s?"}]]]}),
    "bare list": json.dumps([{"action": "Knowledge", "sub_question": "s?"}]),
    "strings for nodes": json.dumps({"chain": ["s?"]}),
    "the paper's shape": '{"question": {"optimized_question": "When?"}, "chain": {"action": "Knowledge-retrieval",'
    ' "Sub": "s?", "guess_answer": ""}, "final_answer": ""}',
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_plans_are_read(text: str) -> None:
    assert [(one.sub_question, one.action, one.is_missing) for one in parse(text).nodes] == [("s?", ACTIONS[0], True)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Web-querying", "web_querying"), ("Web-querying Engine", "web_querying"), ("web", "web_querying"),
        ("DATA ANALYSIS", "data_analysis"), ("Data-analyzing", "data_analysis"),
        ("Knowledge-retrieval", "knowledge_retrieval"), ("Oracle", "knowledge_retrieval"), ("", "knowledge_retrieval"),
        (None, "knowledge_retrieval"),
    ],
)  # fmt: skip
def test_action_names_are_mended(written: str | None, meant: str) -> None:
    assert parse({"chain": [{"action": written, "sub": "s?"}]}).nodes[0].action == meant


@pytest.mark.parametrize(
    ("flag", "missing"),
    [("True", True), ("true", True), (True, True), (1, True), ("False", False), (False, False), (None, False)],
)
def test_missing_flags(flag: object, missing: bool) -> None:
    step = {"Sub": "s?", "Guess_answer": "a guess", "Missing_flag": flag}
    assert parse({"chain": [step]}).nodes[0].is_missing is missing


def test_a_blank_guess_is_missing_whatever_the_flag_says() -> None:
    assert parse({"chain": [{"sub": "s?", "guess_answer": " ", "missing_flag": False}]}).nodes[0].is_missing


def test_all_fields_arrive() -> None:
    step = {"Action": "data_analysis", "Sub": "s?", "Guess_answer": "g", "Missing_flag": "False", "Action_input": "SELECT 1"}
    chain = parse({"Optimized_question": "o?", "Chain": [step], "Final_answer": "f"})
    assert (chain.optimized_question, chain.draft_answer) == ("o?", "f")
    assert chain.nodes[0].model_dump() == {
        "action": "data_analysis",
        "sub_question": "s?",
        "guess_answer": "g",
        "missing": False,
        "action_input": "SELECT 1",
    }


def test_repeated_and_surplus_nodes_are_dropped() -> None:
    steps = [{"sub": f"s{n % 30}?"} for n in range(50)]
    assert [one.sub_question for one in parse({"chain": steps}, max_sub_questions=4).nodes] == ["s0?", "s1?", "s2?", "s3?"]


@pytest.mark.parametrize("text", ["", "prose", "42", "null", "[]", "{}", '{"a": 1}', "[1, 2]", "{{{{", "```json\n```"])
def test_nothing_to_read(text: str) -> None:
    assert parse(text) is None


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    for output in (text, "{" + text, "```json\n[" + text, '{"chain": ' + text):
        chain = parse(output)
        assert chain is None or all(one.action in ACTIONS and one.sub_question for one in chain.nodes)
        parse_corrections(output)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["chain", "sub", "action", "guess_answer", "missing_flag", "answers", "index", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_survived(value: Any) -> None:
    chain = parse(json.dumps(value))
    assert chain is None or all(one.sub_question for one in chain.nodes)
    parse_corrections(json.dumps(value))


@given(
    st.lists(
        st.text(min_size=1, max_size=30).filter(str.strip),
        min_size=1,
        max_size=6,
        unique_by=lambda s: clean(s).strip().casefold(),
    )
)
def test_well_formed_chains_come_back_whole(subs: list[str]) -> None:
    text = json.dumps({"chain": [{"action": "web_querying", "sub": sub} for sub in subs]})
    assert [one.sub_question for one in parse(text).nodes] == [clean(sub).strip() for sub in subs]


def test_deep_nesting_and_size_are_bounded() -> None:
    assert parse("[" * 100_000) is None
    parse('{"chain": ["' + "x" * 1_000_000 + '"]}')


def test_corrections_in_several_shapes() -> None:
    one = {"answer": "a", "evidence": [], "reason": "", "status": "supported"}
    assert parse_corrections('{"answers": [{"answer": "a"}]}') == ({1: one}, "")
    assert parse_corrections('[{"index": "Sub 2", "answer": "a"}]') == ({2: one}, "")
    assert parse_corrections('{"index": 3, "answer": "a", "supported": "false"}') == ({3: {**one, "status": "none"}}, "")
    assert parse_corrections('{"answers": {"1": {"index": 1, "answer": "a"}}}') == ({1: one}, "")
    assert parse_corrections('{"answers": [{"index": 1, "answer": "a", "status": "Partially", "evidence": "[2], [3]"}]}') == (
        {1: {**one, "status": "partial", "evidence": [2, 3]}},
        "",
    )


@pytest.mark.parametrize(
    "reply",
    [
        "In 1982 [1].",
        '{"final_answer": "In 1982 [1]."}',
        '{"answers": [], "answer": "x", "final": "In 1982 [1]."}',
        '{"answer": "In 1982 [1]."}',
    ],
)
def test_a_final_answer_is_found_with_and_without_corrections(reply: str) -> None:
    assert parse_corrections(reply) == ({}, "In 1982 [1].")


@pytest.mark.parametrize("noise", ["\ufffd" * 8, " . . . ", "---", "\n\t", "…!?", "#-BL\x13)", "-I~m\ufffd\x05\ufffd"])
def test_what_is_no_text_is_no_final_answer(noise: str) -> None:
    assert parse_corrections(noise) == ({}, "")
    assert parse_corrections(json.dumps({"answers": [], "final_answer": noise})) == ({}, "")
    chain = parse_chain(json.dumps({"chain": [], "final_answer": noise}), question="Who?", actions=["look"])
    assert chain is None or not chain.draft_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm.</think>It was 1982.", "It was 1982."), ("\n<think>\nHm.\n</think>\n\nIt was 1982.", "It was 1982."),
        ("<think>never closed", ""), ("It <think>was</think> 1982.", "It <think>was</think> 1982."), ("<thin", "<thin"),
        ("", ""),
    ],
)  # fmt: skip
def test_only_a_thought_at_the_beginning_goes(text: str, answer: str) -> None:
    assert without_thought(text) == answer
