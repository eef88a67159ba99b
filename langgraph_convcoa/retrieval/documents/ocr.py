"""Text in pictures, read by the program `tesseract` if it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, BinaryIO

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.formats import Piece, unwrap

_PROGRAM = "tesseract"
_MOST_LANGUAGES = 4
_MOST_IMAGES = 20
"""At most this many pictures of a page are read; a scanner makes one picture, or a few strips."""


def available() -> bool:
    """True if tesseract is installed."""
    return shutil.which(_PROGRAM) is not None


def read_image(stream: BinaryIO, seconds: float) -> Iterator[Piece]:
    """The text of a picture (PNG, JPEG, or TIFF of one or more pages); DocumentError if it has no text."""
    pages = _recognised(stream.read(), seconds).split("\f")
    texts = [(number, text) for number, text in enumerate(pages, start=1) if text.strip()]
    if not texts:
        raise DocumentError("is a picture in which no text was recognised")
    several = len(texts) > 1
    for number, text in texts:
        yield Piece(unwrap(text.strip(), 30, printed=True), key=f"page-{number}" if several else "", metadata={"page": number})


def page_text(page: Any, end: float) -> str | None:
    """The text of the pictures of a pypdf page; None if it is not ready by `end` (`time.monotonic`)."""
    texts = []
    for name in list(page.images.keys())[:_MOST_IMAGES]:
        try:
            texts.append(_recognised(page.images[name].data, max(end - time.monotonic(), 0)))
        except subprocess.TimeoutExpired:
            return None
    return unwrap("\n".join(texts).replace("\f", "\n").strip(), 30, printed=True)


def _recognised(image: bytes, seconds: float) -> str:
    """The text of a picture, with form feeds between pages; empty if the program cannot read it."""
    languages = "+".join(_languages()) or "eng"
    return _run(["stdin", "stdout", "-l", languages], image, seconds)


@lru_cache(maxsize=1)
def _languages() -> tuple[str, ...]:
    """The installed languages, English last: the user has installed the others on purpose."""
    lines = _run(["--list-langs"], b"", 10.0).splitlines()[1:]
    found = [line.strip() for line in lines if line.strip() and line.strip() not in ("osd", "equ", "eng")]
    return (*found[: _MOST_LANGUAGES - 1], *(["eng"] if "eng" in map(str.strip, lines) else []))


def _run(arguments: list[str], given: bytes, seconds: float) -> str:
    # The threads of tesseract slow each other down and need memory.
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    command = [shutil.which(_PROGRAM) or _PROGRAM, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=seconds, env=environment, check=False)  # noqa: S603
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
