"""The simulated model: deterministic replies in the form of each method, served over the OpenAI wire format.

A prompt is recognised by the instruction of its method, a question by its text. The scripted model believes its guesses until
it sees the evidence. Then it gives the right answers. It concludes the final answer from a chain with all right answers.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any

from experiments.baselines import chain_of_action, search_in_the_chain, with_retrieval, without_retrieval
from experiments.costs.scripted import NOT_KNOWN, Script, ScriptedQuestion, ScriptedSub
from langgraph_convcoa.evaluation.methods import prompting

_PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_")
_CHUNK = 16
_TOKENS_PER_MESSAGE = 4
"""Tokens of the marks around a message in a chat format."""


def count_tokens(text: str) -> int:
    """Tokens of a text: runs of at most six letters or three digits, and each other sign; one count for all methods.

    Example:
        >>> count_tokens("Answer the question: 1982!")
        8
    """
    return len(_PIECE.findall(text))


@dataclass(frozen=True)
class _Prompt:
    """A request: its messages by role, their joined text, and the question that the text names last."""

    messages: Sequence[tuple[str, str]]
    text: str
    one: ScriptedQuestion

    @property
    def tail(self) -> str:
        """The text after the question."""
        return self.text[self.text.rfind(self.one.question) + len(self.one.question) :]


class ScriptedReplies:
    """Replies from a script."""

    def __init__(self, script: Script) -> None:
        self._texts = [
            (text, one) for one in script.questions for text in (one.question, *(sub.question for sub in one.sub_questions))
        ]

    def reply(self, messages: Sequence[tuple[str, str]]) -> str:
        """The reply to a request, given as pairs of role and text.

        It is "I do not know." for a prompt of no known method, and for a question that is not in the script.
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
    """The plan of our method in the papers' form, from guesses."""
    steps = [(sub.question, sub.guess) for sub in prompt.one.sub_questions]
    return _plan(prompt, steps, prompt.one.draft)


def _planned_over_evidence(prompt: _Prompt) -> str:
    """The plan of our method over passages: the answer if they hold all of it, else a chain of the missing parts.

    The prompt allows an answer if half of it is there. The script gives only whole answers, as for the other methods.
    """
    shown = _shown(prompt.text)
    missing = [(sub.question, "") for sub in prompt.one.sub_questions if not _holding(shown, sub)]
    return _plan(prompt, missing, "" if missing else _cited(prompt.one, shown))


def _plan(prompt: _Prompt, steps: Sequence[tuple[str, str]], final: str) -> str:
    """A plan of sub-questions and guesses, with the first action that the prompt names."""
    named = re.search(r"(?:can look things up|Actions):\n- ([\w-]+):", prompt.text)
    action = named.group(1) if named else ""
    chain = [
        {"action": action, "sub": question, "guess_answer": guess, "missing_flag": not guess, "action_input": ""}
        for question, guess in steps
    ]
    return json.dumps({"optimized_question": prompt.one.question, "chain": chain, "final_answer": final}, ensure_ascii=False)


def _shown(text: str) -> dict[int, str]:
    """The evidence in a prompt of our method, by number."""
    inside = re.search(r"<(evidence-\w+)>\n(.*?)\n</\1>", text, re.DOTALL)
    pieces = re.split(r"^\[(\d+)\] .*\n", inside.group(2), flags=re.MULTILINE)[1:] if inside else []
    return {int(number): piece for number, piece in zip(pieces[::2], pieces[1::2], strict=True)}


def _holding(shown: Mapping[int, str], sub: ScriptedSub) -> list[int]:
    """The number of the evidence that holds the answer to a sub-question, in a list; [] if no evidence holds it."""
    return [number for number, text in shown.items() if sub.answer in text][:1]


def _cited(one: ScriptedQuestion, shown: Mapping[int, str]) -> str:
    """The right answer, each part with the number of its evidence; the model's belief if a part has no evidence."""
    found = [(sub.answer, _holding(shown, sub)) for sub in one.sub_questions]
    if not all(numbers for _, numbers in found):
        return _belief(one)
    if " ".join(answer for answer, _ in found) != one.answer:
        return f"{one.answer} {''.join(f'[{numbers[0]}]' for _, numbers in found)}"
    return " ".join(f"{answer.rstrip('.')} [{numbers[0]}]." for answer, numbers in found)


def _coa_chain(prompt: _Prompt) -> str:
    chain = []
    for sub in prompt.one.sub_questions:
        guess = {"Guess_answer": sub.guess, "Missing_flag": str(not sub.guess)}
        chain.append({"Action": chain_of_action.ACTION, "Sub": sub.question, **guess})
    found = {"Question": prompt.one.question, "Chain": chain, "Final_answer": prompt.one.draft}
    return json.dumps(found, ensure_ascii=False)


def _rewritten(prompt: _Prompt) -> str:
    """The correction of a chain of action, one sub-question a call."""
    known = (sub.answer for sub in prompt.one.sub_questions if f"[Sub-question]: {sub.question}" in prompt.text)
    return next(known, NOT_KNOWN)


