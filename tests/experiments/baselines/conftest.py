from __future__ import annotations

import pytest

from langgraph_convcoa.verification.trained import DefaultVerifier
from langgraph_convcoa.verification.verifier import LexicalVerifier


@pytest.fixture(autouse=True)
def _words_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts are about people and places with made-up names: shared words tell their right guesses from the wrong ones."""
    words = LexicalVerifier()
    monkeypatch.setattr(DefaultVerifier, "support", lambda self, claims, premises: words.support(claims, premises))
    monkeypatch.setattr(DefaultVerifier, "threshold", words.threshold, raising=False)
