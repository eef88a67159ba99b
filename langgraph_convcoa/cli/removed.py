"""Commands and options of earlier releases: an error says what to use instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langgraph_convcoa.errors import InputError

_CHECKOUT = "in a checkout of the repository"
_EXACT = "leave it out, every search is exact"
_PEERS = f"run python -m experiments.peers DATA {_CHECKOUT}"
_QUERY_ENCODER = "leave it out to train a query encoder"
_VERIFICATION = "run convcoa evaluate verification"
_REMOVED = {
    "train-reader": f"run python -m experiments.graph_reader {_CHECKOUT}",
    "warm-start": "run TRL's SFTTrainer on plans that earned their reward, as docs/guides/training.md shows",
    "bench": f"run python -m experiments.bench {_CHECKOUT}",
    "evaluate planner": f"run python -m experiments.planner {_CHECKOUT}",
    "evaluate blind": f"run python -m experiments.blind sheets {_CHECKOUT}",
    "evaluate blind-score": f"run python -m experiments.blind score {_CHECKOUT}",
    "evaluate reader": f"run python -m experiments.graph_reader {_CHECKOUT}",
    "evaluate costs": f"run python -m experiments.costs {_CHECKOUT}",
    "evaluate memory": f"run python -m experiments.memory {_CHECKOUT}",
    "evaluate guesses": _VERIFICATION,
    "evaluate faithfulness": _VERIFICATION,
    **dict.fromkeys((f"demo {name}" for name in ("--docs", "--question", "-q", "--model")), "run convcoa chat --docs PATH"),
    **{
        f"{command} {name}": "name it in the address: postgresql://host/database?collection=NAME&tenant=NAME"
        for command in ("ask", "chat", "serve", "mcp", "search", "index")
        for name in ("--collection", "--tenant")
    },
    "index --approximate": f"{_EXACT}; for millions of passages load them into an engine (--to URL)",
    "index --exact": _EXACT,
    "index --windows": "leave it out; passages and their windows are encoded apart",
    "search --exact": _EXACT,
    "train --made": "it is --synthetic now",
    "train --skip-invalid": "leave it out: such queries are always left out, with a warning",
    "train --full": f"{_QUERY_ENCODER}; a whole encoder is trained with sentence-transformers",
    "train --dual-question": f"{_QUERY_ENCODER}; the comparison is python -m experiments.bench training {_CHECKOUT}",
    "train --chunk": "use a smaller --batch-size",
    "train-planner --merge": "merge with PEFT: AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload()",
    "retrieval --rewriter": _PEERS,
    "retrieval --answerer": _PEERS,
    "retrieval --dual": _PEERS,
    "qa --models": "run the command once for each --model",
    "qa --sweep": "run the command once for each value, such as -k 3",
    "qa --prices": "multiply the tokens of the report by your prices",
    "qa --judge-by": "leave it out: --judge asks for marks and for the better answer",
    "qa --unknown-names": f"run python -m experiments.unknown_names DATA {_CHECKOUT}",
}


@contextmanager
def explain_removed() -> Iterator[None]:
    """Raise InputError instead of typer's error if an unknown command or option is one that was removed."""
    try:
        yield
    except Exception as error:
        context: Any = getattr(error, "ctx", None)
        if context is not None:
            option = getattr(error, "option_name", None)
            # The name of an unknown command is only in the message.
            for name in [option] if option else re.findall(r"'([\w-]+)'", str(getattr(error, "message", ""))):
                command = name if context.parent is None else f"{context.info_name} {name}"
                if command in _REMOVED:
                    raise InputError(f"{option or f'convcoa {command}'} was removed: {_REMOVED[command]}") from error
        raise
