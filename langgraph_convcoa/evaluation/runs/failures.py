"""Failures of a run: their description, and which of them the next question would meet too."""

from __future__ import annotations

from collections.abc import Iterator

from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCacheError
from langgraph_convcoa.reasoning.models import status_code

PATIENCE = 10
"""The run ends after this many hopeless failures in a row."""

# Also a spent quota, and a rate limit that outlasts the client's retries: the run can be resumed later.
_HOPELESS = (401, 402, 403, 404, 429)


def failure(error: Exception) -> str:
    """Why a question has no answer, in one line. A provider's text is left out, since it may quote a key."""
    if isinstance(error, ConvCoAError):
        return " ".join(str(error).split())
    return f"the method failed ({status_code(error) or type(error).__name__})"


def hopeless(error: Exception) -> bool:
    """Whether the next question would fail too: the key, the model's name or the address is wrong, or a quota is spent."""
    for cause in _causes(error):
        if status_code(cause) in _HOPELESS:
            return True
        name = type(cause).__name__.lower()
        if isinstance(cause, ConnectionError) or "connect" in name:
            return "timeout" not in name
    return False


def unkept(error: Exception) -> ReplyCacheError | None:
    """The cache error that caused this exception, if any."""
    return next((cause for cause in _causes(error) if isinstance(cause, ReplyCacheError)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
