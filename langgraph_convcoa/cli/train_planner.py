"""`convcoa train-planner`: a language model that plans turns, trained on the rewards of whole turns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, BaseUrl, Docs, IndexPlace, grouped, names_of, option, panel
from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.datasets.queries import Dataset
    from langgraph_convcoa.reasoning.base import Reasoner
    from langgraph_convcoa.training.planner.environment import RewardSettings
    from langgraph_convcoa.training.planner.grpo import PlannerTraining

_turn, _reward, _length, _run = map(panel, ("The turns", "The reward", "Length and memory", "The run"))


@dataclass(frozen=True)
class PlannerOptions:
    """The turns, their reward, and the length of the training."""

    k: Annotated[int | None, _turn("N", "Passages a sub-question.", "-k", "--k", min=1, max=100)] = None
    evidence: Annotated[bool, _turn(None, "Look the question up first, as build_graph does.", "--evidence")] = False
    reasoner: Annotated[str, _turn("NAME", "Writes the second call: extractive, base or a chat model.")] = "extractive"
    weights: Annotated[str, _reward("A=X,B=Y", "Of final, kept, hallucinated, retrieval, malformed.")] = ""
    match: Annotated[str, _reward("em|cover_em|f1", "When a final answer is right.")] = "cover_em"
    own: Annotated[str | None, _reward("MODULE:NAME", "Your function (plan, output, references) -> number.")] = None
    steps: Annotated[int, _length("N", "Updates of the weights.", min=1)] = 200
    questions: Annotated[int, _length("N", "Questions a step.", min=1)] = 4
    group: Annotated[int, _length("N", "Plans sampled for each.", min=2)] = 4
    longest: Annotated[int, _length("N", "Tokens of a plan.", min=8)] = 256
    learning_rate: Annotated[float, _length("X", "The highest.")] = 1e-5
    beta: Annotated[float, _length("X", "Weight of the KL term.", min=0.0)] = 0.04
    temperature: Annotated[float, _length("X", "Of the sampled plans.")] = 1.0
    rank: Annotated[int, _length("N", "Of LoRA.", min=1)] = 16
    layers: Annotated[int | None, _length("N", "LoRA in the last N layers; in all by default.", min=1)] = None
    full: Annotated[bool, _length(None, "Train all weights instead of LoRA.", "--full")] = False
    vllm: Annotated[bool, _length(None, "Sample with vLLM.", "--vllm/--no-vllm")] = False
    checkpoint_every: Annotated[int, _run("N", "Steps between two checkpoints.", min=1)] = 10
    seed: Annotated[int, _run("S", "Of everything that is drawn.", min=0)] = 0

    def settings(self) -> PlannerTraining:
        """The settings of the training."""
        from langgraph_convcoa.training.planner.grpo import PlannerTraining

        return PlannerTraining(**{field.name: getattr(self, field.name) for field in fields(PlannerTraining)})

    def reward(self) -> RewardSettings:
        """The settings of the reward."""
        from pydantic import ImportString, TypeAdapter, ValidationError

        from langgraph_convcoa.training.planner.environment import RewardSettings

        known = ("final", "kept", "hallucinated", "retrieval", "malformed")
        given: dict[str, Any] = {"match": self.match}
        for part in names_of(self.weights):
            name, _, number = part.partition("=")
            if name not in known:
                raise InputError(f"--weights knows {', '.join(known)}, not {name!r}")
            try:
                given[name] = float(number)
            except ValueError:
                raise InputError(f"--weights takes NAME=NUMBER, not {part!r}") from None
        if self.own is not None:
            try:
                given["own"] = TypeAdapter(ImportString[Any]).validate_python(self.own)
            except ValidationError as error:
                raise InputError(f"--own {self.own} cannot be imported: write MODULE:NAME") from error
        return RewardSettings(**given)

    def frozen(self, model: str, base_url: str | None) -> Reasoner | None:
        """The reasoner of the second call; None for the extractive one."""
        if self.reasoner == "extractive":
            return None
        from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner

        return ChatModelReasoner(f"huggingface:{model}" if self.reasoner == "base" else self.reasoner, base_url=base_url)


@grouped(PlannerOptions)
def train_planner(
    options: PlannerOptions,
    ctx: typer.Context,
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help="Folders or files of conversations with answers.")],
    model: Annotated[str, option("NAME", "Language model of Hugging Face, by name or folder; it is not changed.")],
    out: Annotated[Path, option("DIR", "Folder of the planner.")],
    docs: Docs = None,
    index: IndexPlace = None,
    base_url: BaseUrl = None,
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train the planner of a graph with GRPO: the reward of a plan is the reward of the turn that it leads to.

    A plan that is not exactly the requested JSON earns less than any other plan. A small model writes no such JSON:
    first train it on plans of a stronger model (docs/guides/training.md). The split "dev" of the data is left out, or a fifth.
    Ctrl-C stops after the current step; run it again with --resume to finish. It needs the extra `grpo`.

    [bold]Examples[/bold]
      convcoa train-planner conversations/ --model Qwen/Qwen3-4B-Instruct-2507 --out my.planner --docs papers/
      convcoa train-planner conversations/ --model warm/ --out my.planner --index papers.index --learning-rate 1e-4
    """
    from langgraph_convcoa.cli.console import consoles, print_json
    from langgraph_convcoa.cli.documents import searched
    from langgraph_convcoa.cli.train import command_line
    from langgraph_convcoa.training.planner.environment import PAPER_FORM, Environment
    from langgraph_convcoa.training.planner.grpo import check_planner_folder
    from langgraph_convcoa.training.planner.grpo import train_planner as run

    reward, settings = options.reward(), options.settings()
    check_planner_folder(out, resume=resume)
    dataset = _turns(data, own=docs is None and index is None)
    context: dict[str, Any] = ({} if options.evidence else PAPER_FORM) | ({} if options.k is None else {"k": options.k})
    reasoner = options.frozen(model, base_url)
    environment = Environment(searched(dataset, docs, index), reasoner=reasoner, context=context, reward=reward)
    told = command_line(ctx, "train-planner", data, out)
    kept: dict[str, Any] = {"resume": resume, "logs": logs, "command": told, "progress": True}
    curve = run(dataset.queries, environment, model, out, settings, **kept)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if as_json:
        print_json({"planner": str(out), "bytes": size, "curve": curve})
        return
    tenth = max(1, len(curve) // 10)
    before, after = (sum(row["reward"] for row in part) / tenth for part in (curve[:tenth], curve[-tenth:]))
    console, _ = consoles()
    console.out(f"reward of sampled plans: {before:.2f} in the first {tenth} steps, {after:.2f} in the last")
    console.out(f"{out}: {size / 1e6:.1f} MB")


def _turns(data: list[Path], *, own: bool) -> Dataset:
    """The training parts of all data as one data set. With `own` the data must have passages."""
    from langgraph_convcoa.datasets.queries import Dataset, split_part
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.training.data import add_passages

    parts = [split_part(load_dataset(path, passages="required" if own else "optional"), "train").dataset for path in data]
    passages: dict[str, Document] = {}
    for part in parts:
        add_passages(passages, part.corpus, part.name)
    name = ", ".join(part.name for part in parts)
    return Dataset(name, tuple(query for part in parts for query in part.queries), tuple(passages.values()))
