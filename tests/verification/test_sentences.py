import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.verification.sentences import statements


@given(st.text(max_size=300))
def test_every_character_belongs_to_one_sentence(text):
    position = 0
    for statement in statements(text):
        assert not text[position : statement.start].strip()
        assert text[statement.start : statement.end] == statement.text
        assert statement.end > statement.start >= position
        position = statement.end
    assert not text[position:].strip()


@pytest.mark.parametrize(
    "text",
    [
        "Hello!", "Thank you for your question!", "You're welcome.", "Let me know if you need more.",
        "If you have any other questions, feel free to ask.", "I hope this helps.",
        "Would you like to know when it was closed?", "Which bridge do you mean?", "## The bridge", "**Key points:**",
        "IBM Cloud offers the following plans:", "The passages do not say when it was closed.",
        "The provided documents don't mention who built it [2].",
        "However, the context does not contain information about Kohonen.", "None of the passages says who built it.",
        "Unfortunately, I could not find information on the cost.",
        "I don't have specific information about the cost of the bridge.",
        "There is no information about the cost in the documents.", "The year of its closing is not given in the passages.",
        "It is not stated who built it.", "I do not know.", "---",
    ],
)  # fmt: skip
def test_what_claims_nothing(text):
    assert [s.claim for s in statements(text)] == [""]


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("The bridge was not closed in 1988.", None), ("The company does not say who built it.", None),
        ("There is no evidence that coffee causes cancer.", None), ("If you have an account, contact the bank.", None),
        ("Did you know that the bridge closed in 1988?", None), ("Shall I tell you of its end in 1988?", None), ("1988", None),
        ("No.", None), ("No, it was not closed.", None), ("- The Lite plan is free [3].", "The Lite plan is free."),
        ("1. Open the **Console** [1][2].", "Open the Console."), ("According to the passages, it is red.", "it is red."),
        ("The document states that it closed in 1988.", "it closed in 1988."),
        ("The passages do not say who built it, but it opened in 1894.", "it opened in 1894."),
        ("It opened in 1894, but the passages do not say who built it.", "It opened in 1894"),
        ("Although the documents do not say when it closed, it opened in 1894.", "it opened in 1894."),
        ("See [the guide](https://example.org/a) for it.", "See the guide for it."),
    ],
)  # fmt: skip
def test_what_is_claimed(text, claim):
    assert [s.claim for s in statements(text)] == [text if claim is None else claim]


def test_the_items_of_a_list_on_one_line_are_claims_without_their_numbers():
    told = "These are causes of rust: 1. Moisture [1] 2. Salt in the air [1] 3. Acid. It came in 1982. It was 7. 5 stayed."
    assert [(s.text, s.claim) for s in statements(told)] == [
        ("These are causes of rust:", ""), ("1. Moisture [1]", "Moisture"), ("2. Salt in the air [1]", "Salt in the air"),
        ("3. Acid.", "Acid."), ("It came in 1982.", "It came in 1982."), ("It was 7.", "It was 7."),
        ("5 stayed.", "5 stayed."),
    ]  # fmt: skip


def test_marks_belong_to_the_sentence_before():
    found = statements("It opened in 1894. [1] It closed in 1988. [2, 3]\n1. First it rose [1]. Then it fell.")
    assert [s.text for s in found] == [
        "It opened in 1894. [1]", "It closed in 1988. [2, 3]", "1. First it rose [1].", "Then it fell.",
    ]  # fmt: skip
