"""A tiny causal language model with drawn weights, for `convcoa train-reader --rank 0` where no model can be downloaded.

python tests/benchmarks/tiny_language_model.py DATA FOLDER
"""

from __future__ import annotations

import sys

from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from langgraph_convcoa.datasets.read import load_dataset

PASSAGES, VOCABULARY, WIDTH, LAYERS = 4_000, 4_096, 128, 3


def main(data: str, folder: str) -> None:
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    texts = [document.page_content for document in load_dataset(data).corpus[:PASSAGES]]
    tokenizer.train_from_iterator(texts, vocab_size=VOCABULARY, special_tokens=["<|end|>"], show_progress=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.save_pretrained(folder)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
