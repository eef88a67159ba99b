"""Replies of the model of a script: in the form that each method's prompt asks for, the same to the same question.

A prompt is known by the instruction that its method gives, a question by its text. The scripted model believes its guesses
until it is shown what was found; then it says what is right, and concludes that from a chain that holds all right answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from langgraph_convcoa.evaluation.costs.scripted import NOT_KNOWN, Script, ScriptedQuestion, ScriptedSub
from langgraph_convcoa.evaluation.methods import chain_of_action, react, search_in_the_chain, with_retrieval, without_retrieval

_PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_")


def count_tokens(text: str) -> int:
    """Tokens of a text: runs of at most six letters or three digits, and each other sign; one count for all methods.

    Example:
        >>> count_tokens("Answer the question: 1982!")
        8
    """
    return len(_PIECE.findall(text))


@dataclass(frozen=True)
class _Prompt:
    """A request: its messages by role, all of their text, and the question whose text, or a sub-question's, comes last."""

    messages: Sequence[tuple[str, str]]
    text: str
    one: ScriptedQuestion

    @property
    def tail(self) -> str:
        """What follows the question."""
        return self.text[self.text.rfind(self.one.question) + len(self.one.question) :]


class ScriptedReplies:
    """Replies from a script.

    Args:
        script: The questions.

    Example:
        >>> from langgraph_convcoa.evaluation.costs.scripted import make_script
        >>> script = make_script(1, 1.0, questions=1)
        >>> prompt = f"{without_retrieval.CLOSED_BOOK} Question: {script.questions[0].question}"
        >>> ScriptedReplies(script).reply([("user", prompt)]) == script.questions[0].draft
        True
    """

    def __init__(self, script: Script) -> None:
        self._texts = [
            (text, one) for one in script.questions for text in (one.question, *(sub.question for sub in one.sub_questions))
        ]

    def reply(self, messages: Sequence[tuple[str, str]]) -> str:
        """The reply to a request, given as pairs of role and text.

        "I do not know." to a prompt that no method writes, and to a question that is not in the script.
        """
        text = "\n".join(content for _, content in messages)
        place, one = max(((text.rfind(wanted), one) for wanted, one in self._texts), key=lambda found: found[0])
        answer = next((answer for marker, answer in _BY_MARKER.items() if marker in text), None)
        return answer(_Prompt(messages, text, one)) if answer is not None and place >= 0 else NOT_KNOWN


def _belief(one: ScriptedQuestion) -> str:
    return one.draft or NOT_KNOWN


def _thought(prompt: _Prompt) -> str:
    guesses = " ".join(sub.guess or f"{NOT_KNOWN} ({sub.question})" for sub in prompt.one.sub_questions)
    return f"{guesses} So the answer is: {_belief(prompt.one)}"


def _solved(prompt: _Prompt) -> str:
    """Least-to-most: the answer to a sub-question, or to the question itself."""
    last = prompt.text.rstrip().removesuffix("Answer:").rstrip().rsplit("Question: ", 1)[-1]
    sub = _sub(prompt.one, last)
    return (sub.guess or NOT_KNOWN) if sub is not None else _belief(prompt.one)


def _sub(one: ScriptedQuestion, question: str) -> ScriptedSub | None:
    return next((sub for sub in one.sub_questions if sub.question == question.strip()), None)


def _decomposed(prompt: _Prompt) -> str:
    return "\n".join(f"{n}. {sub.question}" for n, sub in enumerate(prompt.one.sub_questions, 1))


def _planned_thought(prompt: _Prompt) -> str:
    return f"Find out: {' '.join(sub.question for sub in prompt.one.sub_questions)}"


def _followed_up(prompt: _Prompt) -> str:
    """Self-ask: the next follow-up question, or the answer."""
    if prompt.text.rstrip().endswith("So the final answer is:"):
        return prompt.one.answer
    asked = prompt.tail.count("Intermediate answer:")
    if asked >= len(prompt.one.sub_questions):
        return f"So the final answer is: {prompt.one.answer}"
    follow_up = f"Follow up: {prompt.one.sub_questions[asked].question}\nIntermediate answer:"
    return follow_up if asked else f"Yes.\n{follow_up}"


def _acted(prompt: _Prompt) -> str:
    """ReAct: the next search, or the end."""
    asked = prompt.tail.count("\nObservation ")
    done = asked >= len(prompt.one.sub_questions)
    action = f"Finish[{prompt.one.answer}]" if done else f"Search[{prompt.one.sub_questions[asked].question}]"
    if re.search(r"Action \d+:\s*\Z", prompt.text):
        return action
    thought = "I can answer now." if done else f"I need to find out: {prompt.one.sub_questions[asked].question}"
    return f"{thought}\nAction {asked + 1}: {action}\nObservation {asked + 1}:"


def _hopped(prompt: _Prompt) -> str:
    subs = prompt.one.sub_questions
    sub = subs[min(int("\nContext:\n" in prompt.text), len(subs) - 1)]
    return f"We need to find out what the context does not say yet.\nSearch Query: {sub.question}"


