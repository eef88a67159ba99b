"""Asynchronous work, waited for by plain code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


def completed(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of asynchronous work; in a notebook, whose loop runs already, it runs in a thread of its own.

    Example:
        >>> completed(asyncio.sleep(0, "done"))
        'done'
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="convcoa-run") as pool:
        return pool.submit(asyncio.run, work).result()
