"""`convcoa ask`: the answer to one question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_json
from langgraph_convcoa.cli.options import AsJson, ConversationOptions, grouped, option, proper_text
from langgraph_convcoa.cli.session import open_session, run_turn


@grouped(ConversationOptions)
def ask(
    options: ConversationOptions,
    question: Annotated[str, typer.Argument(help="The question.")],
    as_json: AsJson = False,
    picture: Annotated[Path | None, option("FILE.svg", "Draw how the turn went.")] = None,
) -> None:
    """Answer one question.

    With --thread it joins a stored conversation. Ask it again after an interruption, and the turn is resumed.

    [bold]Examples[/bold]
      convcoa ask "Who introduced sparsemax?" --docs demo
      convcoa ask "When was it?" --docs papers/ --store chats.sqlite --thread thesis
      convcoa ask "Who wrote it?" --index papers.index
      convcoa ask "Which region sold most in 2019?" --data sales.csv --model openai:gpt-4.1-mini
      convcoa ask "Who wrote it, and when?" --docs papers/ --model openai:gpt-4.1-mini --picture turn.svg
      convcoa ask "What is new in Python?" --web --search https://searx.example.org --model openai:gpt-4.1-mini --json
    """
    from langgraph_convcoa.memory.asked import read_conversation

    text = proper_text(question)
    # A question that cannot be asked is refused before minutes of encoding, not after.
    read_conversation(text, [])
    if picture is not None:
        from langgraph_convcoa.cli.picture import check_place, save_turn

        check_place(picture)
    with open_session(options, "ask QUESTION") as session:
        output = session.ask(text) if as_json else run_turn(session, text)
    if as_json:
        print_json(output)
    if picture is not None:
        save_turn(text, output, picture)
