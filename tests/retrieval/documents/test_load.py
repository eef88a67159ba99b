"""Reading files of every accepted kind, and what cannot be read."""

import gzip
import io
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.formats import CSV_GROUP_CHARACTERS, read_csv, unwrap
from langgraph_convcoa.retrieval.documents.load import iter_documents, load_documents, read_file
from langgraph_convcoa.retrieval.documents.markup import read_html, read_markdown
from tests.data import pdf_bytes


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_folder_is_read_with_its_sub_folders_in_a_stable_order(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "Bees hum.")
    write(tmp_path, "a/deep/note.md", "intro\n\n## Ants\n\nAnts walk.")
    write(tmp_path, ".hidden.txt", "no")
    write(tmp_path, ".git/config.txt", "no")
    write(tmp_path, "tool.exe", b"MZ")
    documents = load_documents(tmp_path)
    assert [d.id for d in documents] == ["b.txt", "a/deep/note.md"]
    assert documents[1].metadata == {"source": "a/deep/note.md", "title": "Ants"}
    assert documents[0].metadata["title"] == "b"
    assert [d.id for d in load_documents(tmp_path)] == [d.id for d in documents]


def test_a_single_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    path = write(tmp_path, "some-notes_here.TXT", "Words.")
    (document,) = load_documents(str(path))
    assert (document.id, document.metadata) == (
        "some-notes_here.TXT",
        {"source": "some-notes_here.TXT", "title": "some notes here"},
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfna\xc3\xafve", "naïve"),
        ("naïve".encode("latin-1"), "naïve"),
        ("“quoted” – €5".encode("cp1252"), "“quoted” – €5"),
        ("naïve 漢字".encode("utf-16"), "naïve 漢字"),
        ("naïve 🙂".encode("utf-32"), "naïve 🙂"),
        (b"a\x81b", "a\x81b"),
        ("שלום 👩‍🚀 漢字".encode(), "שלום 👩‍🚀 漢字"),
        (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
    ],
)
def test_encodings(tmp_path: Path, data: bytes, text: str) -> None:
    assert load_documents(write(tmp_path, "a.txt", data))[0].page_content == text


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder, refusals = tmp_path_factory.mktemp("any"), []
    for name in ("a.txt", "a.html", "a.csv", "a.json", "a.jsonl", "a.json.gz"):
        try:
            documents = load_documents(write(folder, name, data))
        except DocumentError as error:
            refusals.append(str(error))
        else:
            assert all(d.page_content.strip() for d in documents)
            assert len({d.id for d in documents}) == len(documents)
    assert all("\n" not in refusal and "/a." in refusal for refusal in refusals)


def test_html_keeps_paragraphs_and_drops_scripts_styles_and_navigation() -> None:
    page = b"""<!doctype html><html><head><title> The  page </title><style>p {}</style></head><body><nav><a>Home</a></nav>
    <h1>Heading</h1><p>First <em>paragraph</em>,\n two lines.</p><script>alert("x")</script><ul><li>one</li><li>two</li></ul>
    <table><tr><td>a</td><td>b</td></tr></table><footer>(c)</footer></body></html>"""
    (piece,) = read_html(page)
    assert piece.title == "The page"
    assert piece.text == "Heading\n\nFirst paragraph, two lines.\n\none\n\ntwo\n\na b"


def test_a_heading_that_is_the_title_of_html_is_no_sentence_of_its_text() -> None:
    for page in (
        b"<h1>Harbour\nhistory</h1><p>It was dug.",
        b"<title>Harbour history</title><h1>Harbour history</h1><p>It was dug.",
    ):
        assert [(piece.title, piece.text) for piece in read_html(page)] == [("Harbour history", "It was dug.")]
    assert read_html(b"<h1>Harbour history</h1>")[0].text == "Harbour history"
    assert read_markdown(b"# Ports\n\n<div><h1>Harbour</h1><p>It was dug.</p></div>")[0].text == "Harbour\n\nIt was dug."


def test_html_whose_tags_are_never_closed_is_read_to_its_end() -> None:
    text = read_html(b"<!-- note --><ul>" + b"<li>item<td>x" * 20_000)[0].text
    assert text.count("item x") == 20_000
    assert "note" not in text


