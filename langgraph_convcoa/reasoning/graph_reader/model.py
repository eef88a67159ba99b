"""A causal language model that reads evidence through graph attention (GATv2; Brody et al. 2022)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.reasoning.graph_reader.extra import load
from langgraph_convcoa.reasoning.graph_reader.text import ReaderText, ReaderTokenizer
from langgraph_convcoa.reasoning.graph_reader.token_graph import Relation

_PROJECTIONS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query_key_value",),
    ("qkv_proj",),
    ("Wqkv",),
    ("c_attn",),
    ("q_lin", "k_lin", "v_lin"),
)


@dataclass(frozen=True)
class ReaderSettings:
    """What a reader is made of; the paper's rank is 128, its dropouts 0.5 and 0.05, on a model of 7 billion weights."""

    graph: bool = True  # False: the same model and text without graph attention, to compare with.
    layers: int = 2
    heads: int = 2
    graph_dropout: float = 0.1
    rank: int = 16  # Of LoRA, on the projections of query, key and value; 0 trains the whole language model.
    alpha: float = 32.0
    lora_dropout: float = 0.0
    longest: int = 512  # Tokens of evidence at most.
    seed: int = 0  # Of the weights that are drawn.

    def __post_init__(self) -> None:
        for name, least in (("layers", 1), ("heads", 1), ("rank", 0), ("longest", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("graph_dropout", "lora_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be in [0, 1), not {getattr(self, name)}.")


class GraphAttention(nn.Module):
    """Node states from embeddings: layers of GATv2 over the token graph, added to the embeddings.

    At first what is added is 0, so that training begins at the language model as it is.
    """

    def __init__(self, width: int, settings: ReaderSettings) -> None:
        super().__init__()
        convolution = load("torch_geometric.nn").GATv2Conv
        self.question = nn.Parameter(torch.randn(width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            convolution(
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
        """States (n, d) of embeddings (n, d); `edges` (2, e), `relations` (e,), `asked` (n,): tokens of the question."""
        states = self.norm(embeddings) + asked.unsqueeze(-1) * self.question
        kinds = nn.functional.one_hot(relations, len(Relation)).to(states.dtype)
        for layer in self.layers:
            states = states + nn.functional.elu(layer(states, edges, kinds))
        # In the scale of the embedding itself, which differs much between models.
        scale = embeddings.square().mean(-1, keepdim=True).sqrt()
        result: Tensor = embeddings + scale * self.out(self.out_norm(states))
        return result


class GraphReaderModel(nn.Module):
    """A language model with LoRA, and graph attention over the evidence in its prompt."""

    def __init__(self, language_model: Any, tokenizer: Any, settings: ReaderSettings) -> None:
        super().__init__()
        self.settings = settings
        self.text = ReaderTokenizer(tokenizer, settings.longest)
        language_model.requires_grad_(settings.rank == 0)
        with torch.random.fork_rng([]):
            torch.manual_seed(settings.seed)
            self.language_model: Any = _with_lora(language_model, settings) if settings.rank else language_model
            width = self.language_model.get_input_embeddings().weight.shape[1]
            self.graph = GraphAttention(width, settings) if settings.graph else None
        self._keeps = "logits_to_keep" in inspect.signature(language_model.forward).parameters
        self.eval()

    @classmethod
    def of(cls, name: str, settings: ReaderSettings) -> GraphReaderModel:
        """A new reader around a causal model of Hugging Face, by name or folder.

        Raises:
            ModelError: The model cannot be loaded, has no fast tokenizer or other projections, or a package is missing.
        """
        check_model(name)
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        except Exception as error:
            raise _load_error(name, error) from error
        if not tokenizer.is_fast or tokenizer.eos_token_id is None:
            raise ModelError(f"The language model {name!r} needs a fast tokenizer with an end token: name another model.")
        return cls(model, tokenizer, settings)

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
        """What the model writes behind each text: the likeliest token after token, up to its end or the end of the line."""
        if not texts:
            return []
        tokenizer = self.text.tokenizer
        inputs, mask = self.embeddings(texts)
        ends = tokenizer.eos_token_id
        pad = ends if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        from transformers import GenerationConfig

        chosen: Any = GenerationConfig(max_new_tokens=longest, do_sample=False, pad_token_id=pad, eos_token_id=ends)  # type: ignore[no-untyped-call]
        written = self.language_model.generate(inputs_embeds=inputs, attention_mask=mask, generation_config=chosen)
        return [told.strip().split("\n")[0].strip() for told in tokenizer.batch_decode(written, skip_special_tokens=True)]

    @property
    def shape(self) -> dict[str, int]:
        """What a saved reader must have in common with the model that it is put on."""
        config = self.language_model.config
        names = ("hidden_size", "num_hidden_layers", "vocab_size")
        return {name: int(getattr(config, name)) for name in names if hasattr(config, name)}

    @property
    def told(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return asdict(self.settings)


def check_model(name: str) -> None:
    """Check without loading it that there is such a language model, and that the extra `graph-reader` is installed.

    Raises:
        ModelError: One of these is not so.
    """
    load("torch_geometric.nn")
    load("peft")
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(name)
    except Exception as error:
        raise _load_error(name, error) from error


def _load_error(name: str, error: Exception) -> ModelError:
    # Whatever a foreign checkpoint brings about: the hub's errors, the config's, those of safetensors.
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return ModelError(f"The language model {name!r} cannot be loaded ({reason}): name a causal model or its folder.")


def _joined(texts: Sequence[ReaderText], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Edges, relations and marks of the question's tokens, of all graphs as one."""
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
    peft = load("peft")
    known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = next((list(names) for names in _PROJECTIONS if known.issuperset(names)), None)
    if targets is None:
        wanted = ", ".join("/".join(names) for names in _PROJECTIONS)
        raise ModelError(f"{type(model).__name__} has no projections of query, key and value of a known name ({wanted}).")
    chosen = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=targets,
        fan_in_fan_out=targets == ["c_attn"],
    )
    return peft.inject_adapter_in_model(chosen, model)
