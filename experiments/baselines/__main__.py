"""Runs the papers' prompting baselines and our method over one model: `python -m experiments.baselines`."""

from __future__ import annotations

import argparse

from experiments.baselines.methods import ALL_METHODS
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever, place_of
from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
from langgraph_convcoa.evaluation.runs.run import RunSettings
from langgraph_convcoa.nodes.plan import MODEL_K

_MAX_MB = 1_000.0


def main() -> None:
    """Run the methods over the same questions, and print the report."""
    listed = "\n".join(f"  {name}: {entry.description}" for name, entry in ALL_METHODS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m experiments.baselines",
        epilog=f"methods:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl, or a published data set")
    parser.add_argument("--model", required=True, help="chat model of the methods")
    parser.add_argument("--base-url", help="OpenAI-compatible server of the model")
    parser.add_argument("--methods", default=",".join(ALL_METHODS), help="methods (default: all)")
    parser.add_argument("--split", default="dev", help='split of the questions, or "all" (default: dev)')
    parser.add_argument("--sample", type=int, default=1000, help="number of questions (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument("--docs", help="documents to search instead of the data's passages")
    parser.add_argument("--index", help="index to search instead of the data's passages")
    parser.add_argument("-k", type=int, default=MODEL_K, help="passages for each search (default: %(default)s)")
    parser.add_argument("--gold-history", action="store_true", help="earlier turns have the data's answers")
    parser.add_argument("--judge", help="chat model that judges the answers")
    parser.add_argument("--judge-base-url", help="OpenAI-compatible server of the judge")
    parser.add_argument("--concurrency", type=int, default=8, help="conversations at the same time (default: 8)")
    parser.add_argument("--max-tokens", type=int, help="start no question after so many tokens")
    parser.add_argument("--timeout", type=float, help="seconds to wait for a reply")
    parser.add_argument("--out", help="folder of the run; the same command resumes it")
    parser.add_argument("--fresh", action="store_true", help="start again if the folder holds a run")
    parser.add_argument("--retry-failed", action="store_true", help="ask the questions that failed again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    path = documents_of(given.docs, given.index)
    plan = RunPlan(
        data=given.data,
        model=given.model,
        methods=given.methods.split(","),
        base_url=given.base_url,
        judge=given.judge,
        judge_base_url=given.judge_base_url,
        split=None if given.split == "all" else given.split,
        sample=given.sample,
        seed=given.seed,
        retriever=(place_of(path), lambda: open_retriever(path, max_mb=_MAX_MB, progress=True)) if path else None,
        k=given.k,
        timeout=given.timeout,
        run=RunSettings(given.concurrency, given.gold_history, given.max_tokens),
        out=given.out,
        fresh=given.fresh,
        retry_failed=given.retry_failed,
    )
    print_report(evaluate_methods(plan, methods=ALL_METHODS, cache=open_cache()), given.json)


if __name__ == "__main__":
    main()
