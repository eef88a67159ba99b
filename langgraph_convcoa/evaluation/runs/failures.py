"""The failures of a run: their records, and the rule that stops it."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.language_models import BaseChatModel

from langgraph_convcoa.errors import ConvCoAError, ModelError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCacheError
from langgraph_convcoa.reasoning.models import call_error, status_code

PATIENCE = 10
"""So many questions in a row that fail for want of a key, a quota, a model or a server end the run."""

# A spent quota and a rate limit that outlasts the client's own retries are among them: the run can be resumed later, while
# answers that are missing for it would be written down as wrong ones.
_HOPELESS = (401, 402, 403, 404, 429)


def failure(error: Exception, model: BaseChatModel | None) -> str:
    """Why a question has no answer, in one line without a provider's text, which may quote a key.

    Example:
        >>> failure(TimeoutError(), None), failure(ModelError("the model refused"), None)
        ('the model failed (TimeoutError)', 'the model refused')
    """
    if isinstance(error, ConvCoAError):
        return " ".join(str(error).split())
    name, module = type(error).__name__, type(error).__module__.partition(".")[0]
    of_the_model = (
        status_code(error) is not None
        or isinstance(error, TimeoutError | ConnectionError)
        or any(word in name.lower() for word in ("timeout", "connect", "protocol"))
        or module in ("openai", "anthropic", "httpx", "httpcore")
    )
    if not of_the_model:
        return f"the method failed: {name}"
    return str(call_error(error, model)) if model is not None else f"the model failed ({status_code(error) or name})"


def hopeless(error: Exception) -> bool:
    """Whether the next question would fail as well: the key, the model's name or the address is wrong, or a quota is spent."""
    for cause in _causes(error):
        if status_code(cause) in _HOPELESS:
            return True
        name = type(cause).__name__.lower()
        if isinstance(cause, ConnectionError) or "connect" in name:
            return "timeout" not in name
    return False


def unkept(error: Exception) -> ReplyCacheError | None:
    """The failure to keep or read a reply that is behind an error, which no question is to blame for."""
    return next((cause for cause in _causes(error) if isinstance(cause, ReplyCacheError)), None)


class Patience:
    """Holds back failures that may have one common cause, until it is clear whether they have.

    Answers are passed on by `take`; hopeless failures are held back until a question that was begun after them is answered,
    and after `limit` of them the run has to stop: nothing of them is written down, so that a run with the right key asks those
    questions again.
    """

    def __init__(self, limit: int = PATIENCE) -> None:
        self.limit = limit
        self.failures = 0
        self._held: list[tuple[int, Answered]] = []

    def take(self, answered: Answered, error: Exception | None, begun: int | None = None) -> list[Answered]:
        """What is to be written down now.

        `begun` is what `failures` was when the question was begun (now when None): an answer that was under way when a key was
        withdrawn says nothing of the failures since. Raises ModelError when too many in a row failed hopelessly.
        """
        if error is None or not hopeless(error):
            begun = self.failures if begun is None else begun
            ready = [one for number, one in self._held if number < begun]
            self._held = self._held[len(ready) :]
            return [*ready, answered]
        self._held.append((self.failures, answered))
        self.failures += 1
        if len(self._held) >= self.limit:
            raise self._stop() from error
        return []

    def close(self, answers: int) -> list[Answered]:
        """What is to be written down at the end of a run that wrote down `answers` so far.

        Raises ModelError where all failed hopelessly.
        """
        if self._held and not answers:
            raise self._stop()
        ready, self._held = [one for _, one in self._held], []
        return ready

    def _stop(self) -> ModelError:
        last, count = self._held[-1][1].error, len(self._held)
        return ModelError(f"{last} ({count} question{'s' if count > 1 else ''} in a row failed so; the run stopped)")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
