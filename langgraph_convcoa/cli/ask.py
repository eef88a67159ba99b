"""`convcoa ask`: the answer to one question."""

from __future__ import annotations

from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_json, run_turn
from langgraph_convcoa.cli.options import AsJson, ConversationOptions, grouped, proper_text
from langgraph_convcoa.cli.session import open_session


@grouped(ConversationOptions)
def ask(
    options: ConversationOptions, question: Annotated[str, typer.Argument(help="The question.")], as_json: AsJson = False
) -> None:
    """Answer one question.

    With --thread it is part of a conversation that is kept; asked again after an interruption, the turn is resumed.

    [bold]Examples[/bold]
      convcoa ask "Who introduced sparsemax?" --docs demo
      convcoa ask "When was it?" --docs papers/ --store chats.sqlite --thread thesis
      convcoa ask "Who wrote it?" --index papers.index
      convcoa ask "Which region sold most in 2019?" --data sales.csv --model openai:gpt-4.1-mini
      convcoa ask "What is new in Python?" --web --search https://searx.example.org --model openai:gpt-4.1-mini --json
    """
    from langgraph_convcoa.memory.asked import read_conversation

    text = proper_text(question)
    # A question that cannot be asked is refused before minutes of encoding, not after.
    read_conversation(text, [])
    with open_session(options, "ask QUESTION") as session:
        if as_json:
            print_json(session.ask(text))
        else:
            run_turn(session, text)
