"""A causal language model that reads evidence through graph attention (GATv2; Brody et al. 2022)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from experiments.graph_reader.text import ReaderText, ReaderTokenizer
from experiments.graph_reader.token_graph import Relation
from langgraph_convcoa.errors import ModelError

# Names of the projections of query, key and value in Llama, GPT-NeoX, Phi-3, MPT and GPT-2.
_PROJECTIONS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query_key_value",),
    ("qkv_proj",),
    ("Wqkv",),
    ("c_attn",),
)


@dataclass(frozen=True)
class ReaderSettings:
    """Size of a reader. The paper has rank 128 and dropouts of 0.5 and 0.05, on a model of 7 billion weights."""

    graph: bool = True  # False: the same model and text without graph attention.
    layers: int = 2
    heads: int = 2
    graph_dropout: float = 0.1
    rank: int = 16  # Rank of LoRA, on the projections of query, key and value.
    alpha: int = 32
    lora_dropout: float = 0.0
    longest: int = 512  # Maximum number of tokens of evidence.
    seed: int = 0  # Seed of the initial weights.


class GraphAttention(nn.Module):
    """Layers of GATv2 over the token graph; their output is added to the embeddings.

    The last projection starts at 0, so that training starts from the unchanged language model.
    """

    def __init__(self, width: int, settings: ReaderSettings) -> None:
        super().__init__()
        self.question = nn.Parameter(torch.randn(width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            GATv2Conv(
                width,
                width,
                heads=settings.heads,
                concat=False,
                edge_dim=len(Relation),
                add_self_loops=False,
                dropout=settings.graph_dropout,
            )
            for _ in range(settings.layers)
        )
        self.out_norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, embeddings: Tensor, edges: Tensor, relations: Tensor, asked: Tensor) -> Tensor:
        """States (n, d) of embeddings (n, d).

        Args:
            embeddings: (n, d).
            edges: (2, e), source and target of each edge.
            relations: (e,).
            asked: (n,), 1 for the tokens of the question.
        """
        states = self.norm(embeddings) + asked.unsqueeze(-1) * self.question
        kinds = nn.functional.one_hot(relations, len(Relation)).to(states.dtype)
        for layer in self.layers:
            states = states + nn.functional.elu(layer(states, edges, kinds))
        # Scaled to the size of the embeddings, which differs much between models.
        scale = embeddings.square().mean(-1, keepdim=True).sqrt()
        result: Tensor = embeddings + scale * self.out(self.out_norm(states))
        return result


class GraphReaderModel(nn.Module):
    """A language model with LoRA, and graph attention over the evidence in its prompt."""

    def __init__(self, language_model: Any, tokenizer: Any, settings: ReaderSettings) -> None:
        super().__init__()
        self.text = ReaderTokenizer(tokenizer, settings.longest)
        language_model.requires_grad_(False)
        with torch.random.fork_rng([]):
            torch.manual_seed(settings.seed)
            self.language_model: Any = _with_lora(language_model, settings)
            width = self.language_model.get_input_embeddings().weight.shape[1]
            self.graph = GraphAttention(width, settings) if settings.graph else None
        self._keeps = "logits_to_keep" in inspect.signature(language_model.forward).parameters
        self.eval()

    @classmethod
    def load(cls, name: str, settings: ReaderSettings) -> GraphReaderModel:
        """A new reader around a causal model of Hugging Face, by name or folder.

        Raises:
            ModelError: The projections of the model have no known name.
        """
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        return cls(model, AutoTokenizer.from_pretrained(name), settings)

    def embeddings(self, texts: Sequence[ReaderText]) -> tuple[Tensor, Tensor]:
        """Inputs (b, l, d) of the language model, padded on the left, and their mask (b, l)."""
        table = self.language_model.get_input_embeddings()
        device = table.weight.device
        graphs = [text.graph for text in texts]
        states = table(torch.tensor([token for graph in graphs for token in graph.tokens], dtype=torch.long, device=device))
        if self.graph is not None and len(states):
            states = self.graph(states, *_joined(texts, device))
        longest = max(map(len, texts))
        rows, masks, start = [], [], 0
        for text in texts:
            nodes = states[start : start + text.graph.evidence]
            start += len(text.graph.tokens)
            before = table(torch.tensor(text.prefix, dtype=torch.long, device=device))
            after = table(torch.tensor(text.suffix + text.answer, dtype=torch.long, device=device))
            pad = longest - len(text)
            rows.append(torch.cat((before.new_zeros(pad, before.shape[1]), before, nodes, after)))
            masks.append(torch.tensor([0] * pad + [1] * len(text), device=device))
        return torch.stack(rows), torch.stack(masks)

    def losses(self, texts: Sequence[ReaderText]) -> Tensor:
        """Cross-entropy (b,) of each answer, the mean over its tokens."""
        inputs, mask = self.embeddings(texts)
        most = max(len(text.answer) for text in texts)
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        kept = {"logits_to_keep": most + 1} if self._keeps else {}
        found = self.language_model(
            inputs_embeds=inputs, attention_mask=mask, position_ids=places, use_cache=False, **kept
        ).logits[:, -most - 1 : -1]
        targets = torch.full((len(texts), most), -100, device=found.device)
        for row, text in enumerate(texts):
            targets[row, most - len(text.answer) :] = torch.tensor(text.answer)
        loss = nn.functional.cross_entropy(found.float().transpose(1, 2), targets, reduction="none", ignore_index=-100)
        counts = torch.tensor([len(text.answer) for text in texts], device=found.device)
        result: Tensor = loss.sum(-1) / counts
        return result

    @torch.inference_mode()
    def answers(self, texts: Sequence[ReaderText], *, longest: int = 24) -> list[str]:
        """First line of the greedy continuation of each text."""
        if not texts:
            return []
        tokenizer = self.text.tokenizer
        inputs, mask = self.embeddings(texts)
        end = tokenizer.eos_token_id
        pad = end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        greedy: Any = GenerationConfig(max_new_tokens=longest, do_sample=False, pad_token_id=pad, eos_token_id=end)  # type: ignore[no-untyped-call]
        written = self.language_model.generate(inputs_embeds=inputs, attention_mask=mask, generation_config=greedy)
        return [text.strip().split("\n")[0].strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)]


def _joined(texts: Sequence[ReaderText], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Edges, relations and marks of the question's tokens, all graphs joined into one."""
    sources, targets, relations, asked, start = [], [], [], [], 0
    for text in texts:
        graph = text.graph
        for edge in graph.edges:
            sources.append(start + edge.source)
            targets.append(start + edge.target)
            relations.append(int(edge.relation))
        asked += [0.0] * graph.evidence + [1.0] * (len(graph.tokens) - graph.evidence)
        start += len(graph.tokens)
    return (
        torch.tensor([sources, targets], dtype=torch.long, device=device),
        torch.tensor(relations, dtype=torch.long, device=device),
        torch.tensor(asked, device=device),
    )


def _with_lora(model: nn.Module, settings: ReaderSettings) -> Any:
    known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = next((list(names) for names in _PROJECTIONS if known.issuperset(names)), None)
    if targets is None:
        wanted = ", ".join("/".join(names) for names in _PROJECTIONS)
        raise ModelError(f"{type(model).__name__} has no projections of query, key and value of a known name ({wanted}).")
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=targets,
        fan_in_fan_out=targets == ["c_attn"],
    )
    return inject_adapter_in_model(config, model)