def test_html_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-2"><p>Gdańsk'.encode("iso-8859-2")
    assert load_documents(write(tmp_path, "a.htm", page))[0].page_content == "Gdańsk"


def test_xml_that_is_named_html_gives_no_warning(tmp_path: Path) -> None:
    page = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Text.</p></body></html>'
    assert load_documents(write(tmp_path, "a.html", page))[0].page_content.endswith("Text.")


def test_markdown_is_read_as_paragraphs_without_its_marks() -> None:
    page = b"""# The *title*

First **bold** line
goes on, with `code` and ![a picture](x.png).

## Section

| a | b |
|---|---|
| 1 | 2 |
|   | 4 |

- one
  wrapped
- two

```python
x = 1

y = 2
```

<div><script>no()</script><p>kept</p></div>
"""
    (piece,) = read_markdown(page)
    assert piece.title == "The title"
    assert piece.text.split("\n\n") == [
        "First bold line goes on, with code and a picture.",
        "Section",
        "a: 1\nb: 2",
        "b: 4",
        "one wrapped",
        "two",
        "x = 1",
        "y = 2",
        "kept",
    ]


def test_the_title_of_markdown_comes_from_its_front_matter() -> None:
    (piece,) = read_markdown(b"---\ntags: [a]\ntitle: 'Bees'\n---\n\n# Heading\n\nText.")
    assert (piece.title, piece.text) == ("Bees", "Heading\n\nText.")


def test_markdown_of_nothing_but_a_heading_keeps_it() -> None:
    assert read_markdown(b"# Only this")[0].text == "Only this"


def test_very_large_markdown_is_read_as_it_is() -> None:
    assert read_markdown(b"*x* " * 600_000)[0].text.startswith("*x* *x*")


def test_lines_wrapped_at_a_width_are_joined_and_others_are_not() -> None:
    wrapped = "A first line that was broken because it would be too wide for the\npage and then goes on to end here.\n\nNext."
    assert unwrap(wrapped) == wrapped.replace("the\npage", "the page")
    poem = "A short line\nanother one\n\n\nthe end"
    assert unwrap(poem).split() == poem.split()
    assert "short line\nanother" in unwrap(poem)
    assert (
        unwrap("The retrieval of informa-\ntion is old, well", narrowest=20, printed=True)
        == "The retrieval of information is old, well"
    )


@given(st.text(alphabet="ab -.\n\u3000", max_size=300))
def test_unwrapping_changes_white_space_only(text: str) -> None:
    assert unwrap(text, narrowest=3).split() == text.split()


def test_every_group_of_csv_rows_keeps_the_column_names() -> None:
    rows = "\n".join(f"{i},City {i},{'x' * 90}" for i in range(50))
    pieces = read_csv(f"number,name,\n{rows}".encode())
    assert len(pieces) > 5
    for piece in pieces:
        assert len(piece.text) <= CSV_GROUP_CHARACTERS + 200
        assert all(row.startswith("number: ") and "column 3: x" in row for row in piece.text.split("\n\n"))
    assert sum(piece.text.count("name: City") for piece in pieces) == 50
    assert pieces[1].metadata["row"] == pieces[0].text.count("number: ") + 1


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_with_any_usual_delimiter_and_quotes(mark: str) -> None:
    text = f'name{mark}born\n"Lovelace{mark} Ada"{mark}1815\n"Two\nlines"{mark}1900\n'
    assert read_csv(text.encode())[0].text == f"name: Lovelace{mark.strip()} Ada\nborn: 1815\n\nname: Two lines\nborn: 1900"


@pytest.mark.parametrize(
    ("name", "text", "first"),
    [
        ("a.csv", "Name;Preis, netto\nA;1,50\nB;2,50", "Name: A\nPreis, netto: 1,50"),
        ("a.csv", 'Name,"Born; died"\nA,1815; 1852\nB,', "Name: A\nBorn; died: 1815; 1852"),
        ("a.tsv", "Name\nA, b", "Name: A, b"),
        ("a.tsv", "Name, first; last\tBorn\nA, b; c\t1815", "Name, first; last: A, b; c\nBorn: 1815"),
    ],
)
def test_the_delimiter_is_the_one_of_all_rows(tmp_path: Path, name: str, text: str, first: str) -> None:
    [document] = load_documents(write(tmp_path, name, text))
    assert document.page_content.partition("\n\n")[0] == first


