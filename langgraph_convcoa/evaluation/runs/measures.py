"""What is measured of an answer while a run goes on: the measures of strings, and a judge's verdict where there is one."""

from __future__ import annotations

import logging

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.metrics.answers import answer_metrics
from langgraph_convcoa.evaluation.metrics.judge import JUDGED, Judge
from langgraph_convcoa.evaluation.runs.failures import PATIENCE, hopeless, unkept

_log = logging.getLogger(__name__)


class Measures:
    """Measures answers; a judge that fails, or says neither yes nor no, leaves its measure out, and the report counts that.

    Args:
        judge: Asked about each answer; none when None.

    Raises:
        ModelError: So many verdicts in a row failed for want of a key, a model or a server that no other will come.

    Example:
        >>> import asyncio
        >>> found = asyncio.run(Measures()("Who?", ("Ada Lovelace",), "It was Ada Lovelace [1]."))
        >>> found["cover_em"], found["em"]
        (1.0, 0.0)
    """

    def __init__(self, judge: Judge | None = None) -> None:
        self._judge = judge
        self._hopeless = 0

    async def __call__(self, question: str, references: tuple[str, ...], answer: str) -> dict[str, float]:
        found = answer_metrics(answer, references)
        if self._judge is not None:
            try:
                verdict = await self._judge.judge(question, references, answer)
            except ModelError as error:
                if (lost := unkept(error)) is not None:
                    raise lost from error
                self._hopeless = self._hopeless + 1 if hopeless(error) else 0
                if self._hopeless >= PATIENCE:
                    raise ModelError(f"the judge: {error} ({self._hopeless} verdicts in a row failed so)") from error
                _log.warning("the judge did not answer: %s", error)
            else:
                self._hopeless = 0
                if verdict.right is not None:
                    found[JUDGED] = float(verdict.right)
        return found
