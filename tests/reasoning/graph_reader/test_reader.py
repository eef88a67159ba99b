"""The graph reader: what it is given to read, its network, its folder, and its place in a turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from langchain_core.documents import Document
from safetensors import SafetensorError

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.base import CorrectRequest, PlanRequest, Unsolved
from langgraph_convcoa.reasoning.graph_reader import extra
from langgraph_convcoa.reasoning.graph_reader.model import GraphReaderModel, ReaderSettings
from langgraph_convcoa.reasoning.graph_reader.reader import GraphReader, Reading
from langgraph_convcoa.reasoning.graph_reader.storage import load_reader, save_reader, trained_weights

pytest.importorskip("torch_geometric")
pytest.importorskip("peft")

SMALL = ReaderSettings(rank=2, longest=24)
LIVES = [Document("ada lives in rome. bob and ada.", id="a"), Document("bob lives in oslo.", id="b")]


@pytest.fixture(scope="module")
def model(tiny_model: str) -> GraphReaderModel:
    return GraphReaderModel.of(tiny_model, SMALL)


def read_back(model: GraphReaderModel, tokens: tuple[int, ...]) -> str:
    return str(model.text.tokenizer.decode(tokens))


def test_the_nodes_stand_between_prefix_and_suffix(model: GraphReaderModel) -> None:
    text = model.text.text("Where is ada?", LIVES[1:], [("Who lives in rome?", "ada")], answer="oslo")
    evidence = text.graph.tokens[: text.graph.evidence]
    parts = [read_back(model, part) for part in (text.prefix, evidence, text.suffix, text.answer)]
    assert parts == [
        "Facts:\n",
        "bob lives in oslo.\n",
        "Question: Who lives in rome?\nAnswer: ada\nQuestion: Where is ada?\nAnswer:",
        " oslo<end>",
    ]
    states, mask = model.embeddings([text])
    assert states.shape == (1, len(text), 32)
    assert bool(mask.all())


def test_an_untrained_graph_changes_nothing_and_a_trained_one_changes_the_nodes_alone(tiny_model: str) -> None:
    model = GraphReaderModel.of(tiny_model, SMALL)
    text = model.text.text("Where is ada?", LIVES)
    before, _ = model.embeddings([text])
    plain = GraphReaderModel.of(tiny_model, ReaderSettings(graph=False, rank=2, longest=24)).embeddings([text])[0]
    assert torch.equal(before, plain)
    assert model.graph is not None
    torch.nn.init.normal_(model.graph.out.weight)
    changed = (model.embeddings([text])[0] != before).any(-1)[0]
    start, end = len(text.prefix), len(text.prefix) + text.graph.evidence
    assert bool(changed[start:end].all())
    assert not bool(changed[:start].any() or changed[end:].any())


def test_the_question_reaches_the_evidence_through_the_graph(tiny_model: str) -> None:
    """A causal model reads the evidence before the question; only the graph's links can bring it there."""
    model = GraphReaderModel.of(tiny_model, SMALL)
    assert model.graph is not None
    torch.nn.init.normal_(model.graph.out.weight)
    document = [Document("ada lives in rome.", id="a")]
    asked, other = (model.text.text(f"Where is {name}?", document) for name in ("ada", "bob"))
    assert asked.graph.tokens[: asked.graph.evidence] == other.graph.tokens[: other.graph.evidence]
    nodes = slice(len(asked.prefix), len(asked.prefix) + asked.graph.evidence)
    found, without = (model.embeddings([text])[0][0, nodes] for text in (asked, other))
    # Two layers: the word that is linked, and the one beside it.
    assert (found != without).any(-1).tolist() == [True, True, False, False, False, False]


def test_a_batch_of_texts_gives_what_each_alone_does(model: GraphReaderModel) -> None:
    texts = [model.text.text("Where is ada?", LIVES, answer="rome"), model.text.text("Who?", [], answer="bob and ada")]
    together = model.losses(texts)
    alone = torch.cat([model.losses([text]) for text in texts])
    torch.testing.assert_close(together, alone)
    asked = [model.text.text("Where is ada?", LIVES), model.text.text("Who?", [])]
    assert model.answers(asked, longest=4) == [answer for text in asked for answer in model.answers([text], longest=4)]
    assert model.answers([]) == []