def test_apostrophes_in_a_csv_are_no_quotes() -> None:
    assert read_csv(b"\nname,note\nO'Neil,it's, extra\nD'Arcy,\"a, b\"")[0].text == (
        "name: O'Neil\nnote: it's\ncolumn 3: extra\n\nname: D'Arcy\nnote: a, b"
    )


def test_a_csv_field_beyond_the_limit_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "name\nshort\n" + "x" * 200_000)
    with pytest.raises(DocumentError, match=r"a\.csv line \d is no valid CSV"):
        load_documents(path)


def test_json_rows_keep_their_ids_and_titles(tmp_path: Path) -> None:
    rows = [{"id": "p1", "title": "Ants", "text": "Ants walk."}, {"_id": 7, "text": "Bees hum."}, {"text": "No id."}, "Plain."]
    expected = [("p1", "Ants"), ("7", ""), ("{name}:3", ""), ("{name}:4", "")]
    lines = "\n\n".join(json.dumps(row) for row in rows)
    for name, data in {
        "a.json": json.dumps(rows).encode(),
        "a.jsonl": lines.encode(),
        "a.jsonl.gz": gzip.compress(lines.encode()),
        "a.json.gz": gzip.compress(json.dumps(rows).encode()),
    }.items():
        documents = load_documents(write(tmp_path, name, data))
        keys = [i.format(name=name) if name.startswith("a.json.") or name == "a.json" else i for i, _ in expected]
        if "jsonl" in name:
            keys = ["p1", "7", f"{name}:5", f"{name}:7"]
        assert [(d.id, d.metadata["title"]) for d in documents] == list(zip(keys, [t for _, t in expected], strict=True))
        assert {d.metadata["source"] for d in documents} == {name}


def test_ids_stay_unique_when_rows_repeat_them(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", '{"id": "1", "text": "One."}\n{"id": "1", "text": "Two."}\n{"id": "1", "text": "Three."}')
    write(tmp_path, "b.jsonl", '{"id": "1", "text": "Four."}')
    ids = [d.id for d in load_documents(tmp_path)]
    assert ids[0] == "1"
    assert len(set(ids)) == 4


def test_a_line_separator_inside_a_json_string_does_not_end_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "one\u2028two"}')
    assert load_documents(path)[0].page_content == "one\u2028two"


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", r'["ok \ud800 still"]')
    assert load_documents(path)[0].page_content == "ok \ufffd still"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", '[{"text": "x"},\n {"text": }]', r"a\.json line 2 is no valid JSON"),
        ("a.jsonl", '{"text": "x"}\n\n{"text": "y"', r"a\.jsonl line 3 is no valid JSON"),
        ("a.jsonl", '{"text": "x"}\n{"body": "y"}', r"a\.jsonl line 2 has no text"),
        ("a.json", '{"text": 5}', r"a\.json row 1 has no text"),
        ("a.json", "[" * 100_000, r"a\.json is (JSON that cannot be read|nested)"),
        ("a.json", "[]", r"a\.json holds no text"),
        ("a.jsonl.gz", b"not gzip", r"a\.jsonl\.gz is a broken gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}' * 500, mtime=0)[:-20], r"a\.jsonl\.gz is a broken gzip file"),
        ("a.txt", b"\x00\x01\x02" * 50, r"a\.txt is a binary file"),
        ("a.txt", bytes(range(1, 32)) * 50, r"a\.txt is a binary file"),
        ("a.txt", " \n ", r"a\.txt holds no text"),
        ("a.pdf", b"%PDF-1.4 broken", r"a\.pdf is no readable PDF"),
        ("a.pdf", b"", r"a\.pdf is no readable PDF"),
        ("a.exe", b"MZ", r"a\.exe is not of a kind that can be read: accepted are \.txt"),
        ("a.doc", b"D", r"a\.doc is of an older kind: save it as \.docx: accepted are"),
    ],
)
def test_a_single_broken_file_is_an_error_of_one_line_that_names_it(
    tmp_path: Path, name: str, data: str | bytes, message: str
) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        load_documents(write(tmp_path, name, data))
    assert "\n" not in str(caught.value)


