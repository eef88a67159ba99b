"""JSON schemas of what a model is asked for, strict in the sense of OpenAI's structured output."""

from __future__ import annotations

from typing import Any


def _object(title: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}

CHAIN_SCHEMA: dict[str, Any] = _object(
    "action_chain",
    {
        "optimized_question": _TEXT,
        "chain": {
            "type": "array",
            "items": _object(
                "action_node",
                {"action": _TEXT, "sub": _TEXT, "guess_answer": _TEXT, "missing_flag": _FLAG, "action_input": _TEXT},
            ),
        },
        "final_answer": _TEXT,
    },
)

INPUTS_SCHEMA: dict[str, Any] = _object(
    "action_inputs",
    {
        "inputs": {"type": "array", "items": _object("action_input", {"index": {"type": "integer"}, "action_input": _TEXT})},
    },
)

CORRECTIONS_SCHEMA: dict[str, Any] = _object(
    "corrections",
    {
        "answers": {
            "type": "array",
            "items": _object(
                "correction", {"index": {"type": "integer"}, "answer": _TEXT, "reason": _TEXT, "supported": _FLAG}
            ),
        },
    },
)
