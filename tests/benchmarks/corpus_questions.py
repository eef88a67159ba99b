"""Thirty questions about whole collections, and the share that is answered right, with the action `overview` and without it.

`python -m tests.benchmarks.corpus_questions DATA/squad2`: fifteen about the demonstration's documents and fifteen about a
sample of 24 articles of SQuAD 2.0, each made a document of its first twelve paragraphs. No model answers. An answer is right
when it holds all that it must name and cites each document that it must, and no other.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa import HopfieldRetriever, Overview, build_graph
from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.retrieval.documents.load import load_documents

ARTICLES, PARAGRAPHS = 24, 12
OTHERS = (
    "what's in your knowledge base?",
    "I'd like to know which documents you have",
    "Enumerate the sources",
    "How many markdown files are there in the collection?",
    "count the documents",
    "Which files date from 2024?",
    "Is there a document about LangGraph?",
    "Show the documents about Hopfield",
    "What areas do the documents cover?",
    "List the key topics",
    "Can I get a summary of the dense associative memory document?",
    "Summarise hopfield-networks.md in two sentences",
    "What is the RAG document about?",
    "Please sum up the paper on chain of thought",
    "How is BM25 different from sparsemax?",
    "Compare LangGraph to BM25",
    "Compare the documents on BM25, sparsemax and LangGraph",
    "Who built you?",
    "Call my mother",
    "Is it going to snow tomorrow?",
)
"""Questions about the demonstration's documents that the forms were not written for, nor changed after."""


@dataclass(frozen=True)
class Question:
    """A question, what its answer must name and which sources it must cite, and what was asked before it."""

    text: str
    names: Sequence[str] = ()
    cites: frozenset[str] = frozenset()
    after: str = ""

    def is_right(self, output: Mapping[str, Any]) -> bool:
        answer = output["answer"].casefold()
        cited = {citation["source"] for citation in output["citations"]}
        named = all(name.casefold() in answer for name in self.names)
        return named and (not self.cites or cited == self.cites) and not answer.startswith("i found nothing")


def ask(text: str, *names: str, cites: Sequence[str] = (), after: str = "") -> Question:
    return Question(text, names, frozenset(cites), after)


def demo() -> tuple[list[Document], list[Question]]:
    """The demonstration's documents, and questions about them."""
    documents = load_documents(demo_folder())
    titles = [str(document.metadata["title"]) for document in documents]
    return documents, [
        ask("What is in here?", "12 documents", "BM25", "LangGraph", "Sparsemax"),
        ask("List the documents.", *titles),
        ask("How many papers are there?", "12 documents"),
        ask("Which documents are from 2024?", "The 2024 Nobel Prize in Physics"),
        ask("Which documents are about Hopfield?", *(title for title in titles if "Hopfield" in title)),
        ask("What are the main topics?", "Hopfield", "retrieval", "chain"),
        ask("Summarise BM25.", "BM25", cites=["bm25.md"]),
        ask("Can you give me a short summary of the Nobel Prize paper?", "Nobel Prize", cites=["nobel-prize-2024.md"]),
        ask("What does chain-of-thought.md say?", "Jason Wei", cites=["chain-of-thought.md"]),
        ask("Compare BM25 and dense passage retrieval", "BM25", "DPR", cites=["bm25.md", "dense-passage-retrieval.md"]),
        ask("What is the difference between sparsmax and bm25?", "Sparsemax", "BM25", cites=["sparsemax.md", "bm25.md"]),
        ask("And the second one?", "Jason Wei", cites=["chain-of-thought.md"], after="List the documents."),
        ask("Compare the first two", "BM25", "Wei", cites=["bm25.md", "chain-of-thought.md"], after="List the documents."),
        ask("What can you do?", "answers questions", "12 documents"),
        ask("Please book a flight to Oslo.", "cannot", "answers questions"),
    ]


def squad(folder: Path) -> tuple[list[Document], list[Question]]:
    """A sample of the articles of SQuAD 2.0 as documents, spread over the file, and questions about them."""
    articles: dict[str, list[str]] = {}
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            articles.setdefault(row["title"].replace("_", " "), []).append(row["text"])
    step = len(articles) // ARTICLES
    titles = [*articles][::step][:ARTICLES]
    documents = [
        Document("\n\n".join(articles[title][:PARAGRAPHS]), id=title, metadata={"title": title, "source": f"{title}.txt"})
        for title in titles
    ]
    a, b, c, d, e = titles[1], titles[5], titles[9], titles[13], titles[17]
    slip = e[:-2] + e[-1]
    everything = "List all articles"
    return documents, [
        ask("What do you have here?", "24 documents"),
        ask("how many documents do you have?", "24 documents"),
        ask(everything, *titles[:20], "4 more documents"),
        ask("more", *titles[20:], after=everything),
        ask("What topics are covered?", "topics", *titles[:1]),
        ask(f"Summarise {a}", a, cites=[f"{a}.txt"]),
        ask(f"sum up {b.lower()}", b, cites=[f"{b}.txt"]),
        ask(f"What does {c}.txt say?", c, cites=[f"{c}.txt"]),
        ask(f"Compare {a} and {d}", a, d, cites=[f"{a}.txt", f"{d}.txt"]),
        ask(f"What are the differences between {c} and {b}?", b, c, cites=[f"{c}.txt", f"{b}.txt"]),
        ask(f"Do you have documents about {d}?", d),
        ask("Which PDFs are there?", "none"),
        ask("and the last one?", titles[-1], cites=[f"{titles[-1]}.txt"], after=everything),
        ask(f"Give me a summary of the article on {slip}", e, cites=[f"{e}.txt"]),
        ask("Who are you?", "answers questions", "24 documents"),
    ]


def right(documents: Sequence[Document], questions: Sequence[Question], encoder: Any, *, overview: bool) -> list[bool]:
    """Which of the questions are answered right, each in a conversation of its own."""
    retriever = HopfieldRetriever.from_documents(documents, encoder=encoder)
    graph = build_graph(retriever=retriever, actions=[Overview(retriever)] if overview else []).compile()
    found = []
    for question in questions:
        messages: list[Any] = []
        if question.after:
            messages = graph.invoke({"question": question.after})["messages"]
        found.append(question.is_right(graph.invoke({"messages": [*messages, {"role": "user", "content": question.text}]})))
    return found


def recognised(encoder: Any) -> list[str]:
    """Those of `OTHERS` whose form is recognised."""
    overview = Overview(HopfieldRetriever.from_documents(load_documents(demo_folder()), encoder=encoder))
    return [question for question in OTHERS if overview.recognises(question)]


def main(folder: str) -> None:
    from langgraph_convcoa.retrieval.encoders.choice import as_encoder

    encoder = as_encoder(None)
    for name, (documents, questions) in (("demo", demo()), ("squad2", squad(Path(folder)))):
        for overview in (False, True):
            answers = right(documents, questions, encoder, overview=overview)
            wrong = [question.text for question, is_right in zip(questions, answers, strict=True) if not is_right]
            print(
                f"{name} {'with' if overview else 'without'} overview: {sum(answers)} of {len(answers)} right; wrong: {wrong}"
            )
    print(f"recognised of others: {len(recognised(encoder))} of {len(OTHERS)}")


if __name__ == "__main__":
    main(sys.argv[1])