def test_pages_of_a_pdf_are_documents_with_their_number(tmp_path: Path) -> None:
    path = write(tmp_path, "paper.pdf", pdf_bytes("First page.", "", "Third page."))
    documents = load_documents(path)
    assert [(d.id, d.metadata["page"], d.page_content.strip()) for d in documents] == [
        ("paper.pdf:page-1", 1, "First page."),
        ("paper.pdf:page-3", 3, "Third page."),
    ]


def test_headings_of_a_pdf_are_paragraphs_and_ligatures_are_letters(tmp_path: Path) -> None:
    lines = [
        "3 Findings",
        "Rain was low in May, and the river \\256lled to its lowest level since",
        "the year 1921. In June it rose again to the level of the last ten years.",
        "4 Outlook",
        "Nobody knows.",
    ]
    pages = pdf_bytes(") Tj 0 -20 Td (".join(lines))
    [page] = load_documents(write(tmp_path, "a.pdf", pages.replace(b"/Helvetica", b"/Helvetica /Encoding /StandardEncoding")))
    assert page.page_content.split("\n\n") == [
        "3 Findings",
        "Rain was low in May, and the river filled to its lowest level since the year 1921. In June it rose again to the "
        "level of the last ten years.",
        "4 Outlook",
        "Nobody knows.",
    ]


def test_a_pdf_with_a_password_is_refused_and_one_with_an_empty_password_is_read(tmp_path: Path) -> None:
    def locked(password: str) -> bytes:
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_bytes("Locked."))))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()

    with pytest.raises(DocumentError, match="encrypted PDF: save a copy without its password"):
        load_documents(write(tmp_path, "a.pdf", locked("secret")))
    assert load_documents(write(tmp_path, "b.pdf", locked("")))[0].page_content.strip() == "Locked."


def test_a_pdf_without_text_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="OCR"):
        load_documents(write(tmp_path, "scan.pdf", pdf_bytes("", "")))


def test_in_a_folder_what_cannot_be_read_is_passed_over_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "good.txt", "Good.")
    write(tmp_path, "bad.json", "{")
    write(tmp_path, "bad.txt", b"\x00" * 10)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    with caplog.at_level(logging.WARNING):
        assert [d.id for d in load_documents(tmp_path)] == ["good.txt"]
    *named, counted = [r.getMessage() for r in caplog.records]
    assert [message.split()[1] for message in named] == ["bad.json", "bad.txt", "gone.txt", "pipe.txt"]
    assert counted == "skipped: 4 of 5 files"
    assert "line 1 is no valid JSON" in caplog.text


def test_each_broken_file_is_named_at_once_and_all_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "z.txt", "Good.")
    for i in range(25):
        write(tmp_path, f"bad{i:02}.json", "{")
    with caplog.at_level(logging.WARNING):
        first = next(iter_documents(tmp_path))
        assert (first.id, len(caplog.records)) == ("z.txt", 25)
        caplog.clear()
        load_documents(tmp_path)
    assert len(caplog.records) == 26
    assert caplog.records[-1].getMessage() == "skipped: 25 of 26 files"


def test_of_files_of_other_kinds_the_first_are_named_and_all_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "good.txt", "Good.")
    write(tmp_path, "a/letter.doc", "old")
    for i in range(30):
        write(tmp_path, f"tool{i:02}.exe", b"MZ")
    with caplog.at_level(logging.WARNING):
        load_documents(tmp_path)
    named = [record.getMessage() for record in caplog.records]
    assert len(named) == 21
    assert named[0] == "skipped: tool00.exe is not of a kind that can be read"
    assert named[-1] == "skipped: 31 of 32 files, 11 of them not named"
    told: list[tuple[str, str]] = []
    assert len(load_documents(tmp_path / "a" / "..", told=lambda *what: told.append(what))) == 1
    assert len(told) == 20


