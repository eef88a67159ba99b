"""Hostile statements made from a grammar: what they would do, and every place of a query where that could hide."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path


def statements() -> Iterator[str]:
    """All of them, each once."""
    parts: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    made = [place.format(read) for place, read in product(parts["places"], parts["reads"])]
    made += [
        carrier.format(one) for carrier in parts["carriers"] for one in (b.format(parts["reads"][0]) for b in parts["breaks"])
    ]
    made += [named.format(name) for named, name in product(parts["named"], parts["hidden"])]
    made += [where.format(source) for where, source in product(parts["froms"], parts["sources"])]
    made += [around.format(write) for around, write in product(parts["around"], parts["writes"])]
    yield from dict.fromkeys(made)
