import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import document_id, pattern_text, split_documents, windows
from tests.retrieval.conftest import BagOfWords


def split(text, encoder=None, **metadata):
    return split_documents([Document(id="d", page_content=text, metadata=metadata)], encoder or BagOfWords())


def squeezed(text):
    return "".join(text.split())


def test_a_document_that_fits_stays_as_it_is():
    document = Document(id="d", page_content="  One. Two.\n", metadata={"page": 3})
    (passage,) = split_documents([document], BagOfWords())
    assert passage == document
    assert document_id(passage) == "d"


def test_a_long_document_is_split_at_paragraphs_with_offset_and_page():
    paragraphs = [" ".join(f"word{p}x{n}" for n in range(20)) for p in range(6)]
    text = "\n\n".join(paragraphs)
    passages = split(text, page=7, source="a.pdf")
    assert [passage.id for passage in passages] == ["d#1", "d#2"]
    assert [passage.page_content for passage in passages] == ["\n\n".join(paragraphs[n : n + 3]) for n in (0, 3)]
    for passage in passages:
        start = passage.metadata["start"]
        assert text[start : start + len(passage.page_content)] == passage.page_content
        assert passage.metadata["page"] == 7
        assert passage.metadata["source"] == "a.pdf"
        assert document_id(passage) == "d"


def test_a_long_paragraph_is_split_at_sentences():
    text = " ".join(f"This is sentence number {n} of the story." for n in range(30))
    passages = split(text)
    assert len(passages) > 1
    assert all(
        passage.page_content.startswith("This") and passage.page_content.rstrip().endswith("story.") for passage in passages
    )


def test_parts_are_of_about_one_length():
    text = " ".join(f"This is sentence number {n} of it." for n in range(10))
    sizes = [BagOfWords().count_tokens(passage.page_content) for passage in split(text)]
    assert len(sizes) == 2
    assert max(sizes) - min(sizes) < 20


PIECES = st.lists(
    st.sampled_from(["word", "Stop.", "\n\n", "\n", "émigré", "長い文章", "🙂", "x" * 90, "3.5", "a-b"]), max_size=400
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(PIECES, st.sampled_from(["", "A title of five words"]), st.booleans())
def test_every_passage_fits_and_nothing_is_lost(pieces, title, spaced):
    text = (" " if spaced else "").join(pieces)
    if not text.strip():
        return
    encoder = BagOfWords()
    passages = split(text, encoder, title=title)
    assert squeezed("".join(passage.page_content for passage in passages)) == squeezed(text)
    assert all(encoder.count_tokens(pattern_text(passage)) <= encoder.max_tokens for passage in passages)


def test_counts_that_do_not_add_up_still_give_passages_that_fit():
    class Squaring(BagOfWords):
        """A tokenizer to which a whole is longer than its parts together."""

        def count_tokens(self, text: str) -> int:
            return 2 + len(text.split()) ** 2 // 20

    text = " ".join(f"Sentence number {n} is here." for n in range(40))
    passages = split(text, Squaring())
    assert squeezed("".join(passage.page_content for passage in passages)) == squeezed(text)
    assert all(Squaring().count_tokens(passage.page_content) <= 64 for passage in passages)


def test_a_megabyte_without_a_full_stop():
    text = "word and more " * 75_000
    passages = split(text, BagOfWords(max_tokens=256))
    assert squeezed("".join(passage.page_content for passage in passages)) == squeezed(text)
    assert all(len(passage.page_content.split()) <= 254 for passage in passages)


def test_a_title_counts_towards_the_length_and_is_cut_only_for_the_pattern():
    text = " ".join(["word"] * 60)
    assert len(split(text)) == 1
    passages = split(text, title="A title of some words")
    assert len(passages) == 2
    assert pattern_text(passages[0]).startswith("A title of some words\nword")
    (passage,) = split("word", BagOfWords(max_tokens=256), title="long " * 300)
    assert len(pattern_text(passage)) < 210
    assert passage.metadata["title"] == "long " * 300


def test_a_title_that_is_no_string_is_not_encoded():
    assert pattern_text(Document("text", metadata={"title": 3})) == "text"


def test_documents_without_id_get_a_stable_one_and_duplicates_are_dropped():
    first = split_documents([Document("same"), Document("other"), Document("same")], BagOfWords())
    again = split_documents([Document("other"), Document("same")], BagOfWords())
    assert [passage.page_content for passage in first] == ["same", "other"]
    assert {p.id for p in first} == {p.id for p in again}


def test_the_callers_documents_are_left_alone():
    document = Document("text " * 200, metadata={"a": 1})
    split_documents([document], BagOfWords())
    assert document.id is None
    assert document.metadata == {"a": 1}


@pytest.mark.parametrize("documents", [[], [Document(""), Document(" ")]])
def test_no_text_at_all_is_an_error(documents):
    with pytest.raises(RetrievalError, match="no document with text"):
        split_documents(documents, BagOfWords())


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [(0, 1)]), (3, [(0, 3)]), (4, [(0, 3), (2, 4)]), (5, [(0, 3), (2, 5)]), (6, [(0, 3), (2, 5), (4, 6)])],
)
def test_windows_of_three_sentences_with_stride_two(count, expected):
    parts = [f"Sentence number {n} is here." for n in range(count)]
    text = " ".join(parts)
    assert [text[start:end] for start, end in windows(text)] == [" ".join(parts[a:b]) for a, b in expected]


def test_a_text_without_sentences_is_one_window():
    assert windows("  ...  ") == [(2, 5)]