def test_only_the_answer_has_a_loss(model: GraphReaderModel) -> None:
    """The mean of -log p of the answer's tokens, computed from the logits at their places."""
    text = model.text.text("Where is ada?", LIVES, answer="rome")
    inputs, mask = model.embeddings([text])
    logits = model.language_model(inputs_embeds=inputs, attention_mask=mask).logits[0]
    places = range(len(text) - len(text.answer) - 1, len(text) - 1)
    wanted = -sum(logits[place].log_softmax(-1)[token] for place, token in zip(places, text.answer, strict=True)) / 2
    torch.testing.assert_close(model.losses([text])[0], wanted)


def test_very_long_evidence_is_cut_to_its_best_sentences(model: GraphReaderModel) -> None:
    long = [Document(" ".join(["bob lives in oslo and cairo."] * 400), id="l"), *LIVES]
    many = [Document(f"{name} lives in paris.", id=str(n)) for n, name in enumerate(["dan", "eve", "finn"] * 100)]
    for documents in (long, many + LIVES):
        text = model.text.text("Where is ada?", documents)
        assert 0 < text.graph.evidence <= SMALL.longest
        assert "ada lives in rome." in read_back(model, text.graph.tokens[: text.graph.evidence])
    held = model.text.text("Where is ada?", many, holds="finn lives")
    assert "finn" in read_back(model, held.graph.tokens[: held.graph.evidence])


@pytest.mark.parametrize("settings", [SMALL, ReaderSettings(rank=0, longest=24), ReaderSettings(graph=False, rank=2)])
def test_a_saved_reader_is_the_same_when_it_is_loaded(tiny_model: str, tmp_path: Path, settings: ReaderSettings) -> None:
    model = GraphReaderModel.of(tiny_model, settings)
    with torch.no_grad():
        for weight in trained_weights(model).values():
            weight.add_(0.1)
    save_reader(model, tmp_path / "reader", base=tiny_model)
    again = load_reader(tmp_path / "reader")
    assert again.settings == settings
    text = model.text.text("Where is ada?", LIVES, answer="rome")
    assert torch.equal(model.losses([text]), again.losses([text]))
    # The language model is not copied, unless it is trained itself.
    small = (tmp_path / "reader" / "reader.safetensors").stat().st_size < (
        Path(tiny_model) / "model.safetensors"
    ).stat().st_size
    assert small == (settings.rank > 0)