def _corrected(prompt: _Prompt) -> str:
    """Our method: the answers to the open sub-questions, and to the question."""
    shown = _shown(prompt.text)
    listed = re.findall(r"^(\d+)\. (.+) \(open(?:\)$|; )", prompt.text, re.MULTILINE)
    answers = [_verdict(int(number), _sub(prompt.one, question), shown) for number, question in listed]
    return json.dumps({"answers": answers, "final_answer": _cited(prompt.one, shown)}, ensure_ascii=False)


def _confirmed(prompt: _Prompt) -> str:
    """Our method: the sentences of an answer, each as it is if the evidence holds it, else corrected."""
    shown = _shown(prompt.text)
    answers = []
    for number, sentence in re.findall(r"^\((\d+)\) (.+)$", prompt.text, re.MULTILINE):
        meant = (sub for sub in prompt.one.sub_questions if sentence.strip() in (sub.guess, sub.answer))
        answers.append(_verdict(int(number), next(meant, None), shown))
    return json.dumps({"answers": answers}, ensure_ascii=False)


def _verdict(number: int, sub: ScriptedSub | None, shown: Mapping[int, str]) -> dict[str, Any]:
    held = _holding(shown, sub) if sub is not None else []
    answer = sub.answer if sub is not None and held else ""
    return {"index": number, "answer": answer, "evidence": held, "status": "supported" if answer else "none"}


def _concluded(prompt: _Prompt) -> str:
    """The final answer from a solved chain: the right one if the chain holds every right answer."""
    solved = re.findall(r"\[Solved answer \d+\]: (.+)", prompt.tail, re.IGNORECASE)
    known = all(any(sub.answer in text for text in solved) for sub in prompt.one.sub_questions)
    return prompt.one.answer if known else _belief(prompt.one)


_BY_MARKER: Mapping[str, Callable[[_Prompt], str]] = MappingProxyType(
    {
        prompting.ANSWER: lambda prompt: _belief(prompt.one),
        without_retrieval.FEW_SHOT: lambda prompt: _belief(prompt.one),
        without_retrieval.CHAIN_OF_THOUGHT: _thought,
        without_retrieval.DECOMPOSE: _decomposed,
        without_retrieval.SOLVE: _solved,
        without_retrieval.PLAN: _planned_thought,
        without_retrieval.CARRY_OUT: _thought,
        without_retrieval.VOTE: lambda prompt: "They say the same.\nThe best choice is 1",
        with_retrieval.SELF_ASK: _followed_up,
        prompting.REACT: _acted,
        with_retrieval.DSP_SEARCH: _hopped,
        with_retrieval.DSP_PREDICT: lambda prompt: f"The context says it.\nAnswer: {prompt.one.answer}",
        search_in_the_chain.INSTRUCTION: _chained,
        chain_of_action.CHAIN: _coa_chain,
        chain_of_action.CORRECT: _rewritten,
        chain_of_action.FINAL: lambda prompt: f"[Final Content]: {_concluded(prompt)}",
        prompting.REWRITE: lambda prompt: prompt.one.question,
        prompting.READ: lambda prompt: prompt.one.answer,
        "Break a question into an action chain": _planned,
        "Continue a conversation: find out what the new question really asks": _planned,
        "Answer the last question from the retrieved passages": _planned_over_evidence,
        "Answer a question from evidence that was looked up": _corrected,
        "Check sentences of an answer against the evidence": _confirmed,
    }
)


class ScriptedServer:
    """Serves chat completions from a script; a context manager, which starts and stops it.

    It knows JSON schemas (whose text counts as input), stop sequences and streams. Tokens are counted by `count_tokens`.

    Example:
        >>> from experiments.costs.scripted import make_script
        >>> with ScriptedServer(make_script(2, 1.0)) as server:
        ...     server.base_url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, script: Script) -> None:
        self._replies = ScriptedReplies(script)
        self._lock = threading.Lock()
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer._answer(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """The address of the API, for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply(self, messages: Sequence[tuple[str, str]]) -> str:
        """The model's reply to pairs of role and text."""
        return self._replies.reply(messages)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        messages = [(str(message["role"]), _text(message["content"])) for message in body["messages"]]
        schema = json.dumps(body["response_format"]) if "response_format" in body else ""
        with self._lock:
            self.requests += 1
        text = self.reply(messages)
        stop = body.get("stop") or []
        for end in [stop] if isinstance(stop, str) else stop:
            text = text.split(end, 1)[0]
        asked = sum(count_tokens(content) + _TOKENS_PER_MESSAGE for _, content in messages) + count_tokens(schema)
        told = count_tokens(text)
        usage = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}
        head = {"id": "chatcmpl-script", "created": 1, "model": body.get("model", "script")}
        if body.get("stream"):
            wanted = (body.get("stream_options") or {}).get("include_usage")
            _send(handler, "text/event-stream", _events(head, text, usage if wanted else None))
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        _send(handler, "application/json", json.dumps(whole))


def _text(content: Any) -> str:
    """A message's text, which clients may send in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _send(handler: BaseHTTPRequestHandler, kind: str, text: str) -> None:
    data = text.encode()
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _events(head: dict[str, Any], text: str, usage: dict[str, int] | None) -> str:
    """The stream of a reply."""
    head = {**head, "object": "chat.completion.chunk"}
    deltas = [{"role": "assistant", "content": text[n : n + _CHUNK]} for n in range(0, len(text), _CHUNK)]
    events: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        events.append({**head, "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
