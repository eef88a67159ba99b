"""The card of a trained model: what it is, what it learned from, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping

from langgraph_convcoa.retrieval.query.model import RetrieverModel


def model_card(model: RetrieverModel, sources: Mapping[str, int], command: str) -> str:
    """A card in Markdown, to which its owner adds licences and measured numbers.

    Args:
        model: As it was trained.
        sources: How many questions each data set had.
        command: What made it.

    Example:
        >>> print(model_card(RetrieverModel("some/encoder"), {"talks": 12}, "convcoa train talks --out m").splitlines()[0])
        # A retriever model of langgraph_convcoa
    """
    parts = [
        name
        for name, part in (
            ("the weights W_Q, W_K and W_V of the association", model.weights),
            ("projections and a gate of the conversation state", model.state),
            ("a query encoder, as 8-bit differences from the encoder", model.query_encoder),
            ("an encoder of its own", model.encoder_folder),
        )
        if part is not None
    ]
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in sources.items())
    return f"""# A retriever model of langgraph_convcoa

It holds {", ".join(parts) or "settings alone"}, for passages encoded by `{model.encoder}`.

| trained on | questions |
|---|---:|
{rows}

Of data with a split `dev` that split was left out, else a fifth of the conversations by a hash of their ids.

    {command}

Measure it on conversations of your own before you rely on it: `convcoa evaluate retrieval DATA --model DIR`.
"""
