"""The loading and generating code with a T5 of a few thousand weights, which learns to write one word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval
from langgraph_convcoa.evaluation.retrieval.rewriting import Seq2Seq, expansions, rewrites
from tests.evaluation.retrieval.test_compare import ASKED, CORPUS, FOLLOW_UP, SHORT
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.tiny_bert import save_tiny_bert

WORDS = [
    "<pad>",
    "</s>",
    "<unk>",
    "|||",
    "when",
    "was",
    "it",
    "proposed",
    "sparsemax",
    "who",
    "wrote",
    "about",
    "martins",
    "?",
]


def save_tiny_t5(folder: Path, answer: str) -> Path:
    """A T5 that writes `answer` whatever it reads, and a tokenizer of words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.normalizer, words.pre_tokenizer = Lowercase(), WhitespaceSplit()
    words.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=16, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    asked = tokenizer(["when was it proposed"], return_tensors="pt")
    labels = tokenizer([answer], return_tensors="pt").input_ids
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        model(input_ids=asked.input_ids, attention_mask=asked.attention_mask, labels=labels).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rewriter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_t5(tmp_path_factory.mktemp("models") / "rewriter", "when was sparsemax proposed")


def test_a_question_with_a_history_is_rewritten_and_found(rewriter: Path) -> None:
    model = Seq2Seq(rewriter)
    assert rewrites(model, [ASKED, FOLLOW_UP]) == [ASKED.question, "when was sparsemax proposed"]
    assert expansions(model, model, [FOLLOW_UP]) == ["when was sparsemax proposed when was sparsemax proposed"]
    data = Dataset("talk", (FOLLOW_UP,), (*CORPUS, SHORT))
    report = evaluate_retrieval(
        data, methods=["question", "t5qr", "t5qr-hybrid", "convgqr"], rewriter=rewriter, answerer=model, encoder=BagOfWords()
    )
    assert [result.metrics["Recall@1"] for result in report.methods.values()] == [0, 1, 1, 1]


def test_the_model_reads_the_turns_oldest_first_and_the_end_of_a_long_history(
    rewriter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, read = Seq2Seq(rewriter), []
    generate = model._model.generate
    monkeypatch.setattr(model._model, "generate", lambda **inputs: read.append(inputs["input_ids"]) or generate(**inputs))
    model.write([FOLLOW_UP])
    # `proposed?` is no word of the tokenizer's, as the question mark sticks to it.
    assert model._tokenizer.decode(read[0][0]) == "who wrote about <unk> ||| martins ||| when was it <unk> </s>"
    long = Query("9", "when was sparsemax", tuple(("who wrote it", "martins") for _ in range(10_000)))
    model.write([long])
    assert read[1].shape == (1, 512)
    assert model._tokenizer.decode(read[1][0][-6:]) == "martins ||| when was sparsemax </s>"


def broken(folder: Path, rewriter: Path, how: str) -> Path:
    if how == "an encoder alone":
        return save_tiny_bert(folder)
    shutil.copytree(rewriter, folder)
    if how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
    elif how == "another size":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"num_layers": 3, "num_decoder_layers": 3}))
    elif how == "a tokenizer of more words":
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"] |= {f"word{n}": len(WORDS) + n for n in range(9)}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("an encoder alone", "cannot be loaded"),
        ("no weights", "cannot be loaded"),
        ("no tokenizer", "not of the model there"),
        ("another size", "has no weights for"),
        (
            "a tokenizer of more words",
            r"The tokenizer in .* is not of the model there \(its tokenizer has 23 tokens, the model 16",
        ),
    ],
)
def test_a_folder_that_does_not_fit_is_told_before_anything_is_encoded(
    tmp_path: Path, rewriter: Path, how: str, message: str
) -> None:
    encoder, folder = BagOfWords(), broken(tmp_path / "model", rewriter, how)
    with pytest.raises(InputError, match=message) as raised:
        evaluate_retrieval(
            Dataset("talk", (FOLLOW_UP,), CORPUS), methods=["question", "t5qr"], rewriter=folder, encoder=encoder
        )
    assert "castorini/t5-base-canard" in str(raised.value)
    assert encoder.passages == encoder.queries == []
