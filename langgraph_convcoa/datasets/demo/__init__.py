"""The demonstration: a few documents about this field, and a conversation about them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path


def demo_folder() -> Path:
    """The folder of the demonstration's documents."""
    return Path(str(files(__name__) / "documents"))


def demo_questions() -> list[str]:
    """The questions of the demonstration. The second question can be understood only after the first."""
    questions: list[str] = json.loads((files(__name__) / "questions.json").read_text(encoding="utf-8"))
    return questions
