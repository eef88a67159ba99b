"""What the terminal shows: a running turn, its approval, answers with citations, rounds, reports, warnings and errors.

Sub-questions, warnings and errors go to standard error, answers and results to standard output.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.clean import flat, json_text, one_line, printable

if TYPE_CHECKING:
    from langgraph_convcoa.errors import ConvCoAError
    from langgraph_convcoa.evaluation.reports import Report
    from langgraph_convcoa.memory.knowledge_set import Round

_STYLES = {
    **dict.fromkeys(("kept", "recalled"), "green"),
    **dict.fromkeys(("confirmed", "corrected", "filled", "asked"), "yellow"),
    **dict.fromkeys(("unsupported", "failed"), "red"),
}  # Styles of the final states of a sub-question.
_REPORT_WIDTH, _SVG_WIDTH, _LONGEST = 140, 108, 1_500


def warn(message: str) -> None:
    """Print a one-line warning on standard error."""
    typer.echo(f"warning: {flat(printable(message))}", err=True)


def report(error: ConvCoAError) -> None:
    """Print an error that the user can fix, in one line on standard error."""
    typer.echo(f"error: {flat(printable(str(error)))}", err=True)


def citation_line(number: int, citation: Mapping[str, Any]) -> str:
    """A citation as a line "[n] source - quote". The id follows unless it is the source, or the source and a number.

    Example:
        >>> citation_line(1, {"id": "a.md#2", "source": "a.md", "quote": "It is so."})
        '[1] a.md - "It is so."'
        >>> citation_line(2, {"id": "p7", "source": "rows.jsonl", "quote": "It is so."})
        '[2] rows.jsonl (p7) - "It is so."'
    """
    source, identity = str(citation.get("source") or ""), str(citation.get("id") or "")
    passage = identity.removeprefix(source)
    known = not source or passage == "" or re.fullmatch(r"#\d+", passage)
    where = source or identity
    if not known:
        where = f"{source} ({passage.lstrip(':') if identity.startswith(source) else identity})"
    quote = one_line(str(citation.get("quote") or ""))
    return one_line(f"[{number}] {where}", 400) + (f' - "{quote}"' if quote else "")


def usage_line(usage: Mapping[str, Any]) -> str:
    """The cost of a turn in one line.

    Example:
        >>> usage_line({"llm_calls": 2, "input_tokens": 1200, "output_tokens": 90, "retrievals": 1, "seconds": 1.234})
        '2 model calls, 1,200 + 90 tokens, 1 retrieval, 1.2 s'
    """
    calls, found, recalled = (int(usage.get(name, 0)) for name in ("llm_calls", "retrievals", "recalled"))
    return (
        f"{calls} model call{'' if calls == 1 else 's'}, {usage.get('input_tokens', 0):,} + {usage.get('output_tokens', 0):,} "
        f"tokens, {found} retrieval{'' if found == 1 else 's'}, {f'{recalled} recalled, ' if recalled else ''}"
        f"{usage.get('seconds', 0.0):.1f} s"
    )


class SafeConsole(Console):
    """A console that removes control characters from texts, tables and names of files."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def consoles() -> tuple[Console, Console]:
    """Consoles for standard output and standard error. They print text unchanged; the terminal wraps the lines."""
    out, err = (SafeConsole(stderr=n, soft_wrap=True, highlight=False, markup=False, emoji=False) for n in (False, True))
    return out, err


