"""The prompt of a reader: the best sentences of the evidence, their token graph, and the text before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from experiments.graph_reader.token_graph import TokenGraph
from langgraph_convcoa.reasoning.base import History
from langgraph_convcoa.reasoning.extractive.query import make_query
from langgraph_convcoa.reasoning.extractive.sentence_ranking import rank_sentences

PREFIX = "Facts:\n"
_TURNS, _LONGEST_TURN, _LONGEST_QUESTION = 2, 200, 600


@dataclass(frozen=True)
class ReaderText:
    """Prefix, graph and suffix as token ids; for training also the answer, with the end token."""

    prefix: tuple[int, ...]
    graph: TokenGraph
    suffix: tuple[int, ...]
    answer: tuple[int, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.prefix) + self.graph.evidence + len(self.suffix) + len(self.answer)


@dataclass(frozen=True)
class ReaderTokenizer:
    """Makes `ReaderText` with a fast tokenizer of Hugging Face; `longest` limits the tokens of evidence."""

    tokenizer: Any
    longest: int = 512

    def text(
        self,
        question: str,
        documents: Sequence[Document],
        history: History = (),
        *,
        answer: str | None = None,
        holds: str = "",
    ) -> ReaderText:
        """The text of a question over documents: the best sentences that fit, in the order of the documents.

        Args:
            question: The question.
            documents: The evidence, best first.
            history: Earlier pairs of question and answer; the last two are read.
            answer: The answer, for training.
            holds: The best sentence that contains this text is chosen first, so that retrieval is not measured.
        """
        question = question.strip()[:_LONGEST_QUESTION]
        pieces = self._pieces(question, documents, history, holds)
        graph = TokenGraph.of(question, pieces, self._tokens)
        said = "".join(
            f"Question: {asked[:_LONGEST_TURN]}\nAnswer: {told[:_LONGEST_TURN]}\n" for asked, told in history[-_TURNS:]
        )
        target: tuple[int, ...] = ()
        if answer is not None:
            target = (*self._tokens(f" {answer.strip()}")[0], self.tokenizer.eos_token_id)
        return ReaderText(
            tuple(self.tokenizer(PREFIX)["input_ids"]),
            graph,
            tuple(self._tokens(f"{said}Question: {question}\nAnswer:")[0]),
            target,
        )

    def _tokens(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return found["input_ids"], found["offset_mapping"]

    def _pieces(self, question: str, documents: Sequence[Document], history: History, holds: str) -> list[str]:
        """The title and the chosen sentences of each document that has chosen sentences."""
        if not documents:
            return []
        ranked = rank_sentences(make_query(question, history), documents)
        if holds:
            # sorted() is stable: only this sentence moves.
            first = next((candidate for candidate in ranked if holds in candidate.text), None)
            ranked = sorted(ranked, key=lambda candidate: candidate is not first)
        left = self.longest
        chosen: dict[int, list[str]] = {}
        for candidate in ranked:
            number = candidate.document
            parts = [candidate.text] if number in chosen else [_title(documents[number]), candidate.text]
            length = sum(len(self._tokens(part)[0]) for part in parts) + 2
            if length <= left:
                left -= length
                chosen.setdefault(number, []).append(candidate.text)
        pieces = []
        for number, sentences in sorted(chosen.items()):
            text = documents[number].page_content
            told = " ".join(sorted(sentences, key=text.find))
            title = _title(documents[number])
            pieces.append(f"{title}: {told}\n" if title else f"{told}\n")
        return pieces


def _title(document: Document) -> str:
    return " ".join(str(document.metadata.get("title") or "").split())[:80]
