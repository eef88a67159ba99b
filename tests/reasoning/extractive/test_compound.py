"""Splitting compound questions: certain seams only."""

import pytest

from langgraph_convcoa.reasoning.extractive.compound import split_question


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("When was MIT founded and who founded it?", ["When was MIT founded?", "Who founded MIT?"]),
        (
            "When was Harvard University founded and who was its first president?",
            ["When was Harvard University founded?", "Who was Harvard University's first president?"],
        ),
        ("What is sparsemax, and who introduced it?", ["What is sparsemax?", "Who introduced sparsemax?"]),
        ("Where is Oslo? How many people live in Bergen?", ["Where is Oslo?", "How many people live in Bergen?"]),
        ("What is BM25? How does it differ from TF?", ["What is BM25? How does it differ from TF?"]),
        ("Compare sparsemax and softmax", ["What is sparsemax?", "What is softmax?"]),
        ("What is the difference between sparsemax and softmax?", ["What is sparsemax?", "What is softmax?"]),
        ("什么是记忆？谁写的书？", ["什么是记忆？", "谁写的书？"]),
    ],
)
def test_splits_at_certain_seams(question: str, parts: list[str]) -> None:
    assert split_question(question) == parts


@pytest.mark.parametrize(
    "question",
    [
        "Who invented rock and roll?",
        "When did Simon and Garfunkel split up?",
        "How and why did the war start?",
        "When did they part and why?",
        "What happened when he left and who replaced him?",
        "Who wrote Hamlet and when did he write it?",
        "Who introduced it? When was it?",
        "Compare rock and roll and jazz",
        "I am new here. What is a memory set? Thanks!",
        "?",
        "",
        "🤔",
    ],
)
def test_leaves_the_rest_whole(question: str) -> None:
    assert split_question(question) == [question]


def test_keeps_what_goes_beyond_the_limit() -> None:
    question = " ".join(f"What is thing{n}?" for n in range(10))
    parts = split_question(question, limit=3)
    assert len(parts) == 3
    assert " ".join(parts) == question


def test_a_question_of_100_000_characters_is_one() -> None:
    question = "who was it and what was it? " * 4_000
    assert len(split_question(question)) == 1