def test_one_file_is_read_under_another_name_and_says_why_it_is_not(tmp_path: Path) -> None:
    place = write(tmp_path, "0c1f", "# Bees\n\nThey hum.")
    (document,), reasons = read_file(place, name="notes/bees.md")
    assert (document.id, document.metadata["title"], reasons) == ("notes/bees.md", "Bees", [])
    assert read_file(place, name="bees.exe") == ([], ["is not of a kind that can be read"])
    assert read_file(place, name="bees.pdf")[1][0].startswith("is no readable PDF")
    assert read_file(place, name="bees.txt", max_bytes=5) == ([], ["holds more than 5e-06 MB of text: split it"])


def test_a_file_that_the_system_refuses_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    write(tmp_path, "good.txt", "Good.")
    write(tmp_path, "closed.txt", "Closed.").chmod(0)
    assert len(load_documents(tmp_path)) == 1
    assert "closed.txt cannot be opened (Permission denied)" in caplog.text


@pytest.mark.parametrize("name", ["nowhere", "a\x00b", "x" * 5000])
def test_a_missing_path_is_an_error_that_says_what_is_accepted(tmp_path: Path, name: str) -> None:
    with pytest.raises(DocumentError, match=r"(does not exist|cannot be opened).*") as caught:
        load_documents(tmp_path / name)
    assert len(str(caught.value)) < 500


def test_folders_without_anything_to_read(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"is an empty folder: accepted are \.txt"):
        load_documents(tmp_path)
    write(tmp_path, "tool.exe", b"MZ")
    with pytest.raises(DocumentError, match=r"holds no file that can be read \(1 of other kinds\)"):
        load_documents(tmp_path)
    write(tmp_path, "bad.json", "{")
    with pytest.raises(DocumentError, match=r"no text could be read .*bad\.json line 1 is no valid JSON"):
        load_documents(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DocumentError, match="neither a file nor a folder"):
        load_documents(tmp_path / "pipe.txt")


def test_more_text_than_the_limit_says_how_to_raise_it(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as stream:
        stream.write(b"words " * 100)
        stream.truncate(200_000_000)
    with pytest.raises(DocumentError, match=r"more than 50 MB of text .*huge\.txt.*--max-mb"):
        load_documents(tmp_path)


def test_a_limit_beyond_the_memory_of_a_worker_keeps_nothing_from_being_read(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_text("A paragraph of some words.\n\n" * 500, encoding="utf-8")
    assert len(load_documents(tmp_path, max_bytes=10**12)) == 1


def test_a_file_that_is_read_in_parts_is_whole_and_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.load._READ_AT_ONCE", 7)
    text = "".join(f"{number} " for number in range(100)).strip()
    plain = write(tmp_path, "a.txt", text)
    packed = write(tmp_path, "b.jsonl.gz", gzip.compress(json.dumps({"text": text}).encode()))
    assert [load_documents(file)[0].page_content for file in (plain, packed)] == [text, text]
    assert len(load_documents(plain, max_bytes=len(text))) == 1
    with pytest.raises(DocumentError, match="more than"):
        load_documents(plain, max_bytes=len(text) - 1)


@pytest.mark.timeout(60)  # Copying what is there with each part takes minutes, which gigabytes in parts of 8 MB would too.
def test_reading_in_parts_takes_time_in_proportion_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.load._READ_AT_ONCE", 50)
    long = write(tmp_path, "a.txt", "x" * 8_000_000)
    with pytest.raises(DocumentError, match="more than"):
        load_documents(long, max_bytes=7_999_999)


def test_the_limit_holds_for_all_files_together_and_for_what_gzip_unpacks(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "x" * 600)
    write(tmp_path, "b.txt", "x" * 300)
    assert len(load_documents(tmp_path, max_bytes=900)) == 2
    with pytest.raises(DocumentError, match=r"reached at b\.txt"):
        load_documents(tmp_path, max_bytes=899)
    bomb = write(tmp_path, "c.jsonl.gz", gzip.compress(b'"' + b"x" * 1_000_000 + b'"'))
    with pytest.raises(DocumentError, match="more than"):
        load_documents(bomb, max_bytes=1000)
    pages = write(tmp_path, "d.pdf", pdf_bytes(*["Text of a page."] * 20))
    with pytest.raises(DocumentError, match="more than"):
        load_documents(pages, max_bytes=100)


def test_progress_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        write(tmp_path, f"{i}.txt", "Text.")
    assert len(load_documents(tmp_path, progress=True)) == 3
    assert capsys.readouterr().out == ""
