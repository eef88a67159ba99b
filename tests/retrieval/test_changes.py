from langchain_core.documents import Document

from langgraph_convcoa.retrieval.changes import entries_of


def part(name, number, of=None):
    return Document("text", id=f"{name}#{number}", metadata={"document_id": of or name})


def test_passages_are_grouped_by_the_parts_of_a_document():
    passages = [part("a", 1), part("a", 2), part("b", 1), Document("whole", id="c"), part("a", 3), part("c", 2)]
    groups = [(entry.id, [passage.id for passage in entry.passages]) for entry in entries_of(passages)]
    # A part that does not follow on the one before it is a document of its own.
    assert groups == [("a", ["a#1", "a#2"]), ("b", ["b#1"]), ("c", ["c"]), ("a#3", ["a#3"]), ("c#2", ["c#2"])]
    assert list(entries_of([])) == []
