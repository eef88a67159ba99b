"""An index that follows its files equals an index built again, whatever is added, changed, deleted or broken."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.corpus import read, settled
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.index import watch
from langgraph_convcoa.retrieval.index.index import Index, open_or_create
from langgraph_convcoa.retrieval.index.watch import Changed, WatchedFiles
from tests.bounds import joined, wait_until
from tests.retrieval.conftest import BagOfWords, put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    return made


@pytest.fixture
def index(tmp_path: Path, small: BagOfWords) -> Index:
    return open_or_create(tmp_path / "index", small)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def files(folder: Path, told: list[str]) -> Iterator[WatchedFiles]:
    with WatchedFiles([(folder, "")], told=lambda name, reason: told.append(f"{name} {reason}")) as watched:
        yield watched


def held(index: Index) -> dict[str, tuple[str, dict[str, object], bytes]]:
    def read_all() -> dict[str, tuple[str, dict[str, object], bytes]]:
        view = index.snapshot()
        rows = [view.patterns.rows(*view.patterns.offsets[number : number + 2]).tobytes() for number in view.numbers]
        passages = [passage.document for passage in read(view)]
        return {str(one.id): (one.page_content, one.metadata, row) for one, row in zip(passages, rows, strict=True)}

    return settled(read_all)  # The watcher may write meanwhile.


def row(identity: str, text: str) -> str:
    return json.dumps({"id": identity, "text": text}) + "\n"


def test_what_changes_is_taken_over_and_nothing_else_is_encoded(
    folder: Path, index: Index, small: BagOfWords, files: WatchedFiles
) -> None:
    (folder / "a.txt").write_text("Apples grow.")
    (folder / "b.jsonl").write_text(row("one", "Pears fall.") + row("two", "Plums rot."))
    assert files.sync(index, small) == Changed(added=3)
    assert files.sync(index, small) == Changed()
    (folder / "b.jsonl").write_text(row("one", "Pears fall.") + row("three", "Figs are sweet."))
    (folder / "c.txt").write_text("Quinces are hard.")
    (folder / "a.txt").unlink()
    assert files.sync(index, small) == Changed(added=2, updated=0, deleted=2)
    (folder / "c.txt").write_text("Quinces are yellow.")
    assert files.sync(index, small) == Changed(updated=1)
    assert set(held(index)) == {"one", "three", "c.txt"} == files.ids


def test_any_sequence_of_changes_leaves_the_index_as_one_built_anew(
    tmp_path: Path, folder: Path, index: Index, small: BagOfWords, files: WatchedFiles
) -> None:
    chance = random.Random(7)
    # Rows with ids that several files have: which of them keeps its id depends on the files before.
    texts = [
        lambda: f"Apples number {chance.random()} grow. " * chance.randint(1, 60),
        lambda: "".join(row(str(chance.randint(1, 3)), f"Pears {chance.random()}.") for _ in range(3)),
        lambda: '{"broken": ',
        lambda: "name,born\nAda,1815\n" + "Bob,1900\n" * chance.randint(0, 60),
        lambda: "",
    ]
    names = [f"{stem}.{kind}" for stem in "abc" for kind in ("txt", "jsonl", "csv")] + ["deep/d.jsonl", "deep/e.txt"]
    (folder / "always.txt").write_text("It stays.")
    for number in range(13):
        for _ in range(chance.randint(1, 3)):
            file = folder / chance.choice(names)
            if file.exists() and chance.random() < 0.4:
                file.unlink()
            else:
                file.parent.mkdir(exist_ok=True)
                file.write_text(chance.choice(texts)())
        files.sync(index, small)
        if number % 4 == 0:
            rebuilt = open_or_create(tmp_path / f"rebuilt{number}", small)
            put(rebuilt, load_documents(folder, told=lambda _name, _reason: None), small)
            assert held(index) == held(rebuilt)
    index.verify()


def test_a_broken_file_is_told_once_and_its_documents_go_until_it_is_whole(
    folder: Path, index: Index, small: BagOfWords, files: WatchedFiles, told: list[str]
) -> None:
    (folder / "a.json").write_text('["Apples grow."]')
    (folder / "b.exe").write_text("MZ")
    files.sync(index, small)
    (folder / "a.json").write_text('["Apples')
    assert files.sync(index, small) == Changed(deleted=1)
    (folder / "c.txt").write_text("Figs are sweet.")
    files.sync(index, small)
    (folder / "a.json").write_text('["Apples grow again."]')
    assert files.sync(index, small) == Changed(added=1)
    assert [line.split()[0] for line in told] == ["b.exe", "a.json"]
    assert len(held(index)) == 2


def test_a_folder_that_is_gone_takes_nothing_along_and_an_empty_one_all(
    tmp_path: Path, folder: Path, index: Index, small: BagOfWords, files: WatchedFiles, told: list[str]
) -> None:
    (folder / "a.txt").write_text("Apples grow.")
    files.sync(index, small)
    folder.rename(tmp_path / "away")
    assert files.sync(index, small) == Changed()
    assert "is not there; what the index has of it stays" in told[-1]
    (tmp_path / "away").rename(folder)
    assert files.sync(index, small) == Changed()
    (folder / "a.txt").unlink()
    assert files.sync(index, small) == Changed(deleted=1)
    assert len(index) == 0


def test_too_much_text_is_an_error_at_first_and_a_file_that_is_skipped_later(
    folder: Path, index: Index, small: BagOfWords, told: list[str]
) -> None:
    (folder / "a.txt").write_text("Apples grow.")
    with WatchedFiles([(folder, "")], max_bytes=5) as files, pytest.raises(DocumentError, match="more than"):
        files.sync(index, small)
    with WatchedFiles([(folder, "")], max_bytes=20, told=lambda name, reason: told.append(reason)) as files:
        files.sync(index, small)
        (folder / "b.txt").write_text("Pears fall down.")
        assert files.sync(index, small) == Changed()
        (folder / "a.txt").write_text("A.")
        (folder / "b.txt").write_text("Pears fall down!")
        assert files.sync(index, small) == Changed(added=1, updated=1)
    assert len(told) == 1


def test_changes_are_noticed_together_and_an_error_is_tried_again(
    folder: Path, index: Index, small: BagOfWords, files: WatchedFiles, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LOOK_EVERY", 300)
    (folder / "a.txt").write_text("Apples grow.")
    files.sync(index, small)
    rounds: list[Changed] = []
    stop = threading.Event()
    failing = iter([DocumentError("another program writes to it")])
    whole = index.delete

    def delete(ids: list[str]) -> list[str]:
        for error in failing:
            raise error
        return whole(ids)

    monkeypatch.setattr(index, "delete", delete)
    thread = threading.Thread(target=lambda: rounds.extend(files.watch(index, small, stop)), daemon=True)
    thread.start()
    try:
        for number in range(5):
            (folder / f"{number}.txt").write_text(f"Pears number {number}.")
        (folder / "a.txt").unlink()
        wait_until(lambda: set(held(index)) == {f"{number}.txt" for number in range(5)}, "the changes")
    finally:
        stop.set()
        joined([thread])
    assert any("another program writes to it" in line for line in told)
    assert sum(one.deleted for one in rounds) == 1
