"""The papers' baselines and ablations: the calls that each makes, counted by a server on loopback, and the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.baselines.__main__ import main
from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import Script, ScriptedQuestion, make_script
from experiments.costs.scripted_model import ScriptedServer
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Outcome
from langgraph_convcoa.evaluation.runs.run import Meter
from langgraph_convcoa.verification.trained import DefaultVerifier
from tests.data import write_dataset
from tests.openai_server import OpenAIServer, chat_model

# The scripted server calls no tools, as an agent must.
ASKING = [name for name, one in ALL_METHODS.items() if one.asks and not name.startswith("agent")]
SAMPLES = K = 3
"""Samples of a method that draws some, and passages a search."""


@pytest.fixture(autouse=True)
def _words_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts are about people and places with made-up names: shared words tell their right guesses from the wrong ones."""
    from langgraph_convcoa.verification.verifier import LexicalVerifier

    words = LexicalVerifier()
    monkeypatch.setattr(DefaultVerifier, "support", lambda self, claims, premises: words.support(claims, premises))
    monkeypatch.setattr(DefaultVerifier, "threshold", words.threshold, raising=False)


def ask(name: str, script: Script, k: int = K) -> list[tuple[Outcome, int, int]]:
    """Each question's outcome, the requests that the server got, and the searches."""

    async def run(server: ScriptedServer) -> list[tuple[Outcome, int, int]]:
        model = chat_model(server.base_url)
        settings = ConvCoAContext(max_sub_questions=20)
        kit = Kit(model, script.retriever(), k=k, max_steps=10, samples=SAMPLES, settings=settings)
        method, asked = make_method(name, kit, ALL_METHODS), []
        for turn in script.turns():
            meter, before = Meter(), server.requests
            outcome = await method.ainvoke(turn, {"callbacks": [meter]})
            assert meter.costs().calls == server.requests - before
            asked.append((outcome, server.requests - before, meter.costs().retrievals))
        return asked

    with ScriptedServer(script) as server:
        return asyncio.run(run(server))


def n(one: ScriptedQuestion) -> int:
    return len(one.sub_questions)


def missing(one: ScriptedQuestion) -> int:
    return sum(not sub.guess for sub in one.sub_questions)


def wrong(one: ScriptedQuestion) -> int:
    return sum(bool(sub.guess) and not sub.right for sub in one.sub_questions)


def opened(one: ScriptedQuestion) -> int:
    """What the first look does not find: it finds a passage for each of k sub-questions."""
    return max(n(one) - K, 0)


def ours(one: ScriptedQuestion) -> int:
    """The plan, which answers where the look has found everything; else one more call for all that is looked up."""
    return 2 if opened(one) else 1


def guessing(one: ScriptedQuestion) -> int:
    """The papers' form: the plan, whose draft is the answer where every guess is right; else one more call."""
    return 2 if wrong(one) or missing(one) else 1


CALLS: dict[str, Callable[[ScriptedQuestion], int]] = {
    **dict.fromkeys(("closed-book", "few-shot", "chain-of-thought", "history-aware-rag"), lambda one: 1),
    "self-consistency": lambda one: SAMPLES,
    # The decomposition, each sub-problem, the question itself.
    "least-to-most": lambda one: 1 + n(one) + 1,
    # Two levels, each with k thoughts and k votes.
    "tree-of-thoughts": lambda one: 2 * (SAMPLES + SAMPLES),
    # A call for each follow-up question, and one that ends.
    **dict.fromkeys(("self-ask", "react"), lambda one: n(one) + 1),
    # Two hops and the prediction.
    "dsp": lambda one: 2 + 1,
    # The chain, and again after each correction or completion.
    "search-in-the-chain": lambda one: 1 + wrong(one) + missing(one),
    # The chain, a summary for each conflict, the answer; missing guesses are filled with the best passage.
    "chain-of-action": lambda one: 1 + wrong(one) + 1,
    **dict.fromkeys(("ours", "ours-without-cks"), ours),
    **dict.fromkeys(("ours-without-look", "ours-without-filling"), guessing),
    **dict.fromkeys(("ours-without-alignment", "ours-without-verification", "ours-without-draft"), lambda one: 2),
}
SEARCHES: dict[str, Callable[[ScriptedQuestion], int]] = {
    **{name: n if ALL_METHODS[name].searches else lambda one: 0 for name in ASKING},
    "dsp": lambda one: 2,
    "history-aware-rag": lambda one: 1,
    **dict.fromkeys(("ours", "ours-without-cks", "ours-without-draft"), lambda one: 1 + opened(one)),
}


@pytest.mark.parametrize("name", ASKING)
def test_calls_are_those_of_the_paper(name: str) -> None:
    made = [make_script(subs, share, questions=2, seed=4) for subs, share in ((1, 0.0), (3, 0.5), (3, 1.0), (5, 0.5))]
    script = Script(tuple(one for part in made for one in part.questions))
    for one, (outcome, requests, searches) in zip(script.questions, ask(name, script), strict=True):
        assert (requests, searches, outcome.malformed) == (CALLS[name](one), SEARCHES[name](one), 0), one.id


def test_the_command_measures_the_methods_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    question = {"id": "q", "question": "When were the ants counted?", "answer": "1900", "gold": ["p"], "split": "dev"}
    folder = write_dataset(tmp_path / "ants", [question], [{"id": "p", "text": "The ants were counted in 1900."}])
    with OpenAIServer(lambda body: "So the final answer is: 1900") as server:
        arguments = [str(folder), "--model", "test", "--base-url", server.base_url, "--out", str(tmp_path / "run"), "--json"]
        monkeypatch.setattr("sys.argv", ["baselines", *arguments, "--methods", "few-shot,self-ask"])
        main()
    report = json.loads(capsys.readouterr().out)
    assert list(report["methods"]) == ["few-shot", "self-ask"]
    assert report["methods"]["self-ask"]["quality"]["cover_em"]["mean"] == 1