def print_report(report: Report, as_json: bool) -> None:
    """Print a report on standard output, as JSON or as its tables."""
    if as_json:
        print_json(report.to_dict())
        return
    out, _ = consoles()
    if not out.is_terminal:
        # A pipe has no width, and tables are wide.
        out.width = _REPORT_WIDTH
    out.print(report)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print JSON on standard output, in ASCII if the output is not in Unicode."""
    out, _ = consoles()
    unicode_out = out.encoding.startswith("utf")
    out.out(json_text(value, ascii_only=not unicode_out, indent=indent))


class TurnView:
    """The display of one turn while it runs."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out, self._err = out, err
        self._status: Status | None = None
        self._streamed: list[str] = []
        self._in_line = False  # True within a line of the answer.
        self._waiting: list[Text] = []  # Lines to show after the line of the answer.
        self._shown: dict[int, str] = {}
        self._doubts: list[str] = []

    def __enter__(self) -> TurnView:
        if self._err.is_terminal:
            self._status = self._err.status("thinking", spinner="dots")
            self._status.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._quiet()
        if error is not None:
            self._end_line()

    def _end_line(self) -> None:
        if self._in_line:
            self._out.out("")
            self._in_line = False
        for line in self._waiting:
            self._err.print(line)
        self._waiting.clear()

    def progress(self, event: Mapping[str, Any]) -> None:
        """Take a progress event of the graph's custom stream."""
        if event.get("type") == "plan" and self._status is not None:
            count = len(event.get("sub_questions") or ())
            self._status.update(f"looking up {count or 'the'} sub-question{'' if count == 1 else 's'}")
        if event.get("type") == "answer":
            self._doubts = [str(sentence) for sentence in event.get("unsupported") or ()]
        index, status = int(event.get("index", -1)), str(event.get("status"))
        if event.get("type") == "sub_question" and status in _STYLES and self._shown.get(index) != status:
            self._shown[index] = status
            self._waiting.append(chain_line(index + 1, event))
            if not self._in_line:
                self._end_line()

    def token(self, text: str) -> None:
        if text:
            self._quiet()
            self._streamed.append(text)
            self._in_line = not text.endswith("\n")
            self._show(text, end="")

    def decide(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._quiet()
        self._end_line()
        # The approved text is shown again at the end.
        self._streamed.clear()
        return ask_decisions(request, self._err)

    def finish(self, output: Mapping[str, Any], *, goes_on: bool = True) -> None:
        """Show the answer if it was not streamed, its citations, and the cost of the turn. `goes_on`: a turn may follow."""
        self._quiet()
        answer, streamed = str(output.get("answer") or ""), "".join(self._streamed)
        self._end_line()
        if streamed.strip() != answer.strip():
            self._show(answer)
        citations: Sequence[Mapping[str, Any]] = output.get("citations") or ()
        if citations:
            self._out.out("")
        for number, citation in enumerate(citations, start=1):
            self._out.out(citation_line(number, citation), style="dim")
        if output.get("clarification"):
            how = "the next message of this conversation is read as its answer"
            how = how if goes_on else "to answer it, use convcoa chat, or ask and answer with the same --thread NAME"
            self._err.print(Text(f"a clarifying question: {how}", style="yellow"))
        for sentence in self._doubts:
            self._err.print(Text(f"no evidence supports: {one_line(sentence)}", style="yellow"))
        if usage := output.get("usage"):
            self._err.print(Text(usage_line(usage), style="dim"))

    def _show(self, text: str, end: str = "\n") -> None:
        """Print a part of the answer, with its unsupported sentences marked."""
        shown = Text(printable(text))
        if shown.highlight_words([printable(sentence) for sentence in self._doubts], style="yellow underline"):
            self._out.print(shown, end=end, soft_wrap=True)
        else:
            self._out.out(shown.plain, end=end)

    def _quiet(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def chain_line(number: int, item: Mapping[str, Any]) -> Text:
    """A sub-question with its action, status and score, and the reason for the status unless the guess was kept."""
    status = str(item.get("status", ""))
    line = Text(f"  {number}. ", no_wrap=False)
    line.append(f"{one_line(str(item.get('action', '')))} ", style="cyan")
    line.append(status, style=_STYLES.get(status, ""))
    if status != "failed":
        line.append(f" {float(item.get('score') or 0.0):.2f}")
    line.append(f"  {one_line(str(item.get('sub_question', '')))}")
    if (reason := one_line(str(item.get("reason") or ""))) and status != "kept":
        line.append(f" ({reason})", style="dim")
    return line


def show_why(err: Console, output: Mapping[str, Any]) -> None:
    """Show how an answer came about: each link of the chain with its guess, its answer and its evidence."""
    items: Sequence[Mapping[str, Any]] = output.get("chain") or ()
    if not items:
        err.print("There was no sub-question: one retrieval on the question itself.")
    for number, item in enumerate(items, start=1):
        err.print(chain_line(number, item))
        for name, value in (
            ("guess", item.get("guess_answer")),
            ("answer", item.get("answer")),
            ("reason", item.get("reason")),
            ("evidence", ", ".join(item.get("evidence") or ())),
        ):
            if value:
                err.print(Text(f"     {name}: {one_line(str(value), 400)}", style="dim"))
        for path in (item.get("paths") or {}).values():
            err.print(Text(f"     path: {one_line(' -> '.join(path), 400)}", style="dim"))


def show_sources(err: Console, output: Mapping[str, Any]) -> None:
    """Show the sources of an answer with their full quotes."""
    citations: Sequence[Mapping[str, Any]] = output.get("citations") or ()
    if not citations:
        err.print("The answer cites nothing.")
    for number, citation in enumerate(citations, start=1):
        err.print(Text(f"[{number}] {one_line(str(citation.get('id')))}", style="cyan"))
        err.print(Text(f"    {printable(str(citation.get('quote') or '')).strip()}"))


def show_rounds(console: Console, rounds: Sequence[Round], limit: int | None = 600) -> None:
    """Show rounds of a conversation, each answer at most `limit` characters long."""
    from langgraph_convcoa.memory.knowledge_set import told_question

    for entry in rounds:
        console.print(Text(f"\n{entry['round']}> {one_line(told_question(entry), 400)}", style="bold"))
        answer = entry["answer"]
        console.print(Text(printable(answer).strip() if limit is None else one_line(answer, limit)))


def ask_decisions(request: Mapping[str, Any], console: Console) -> dict[str, Any]:
    """Ask for the decisions on a human-in-the-loop request. Raises InputError if standard input ends first."""
    requests: Sequence[Mapping[str, Any]] = request["action_requests"]
    try:
        return {"decisions": [_decision(one, console) for one in requests]}
    except EOFError:
        console.print()
        raise InputError("nothing was decided, and the turn waits: ask the same question again to decide") from None


def _decision(request: Mapping[str, Any], console: Console) -> dict[str, Any]:
    name, args = str(request["name"]), dict(request["args"])
    console.print(Text(f"\n{printable(name)}", style="cyan").append(" waits for approval", style="yellow"))
    for key, value in args.items():
        if value:
            console.print(f"  {key}: {printable(_shown(value))}")
    while True:
        answer = console.input("[a]pprove, [e]dit or [r]eject? ", markup=False).strip().lower()
        if answer in ("a", "approve", "y", "yes"):
            return {"type": "approve"}
        if answer in ("r", "reject", "n", "no"):
            message = console.input("  why (may stay empty): ", markup=False).strip()
            return {"type": "reject", "message": message}
        if answer in ("e", "edit"):
            asked = "  {} (empty: as it is): "
            edited = {key: console.input(asked.format(key), markup=False).strip() or value for key, value in args.items()}
            return {"type": "edit", "edited_action": {"name": name, "args": edited}}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    steps = [f"{number}. {step['action']}: {step['sub_question']}" for number, step in enumerate(value, start=1)]
    return "".join(f"\n    {step}" for step in steps)


def save_turn(question: str, output: Mapping[str, Any], path: Path) -> None:
    """Write the SVG picture of a turn. Raises InputError if it cannot be written."""
    try:
        path.write_text(turn_svg(question, output), encoding="utf-8")
    except OSError as error:
        raise InputError(f"the picture cannot be written to {path} ({error.strerror}): name another place") from error


def turn_svg(question: str, output: Mapping[str, Any]) -> str:
    """Draw a turn as SVG, from the graph's output. The picture holds plain text and no links."""
    console = SafeConsole(record=True, width=_SVG_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False)
    rounds = (output.get("knowledge_set") or {}).get("Contextual knowledge set") or [{}]
    understood = str(rounds[-1].get("optimized_question") or "").strip()
    console.print(Text(_short(question), style="bold"))
    if understood not in ("", question.strip()):
        console.print(Text(f"understood as: {_short(understood)}", style="dim"))
    show_why(console, output)
    console.print(Text(f"\n{_short(str(output.get('answer') or ''))}"))
    for number, citation in enumerate(output.get("citations") or (), start=1):
        console.print(Text(citation_line(number, citation), style="dim"))
    if usage := output.get("usage"):
        console.print(Text(usage_line(usage), style="dim"))
    # Remove the fonts that a viewer would fetch, and two characters that XML does not allow.
    return re.sub(r"(?s:@font-face \{.*?\})|[\ufffe\uffff]", "", console.export_svg(title="convcoa"))


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")