def test_a_reader_that_cannot_be_loaded_says_why(model: GraphReaderModel, tiny_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    save_reader(model, folder, base=tiny_model)
    config = json.loads((folder / "reader.json").read_text())

    def broken(**changed: object) -> None:
        (folder / "reader.json").write_text(json.dumps(config | changed))

    with pytest.raises(ModelError, match=r"holds no reader .* train one: convcoa train-reader"):
        load_reader(tmp_path / "nowhere")
    for changes, message in (
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "holds no reader"),
        ({"settings": {"layer": 2}}, "damaged"),
        ({"settings": {"layers": "two"}}, "damaged"),
        ({"settings": {"layers": 0}}, "damaged"),
        ({"settings": {"heads": 1.5}}, "damaged"),
        ({"settings": {"lora_dropout": 7}}, "damaged"),
        ({"shape": None}, "damaged"),
        ({"shape": {"hidden_size": 64}}, "was trained on a model of"),
        ({"base": str(tmp_path / "gone")}, "cannot be loaded"),
        ({"settings": config["settings"] | {"rank": 4}}, "does not fit"),
    ):
        broken(**changes)  # type: ignore[arg-type]
        with pytest.raises(ModelError, match=message):
            load_reader(folder)
    (folder / "reader.json").write_text(json.dumps({name: value for name, value in config.items() if name != "shape"}))
    with pytest.raises(ModelError, match="damaged"):
        load_reader(folder)
    broken()
    (folder / "reader.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match="missing or damaged"):
        load_reader(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(ModelError, match="holds other files"):
        save_reader(model, tmp_path / "other", base=tiny_model)


def test_weights_that_cannot_be_written_leave_the_reader_that_was_there(
    model: GraphReaderModel, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("No space left on device")

    save_reader(model, tmp_path / "reader", base=tiny_model)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(ModelError, match=r"cannot be written .*No space left"):
        save_reader(model, tmp_path / "reader", base=tiny_model)
    assert load_reader(tmp_path / "reader").settings == SMALL


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ModelError, match=r'pip install "langgraph-convcoa\[graph-reader\]"'):
        extra.load("torch_geometric_that_is_not_installed")


class _Said:
    """A reader whose language model writes what is given."""

    def __init__(self, reader: GraphReader, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.texts: list[object] = []
        monkeypatch.setattr(reader._model, "answers", lambda texts: self.texts.extend(texts) or list(answers)[: len(texts)])


@pytest.fixture(scope="module")
def reader(model: GraphReaderModel, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> GraphReader:
    folder = tmp_path_factory.mktemp("readers") / "one"
    save_reader(model, folder, base=tiny_model)
    return GraphReader(folder, device="cpu")


def corrected(reader: GraphReader, *items: Unsolved) -> list[tuple[int, str, bool, tuple[int, ...]]]:
    request = CorrectRequest("Where is ada?", items, evidence=[LIVES[1], LIVES[0]])
    return [(c.index, c.answer, c.supported, tuple(c.evidence)) for c in reader.correct(request).corrections]


def test_answers_name_the_evidence_that_they_stand_in(reader: GraphReader, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _Said(reader, monkeypatch, "Rome.", "lima", "yes")
    items = [Unsolved(n, "Where is ada?", "", LIVES) for n in (0, 2, 3)]
    found = corrected(reader, *items, Unsolved(4, "Who?", "", []), Unsolved(5, "Who?", "", [Document("", id="e")]))
    # LIVES[0] is the second of the turn's evidence; what stands nowhere is not given.
    assert found == [
        (0, "Rome.", True, (2,)),
        (2, "", False, ()),
        (3, "yes", True, (2,)),
        (4, "", False, ()),
        (5, "", False, ()),
    ]
    # Nothing is read where there is no evidence.
    assert len(said.texts) == 3
    assert reader.read([("Who?", [])]) == [Reading("", -1)]


@pytest.mark.parametrize(
    ("answer", "text", "place"),
    [
        ("art", "He made a start.", -1),
        ("19", "In 1998.", -1),
        ("5", "It is 3.5 km or 5,000 steps.", -1),
        ("3.5", "It is 3.5 km.", 0),
        ("5", "Of these, 5, all.", 0),
        ("U.S.", "In the U.S. since.", 0),
        ("C++", "It is in C++.", 0),
        ("New  York", "in\nnew york", 0),
    ],
)
def test_an_answer_stands_in_a_text_as_whole_words(
    reader: GraphReader, monkeypatch: pytest.MonkeyPatch, answer: str, text: str, place: int
) -> None:
    _Said(reader, monkeypatch, answer)
    assert reader.read([("What is it?", [Document(text, id="d")])]) == [Reading(answer, place)]


@pytest.mark.parametrize("answer", ["yes", "No."])
def test_yes_and_no_cite_the_passage_that_fits_the_question_best(
    reader: GraphReader, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    _Said(reader, monkeypatch, answer)
    documents = [Document("There is no bread, yes.", id="c"), LIVES[1], LIVES[0]]
    assert reader.read([("Is ada in rome?", documents)]) == [Reading(answer, 2)]


def test_one_thread_at_a_time_uses_the_tokenizer(reader: GraphReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast tokenizers of Hugging Face are not to be shared by threads."""
    seen: list[bool] = []
    given = reader._model.text

    class Watched:
        def text(self, *arguments: object) -> object:
            seen.append(reader._one_at_a_time.locked())
            return given.text(*arguments)  # type: ignore[arg-type]

    _Said(reader, monkeypatch, "rome")
    monkeypatch.setattr(reader._model, "text", Watched())
    assert reader.read([("Where is ada?", LIVES)]) == [Reading("rome", 0)]
    assert seen == [True]


def test_the_planner_plans_and_greets(reader: GraphReader) -> None:
    request = PlanRequest("Where is ada and where is bob?", {"knowledge_retrieval": "documents"})
    assert reader.plan(request) == reader.planner.plan(request)
    assert not reader.plans_over_evidence
    assert "ask" in reader.correct(CorrectRequest("Hello!", ())).answer.lower()


async def test_a_turn_of_the_graph_ends_with_a_cited_answer(reader: GraphReader, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_core.retrievers import BaseRetriever

    from langgraph_convcoa.graph import build_graph

    class Fixed(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
            return LIVES

    graph = build_graph(retriever=Fixed(), reasoner=reader).compile()
    _Said(reader, monkeypatch, "rome")
    out = await graph.ainvoke({"question": "Where does ada live?"})
    assert "rome" in out["answer"].lower()
    assert [citation["id"] for citation in out["citations"]] == ["a"]
    _Said(reader, monkeypatch, "lima")
    assert "lima" not in graph.invoke({"question": "Where does ada live?"})["answer"].lower()
