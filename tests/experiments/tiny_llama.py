"""A tiny causal language model with a tokenizer of whole words, saved as a user's would be."""

from __future__ import annotations

import re
from pathlib import Path

from langchain_core.documents import Document
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from langgraph_convcoa.datasets.queries import Dataset, Query

NAMES = ("ada", "bob", "cleo", "dan", "eve", "finn")
TOWNS = ("rome", "oslo", "paris", "lima", "cairo", "bern")
_TEXT = f"Facts:\n Question: Answer: Who lives in {' '.join(TOWNS)} {' '.join(NAMES)} Where is ? . : , yes no and Town a the"


def save_tiny_model(folder: Path) -> str:
    """A Llama of two layers, its weights drawn."""
    pieces = dict.fromkeys(re.findall(r"\w+|[^\w\s]|\n", _TEXT))
    words = ["<unk>", "<end>", *(form for piece in pieces for form in ([piece, f" {piece}"] if piece != "\n" else [piece]))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    from tokenizers import Regex

    tokenizer.pre_tokenizer = Split(Regex(r" ?\w+| ?[^\w\s]|\n"), "isolated")
    from tokenizers.decoders import Fuse

    tokenizer.decoder = Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>", pad_token="<end>")
    fast.save_pretrained(folder)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def towns() -> Dataset:
    """Who lives where: each person in a passage of their own."""
    corpus = tuple(
        Document(f"{name} lives in {TOWNS[(n + shift) % 6]}.", id=f"{name}-{shift}", metadata={"title": "Town"})
        for shift in range(6)
        for n, name in enumerate(NAMES)
    )
    queries = tuple(
        Query(
            f"q{document.id}",
            f"Where is {document.page_content.split()[0]}?",
            gold=(str(document.id),),
            answer=document.page_content.split()[-1].rstrip("."),
            split="dev" if number % 6 == 5 else "train",
        )
        for number, document in enumerate(corpus)
    )
    return Dataset("towns", queries, corpus)