def _chained(prompt: _Prompt) -> str:
    """Search-in-the-chain: the chain from the node that was corrected last, with what was learnt so far."""
    told = [content for role, content in prompt.messages[1:] if role == "user"]
    subs = prompt.one.sub_questions
    known = {sub.question for sub in subs if any(f'the answer for "{sub.question}"' in content for content in told)}
    start = max((n for n, sub in enumerate(subs) if sub.question in known and sub.question in told[-1]), default=0)
    lines, complete = [], True
    for number, sub in enumerate(subs[start:], start + 1):
        answer = sub.answer if sub.question in known else sub.guess
        lines.append(f"[Query {number}]: {sub.question}")
        lines.append(f"[Answer {number}]: {answer}" if answer else f"[Unsolved Query {number}]: {sub.question}")
        complete = complete and bool(answer)
    if complete:
        lines.append(f"[Final Content]: So the answer is: {prompt.one.answer}")
    return "\n".join(lines)


def _planned(prompt: _Prompt) -> str:
    """The plan of ours, with the first action that the prompt names."""
    named = re.search(r"can look things up:\n- ([\w-]+):", prompt.text)
    action = named.group(1) if named else ""
    chain = [
        {
            "action": action,
            "sub": sub.question,
            "guess_answer": sub.guess,
            "missing_flag": not sub.guess,
            "action_input": "",
        }
        for sub in prompt.one.sub_questions
    ]
    plan = {"optimized_question": prompt.one.question, "chain": chain, "final_answer": prompt.one.draft}
    return json.dumps(plan, ensure_ascii=False)


def _coa_chain(prompt: _Prompt) -> str:
    chain = [
        {
            "Action": chain_of_action.ACTION,
            "Sub": sub.question,
            "Guess_answer": sub.guess,
            "Missing_flag": str(not sub.guess),
        }
        for sub in prompt.one.sub_questions
    ]
    found = {"Question": prompt.one.question, "Chain": chain, "Final_answer": prompt.one.draft}
    return json.dumps(found, ensure_ascii=False)


def _rewritten(prompt: _Prompt) -> str:
    """The correction of a chain of action, one sub-question a call."""
    return next(
        (sub.answer for sub in prompt.one.sub_questions if f"[Sub-question]: {sub.question}" in prompt.text), NOT_KNOWN
    )


def _corrected(prompt: _Prompt) -> str:
    """The corrections of ours, for the sub-questions that are listed."""
    answers = []
    for number, question in re.findall(r"^\[Sub-question (\d+)\]: (.+)$", prompt.text, re.MULTILINE):
        sub = _sub(prompt.one, question)
        answer = sub.answer if sub is not None else ""
        reason = "Evidence 1 says so." if answer else ""
        answers.append({"index": int(number), "answer": answer, "reason": reason, "supported": bool(answer)})
    return json.dumps({"answers": answers}, ensure_ascii=False)


def _concluded(prompt: _Prompt) -> str:
    """The final answer from a solved chain: the right one where it holds every right answer."""
    solved = re.findall(r"\[Solved answer \d+\]: (.+)", prompt.tail, re.IGNORECASE)
    known = all(any(sub.answer in text for text in solved) for sub in prompt.one.sub_questions)
    return prompt.one.answer if known else _belief(prompt.one)


_BY_MARKER: Mapping[str, Callable[[_Prompt], str]] = MappingProxyType(
    {
        without_retrieval.CLOSED_BOOK: lambda prompt: _belief(prompt.one),
        without_retrieval.FEW_SHOT: lambda prompt: _belief(prompt.one),
        without_retrieval.CHAIN_OF_THOUGHT: _thought,
        without_retrieval.DECOMPOSE: _decomposed,
        without_retrieval.SOLVE: _solved,
        without_retrieval.PLAN: _planned_thought,
        without_retrieval.CARRY_OUT: _thought,
        without_retrieval.VOTE: lambda prompt: "They say the same.\nThe best choice is 1",
        with_retrieval.SELF_ASK: _followed_up,
        react.INSTRUCTION: _acted,
        with_retrieval.DSP_SEARCH: _hopped,
        with_retrieval.DSP_PREDICT: lambda prompt: f"The context says it.\nAnswer: {prompt.one.answer}",
        search_in_the_chain.INSTRUCTION: _chained,
        chain_of_action.CHAIN: _coa_chain,
        chain_of_action.CORRECT: _rewritten,
        chain_of_action.FINAL: lambda prompt: f"[Final Content]: {_concluded(prompt)}",
        with_retrieval.REWRITE: lambda prompt: prompt.one.question,
        with_retrieval.READ: lambda prompt: prompt.one.answer,
        "Break a question into an action chain": _planned,
        "Continue a conversation: find out what the new question really asks": _planned,
        "Answer sub-questions from evidence": _corrected,
        "Answer the question from the solved reasoning chain": lambda prompt: f"{_concluded(prompt)} [1]",
    }
)
