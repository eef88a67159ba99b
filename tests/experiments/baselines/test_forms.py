"""The forms of the baselines one by one: what is read of a reply, what the next prompt holds, what the answer is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from experiments.baselines.methods import ALL_METHODS
from experiments.baselines.replies import short_answer
from experiments.baselines.search_in_the_chain import read_chain
from experiments.baselines.without_retrieval import majority
from langgraph_convcoa.evaluation.methods.base import SAMPLE, Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from tests.experiments.baselines.served import ASKING
from tests.fakes import KeywordRetriever, ScriptedModel
from tests.openai_server import OpenAIServer

QUESTION = "Which came first, the Hopfield network or sparsemax?"
TURN = Turn("q1", "c1", QUESTION)
LATER = Turn("q2", "c1", "And who described it?", ((QUESTION, "The Hopfield network."),))


class Sampling(ScriptedModel):
    """Replies by the number of the sample that is asked for."""

    by_sample: list[str]

    def _next(self, messages: list[BaseMessage]) -> str:
        self._prompts.append(messages[-1].text)
        return self.by_sample[SAMPLE.get()]


def run(name: str, *replies: str, turn: Turn = TURN, **kit: Any) -> tuple[Outcome, list[str]]:
    model = ScriptedModel(replies=list(replies))
    outcome = asyncio.run(make_method(name, Kit(model, KeywordRetriever(), **kit), ALL_METHODS).ainvoke(turn))
    assert not model.replies, "every reply was asked for"
    return outcome, model.prompts


@pytest.mark.parametrize(
    "name", ["closed-book", "few-shot", "chain-of-thought", "least-to-most", "self-ask", "react", "dsp", "chain-of-action"]
)
def test_the_conversation_stands_in_every_first_prompt(name: str) -> None:
    model = ScriptedModel(by_prompt=lambda prompt: "So the final answer is: John Hopfield")
    asyncio.run(make_method(name, Kit(model, KeywordRetriever(), max_steps=1), ALL_METHODS).ainvoke(LATER))
    assert f"User: {QUESTION}\nAssistant: The Hopfield network.\n" in model.prompts[0]
    assert LATER.question in model.prompts[0]


def test_few_shot_shows_its_examples() -> None:
    outcome, prompts = run("few-shot", "Answer: 1982\nQuestion: Next?")
    assert outcome.answer == "1982"
    assert "capital is Lima?\nAnswer: South America" in prompts[0]


def test_chain_of_thought_has_the_trigger_and_gives_the_short_answer() -> None:
    outcome, prompts = run("chain-of-thought", "1982 is before 2016.\nSo the answer is: the Hopfield network.")
    assert (outcome.answer, outcome.malformed) == ("the Hopfield network", 0)
    assert prompts[0].endswith("Let's think step by step.")
    assert "Lima" not in prompts[0]
    outcome, _ = run("chain-of-thought", "Hm.\nThe network, I think")
    assert (outcome.answer, outcome.malformed) == ("The network, I think", 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is: Rome.", "Rome"),
        ("So the final answer is: **42**", "42"),
        ("So the answer is: Rome. No. So the answer is: Paris", "Paris"),
        ("The answer is:", None),
        ("Rome", None),
        ("", None),
    ],
)
def test_short_answers(text: str, answer: str | None) -> None:
    assert short_answer(text) == answer


def test_self_consistency_takes_the_answer_of_most_samples() -> None:
    texts = ["So the answer is: 1982.", "So the answer is: sparsemax", "no idea", "So the answer is: Sparsemax!"]
    model = Sampling(by_sample=texts)
    outcome = asyncio.run(make_method("self-consistency", Kit(model, samples=4), ALL_METHODS).ainvoke(TURN))
    assert (outcome.answer, outcome.malformed) == ("sparsemax", 1)
    assert len(set(model.prompts)) == 1, "the same prompt, told apart by the sample alone"
    assert SAMPLE.get() == 0


def test_majority_prefers_the_first_of_equals() -> None:
    assert majority(["b", "a"]) == "b"
    assert majority([]) == ""


def test_least_to_most_hands_each_answer_on() -> None:
    outcome, prompts = run("least-to-most", "1. When A?\n2. When B?", "In 1982.", "In 2016.", "The network")
    assert outcome.answer == "The network"
    assert prompts[3].endswith(
        f"Question: When A?\nAnswer: In 1982.\nQuestion: When B?\nAnswer: In 2016.\nQuestion: {QUESTION}\nAnswer:"
    )
    assert len(run("least-to-most", "- A?\n- B?\n- C?", "a", "b", max_steps=1)[1]) == 3, "at most so many sub-problems"


def test_tree_of_thoughts_keeps_what_most_votes_are_for() -> None:
    replies = ["plan one", "plan two", "plan three", "best choice is 2", "The best choice is 2", "I abstain"]
    replies += ["So the answer is: a", "So the answer is: b", "So the answer is: c"]
    replies += ["The best choice is 9", "The best choice is: **3**", "best choice is 3"]
    outcome, prompts = run("tree-of-thoughts", *replies, samples=3)
    assert (outcome.answer, outcome.malformed) == ("c", 2)
    assert "Plan: plan two" in prompts[6]
    assert "Choice 3:\nplan three" in prompts[3]


def test_self_ask_searches_follow_up_questions() -> None:
    outcome, prompts = run(
        "self-ask",
        "Yes.\nFollow up: When was the Hopfield network described?\nIntermediate answer: I made this up",
        "So the final answer is: the Hopfield network",
    )
    assert outcome.answer == "the Hopfield network"
    assert outcome.passages[0] == "hopfield-1982"
    assert "Intermediate answer: [1] John Hopfield described the Hopfield network in 1982." in prompts[1]
    assert "made this up" not in prompts[1], "cut where the search begins, even if the server does not"


def test_self_ask_asks_for_the_answer_that_it_was_not_given() -> None:
    outcome, prompts = run("self-ask", "No.", "the network")
    assert (outcome.answer, outcome.malformed) == ("the network", 1)
    assert prompts[1].endswith("No.\nSo the final answer is:")
    outcome, _ = run("self-ask", "Follow up: A?", "Follow up: B?", "x", max_steps=1)
    assert (outcome.answer, outcome.malformed) == ("x", 0), "a chain that is cut off was not malformed"


@pytest.mark.parametrize("name", [name for name in ASKING if ALL_METHODS[name].searches and not name.startswith("ours")])
def test_all_that_look_things_up_are_asked_for_citations(name: str) -> None:
    model = ScriptedModel(by_prompt=lambda prompt: "So the final answer is: John Hopfield")
    asyncio.run(make_method(name, Kit(model, KeywordRetriever(), max_steps=1), ALL_METHODS).ainvoke(LATER))
    assert any("[n] behind what passage n" in prompt for prompt in model.prompts)
    assert not any("as short as it can be" in prompt for prompt in model.prompts)


def test_dsp_hops_twice_and_joins_the_passages() -> None:
    outcome, prompts = run(
        "dsp", "First.\nSearch Query: Hopfield 1982", "Then.\nSearch Query: sparsemax", "So.\nAnswer: the network", k=1
    )
    assert (outcome.answer, outcome.passages, outcome.malformed) == ("the network", ("hopfield-1982", "sparsemax-2016"), 0)
    assert "Context:\n[1] John Hopfield" in prompts[1]
    assert "\n[2] Sparsemax" in prompts[2]


def test_search_in_the_chain_corrects_completes_and_ends() -> None:
    network, sparsemax = "When was the Hopfield network described?", "When was sparsemax introduced?"
    outcome, prompts = run(
        "search-in-the-chain",
        f"[Query 1]: {network}\n[Answer 1]: In 1977.\n[Query 2]: {sparsemax}\n[Unsolved Query 2]: {sparsemax}",
        f"[Answer 1]: In 1982.\n[Query 2]: {sparsemax}\n[Unsolved Query 2]: {sparsemax}",
        "[Answer 2]: In 2016.\n[Final Content]: 1982 [1] is before 2016 [2]. So the answer is: the Hopfield network.",
    )
    assert (outcome.answer, outcome.malformed) == ("the Hopfield network", 0)
    assert f'the answer for "{network}" should be "John Hopfield described the Hopfield network in 1982."' in prompts[1]
    assert "change your answer" in prompts[1]
    assert "give your answer" in prompts[2]
    assert outcome.passages[0] == "hopfield-1982"


def test_search_in_the_chain_leaves_a_right_answer_alone() -> None:
    chain = "[Query 1]: When was the Hopfield network described?\n[Answer 1]: John Hopfield described it in 1982.\n"
    outcome, prompts = run("search-in-the-chain", f"{chain}[Final Content]: So the answer is: 1982")
    assert (outcome.answer, len(prompts)) == ("1982", 1)
    outcome, _ = run("search-in-the-chain", chain)
    assert (outcome.answer, outcome.malformed) == ("John Hopfield described it in 1982.", 1)


def test_chains_of_queries_are_read_tolerantly() -> None:
    nodes, final = read_chain("text [query]: A?\n[ANSWER] a\n[Unsolved Query]: B?\n[Final Content] c")
    assert [(node.query, node.answer) for node in nodes] == [("A?", "a"), ("B?", "")]
    assert final == "c"


def test_chain_of_action_keeps_corrects_and_fills() -> None:
    kept = "Sparsemax was introduced by Martins and Astudillo in 2016. It gives sparse probabilities."
    steps = [("What is sparsemax?", kept), ("When was the Hopfield network described?", "In 1977."), ("Who won in 2024?", "")]
    chain = [{"Action": "Knowledge-encoding", "Sub": s, "Guess_answer": g, "Missing_flag": str(not g)} for s, g in steps]
    outcome, prompts = run("chain-of-action", json.dumps({"Chain": chain}), "In 1982.", "[Final Content]: the network", k=1)
    assert [item["status"] for item in outcome.chain] == ["kept", "corrected", "filled"]
    assert [item["answer"] for item in outcome.chain][:2] == [kept, "In 1982."]
    assert outcome.chain[2]["answer"].startswith("The Nobel Prize")
    assert (outcome.answer, outcome.malformed, len(prompts)) == ("the network", 0, 3)
    assert "[Reference]:\n[2] John Hopfield" in prompts[1], "the second passage that was found"
    assert f"[Solved Answer 1]: {kept} [1]\n" in prompts[2]
    assert "[Solved Answer 2]: In 1982.\n" in prompts[2], "what the model wrote has its own marks"
    assert prompts[2].endswith(" [3]"), "the best passage is cited for what is filled with it"


def test_samples_are_drawn_at_a_temperature() -> None:
    from langchain_openai import ChatOpenAI

    with OpenAIServer(lambda body: "So the answer is: x") as server:
        model = ChatOpenAI(model="m", base_url=server.base_url, api_key="none", max_retries=0, temperature=0)
        asyncio.run(make_method("self-consistency", Kit(model, samples=2), ALL_METHODS).ainvoke(TURN))
        assert [body["temperature"] for body in server.requests] == [0.7, 0.7]
