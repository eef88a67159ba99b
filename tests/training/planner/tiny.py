"""A tiny language model with a chat template, plans, and what they are played over."""

from __future__ import annotations

from pathlib import Path

from langchain_core.documents import Document
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.reasoning.chat_model import plan_messages
from tests.fakes import FixedRetriever, node, plan

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURNS = (
    Query("1", "When did Hopfield describe the network?", answer="1982", conversation="a", split="train"),
    Query("2", "Who painted it?", (("What hangs in Oslo?", "The Scream."),), answer="Munch", conversation="b", split="train"),
)
TEXTS = (
    "John Hopfield described the network in 1982. He was a physicist.",
    "The Scream hangs in Oslo. Edvard Munch painted The Scream in 1893.",
)


class Library(FixedRetriever):
    """Finds both texts for everything."""

    found: list[Document] = [Document(text, id=str(number)) for number, text in enumerate(TEXTS)]  # noqa: RUF012


def plan_of(sub: str, guess: str = "") -> str:
    return plan(node(sub, guess), final=guess, optimized=sub)


PLANS = (plan_of("When did Hopfield describe the network?"), plan_of("Who painted The Scream in Oslo?"))


def tiny_policy(folder: str | Path, *, seed: int = 0, chat: bool = True) -> Path:
    """A Llama of some 0.1 M drawn weights as a folder of transformers."""
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    actions = {"knowledge_retrieval": "searches the user's own documents"}
    prompts = [plan_messages(PlanRequest("Who?", actions, knowledge=known))[0].text for known in ("", "User: Who?")]
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator([*prompts, *PLANS, *TEXTS], vocab_size=900, special_tokens=special, show_progress=False)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer,
        eos_token="<|end|>",
        pad_token="<|system|>",
        additional_special_tokens=special[1:],
    )
    if chat:
        fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    set_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return Path(folder)
