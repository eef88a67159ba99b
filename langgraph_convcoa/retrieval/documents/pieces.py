"""A file's bytes as text, and the pieces of text that a file is read into."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from langgraph_convcoa.errors import DocumentError

_WIDEST = 200
_ITEM = re.compile(r"\s|[-*+•·–] |\(?\w{1,3}[.)] ")


@dataclass(frozen=True)
class Piece:
    """A text of a file; `key` tells it from the file's other texts and is the whole id when `own_id` is set."""

    text: str
    title: str = ""
    key: str = ""
    own_id: bool = False
    metadata: dict[str, int | str] = field(default_factory=dict)


def decode(data: bytes) -> str:
    r"""Text of bytes in UTF-8, UTF-16 or UTF-32 (with their mark), else in Windows-1252.

    Raises:
        DocumentError: The bytes are no text.

    Example:
        >>> decode(b"\xef\xbb\xbfcaf\xc3\xa9"), decode(b"caf\xe9")
        ('café', 'café')
    """
    for mark, name in (
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return data.decode(name)
            except UnicodeDecodeError:
                break
    if b"\x00" in data:
        raise DocumentError("is a binary file, not text: leave it out, or export its text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = data.decode("cp1252")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
    sample = text[:65_536]
    if sum(ch < " " and ch not in "\t\n\r\f\v\x1b" for ch in sample) > 0.01 * len(sample):
        raise DocumentError("is a binary file, not text: leave it out, or export its text")
    return text


def unwrap(text: str, narrowest: int = 60, hyphens: bool = False) -> str:
    r"""Join the lines that were only broken to fit a width, so that a sentence stands on one line.

    Args:
        text: Paragraphs, with a blank line between them or not.
        narrowest: A paragraph whose longer lines are below this many characters is left as it is.
        hyphens: Whether a hyphen at the end of a line divides a word.

    Example:
        >>> unwrap("This sentence goes on\nin the next line.\n- one\n- two", narrowest=20)
        'This sentence goes on in the next line.\n- one\n- two'
    """
    return "\n\n".join(_unwrap_block(block, narrowest, hyphens) for block in re.split(r"\n[^\S\n]*\n\s*?(?=\S|\Z)", text))


def _unwrap_block(block: str, narrowest: int, hyphens: bool) -> str:
    lines = [line.rstrip() for line in block.split("\n")]
    width = max(len(line) for line in lines)
    if len(lines) < 2 or not narrowest <= width <= _WIDEST:
        return block
    joined = lines[0]
    for previous, line in itertools.pairwise(lines):
        if len(previous) < 0.6 * width or not line or _ITEM.match(line):
            joined += "\n" + line
        elif hyphens and re.search(r"[^\W\d]-$", previous) and line[0].islower():
            joined = joined[:-1] + line
        else:
            joined += " " + line
    return joined
