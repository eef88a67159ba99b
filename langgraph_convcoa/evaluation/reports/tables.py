"""The tables of a question-answering run: quality, costs, trouble, sweeps, rounds, verification, ratios and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from langgraph_convcoa.evaluation.metrics.ratios import STATUSES
from langgraph_convcoa.evaluation.reports.figures import LAST_ROUND, MethodFigures, RunFigures
from langgraph_convcoa.evaluation.reports.judged import marks_table, preference_table
from langgraph_convcoa.evaluation.reports.kit import Table, percent, ratio, shown
from langgraph_convcoa.evaluation.runs.sweeps import SWEPT

NAMES = {"em": "EM", "cover_em": "cover-EM", "f1": "F1", "rouge_l": "ROUGE-L", "bleu": "BLEU", "gpt_em": "GPT-EM"}
"""The measures by the names that the papers give them."""

_Column = Callable[[MethodFigures], str]


def main_tables(run: RunFigures) -> list[Table]:
    """The tables that are shown at a terminal too."""
    made = [quality_table(run), *judge_tables(run), cost_table(run), part_table(run), trouble_table(run)]
    return [table for table in made if table.rows]


def judge_tables(run: RunFigures) -> list[Table]:
    """The marks and the preferences of a judge."""
    marks = {one.method: one.marks for one in run.methods if one.marks is not None}
    preferences = {one.method: one.preference for one in run.methods if one.preference is not None}
    return [marks_table(marks, run.baseline), preference_table(preferences, run.baseline)]


def detail_tables(run: RunFigures) -> list[Table]:
    """The further tables, of which there are figures."""
    made = [
        *(sweep_table(run, setting) for setting in SWEPT),
        model_table(run),
        round_table(run),
        citation_table(run),
        verification_table(run),
        misled_table(run),
        contradiction_table(run),
        agreement_table(run),
        error_table(run),
    ]
    return [table for table in made if table.rows]


def quality_table(run: RunFigures) -> Table:
    """Every measure of every row, the main one with its interval and test."""
    # The main measure has its columns even where no answer has it, as of a judge that never said yes or no.
    others = [name for name in NAMES if name != run.measure and any(name in one.quality for one in run.methods)]
    main = NAMES[run.measure]
    columns: dict[str, _Column] = {
        main: _mean(run.measure),
        "95%": lambda one: f"{found.low:.3f}-{found.high:.3f}" if (found := one.quality.get(run.measure)) else "",
        "p": lambda one: shown_p(found.p) if (found := one.quality.get(run.measure)) else "",
        **{NAMES[name]: _mean(name) for name in others},
        "corpus BLEU": lambda one: shown(one.corpus_bleu),
    }
    note = (
        f"95%: bootstrap over conversations; p: {main} against {run.baseline}, paired randomisation over conversations. "
        "A question that failed counts 0."
    )
    if any(one.gold_found is not None for one in run.methods):
        columns["gold found"] = lambda one: shown(one.gold_found)
        note += " gold found: share of questions with a passage that answers them among those retrieved."
    return _table("Quality", columns, run.methods, note)


def cost_table(run: RunFigures) -> Table:
    """Costs a question, in the shape of Pan et al. 2024b, table 4."""
    columns: dict[str, _Column] = {
        "input tokens": lambda one: shown(one.costs.input_tokens, 0),
        "output tokens": lambda one: shown(one.costs.output_tokens, 0),
        "total tokens": lambda one: shown(one.costs.tokens, 0),
        "seconds": lambda one: shown(one.costs.seconds, 2),
        "retrievals": lambda one: shown(one.costs.retrievals, 2),
        "model calls": lambda one: shown(one.costs.calls, 2),
    }
    note = "Means over the questions, those that failed included. "
    if run.prices is not None:
        columns["price of 1,000 questions"] = lambda one: shown(one.costs.price)
        note += f"Prices of a million tokens: {run.prices.input:g} in, {run.prices.output:g} out. "
    note += (
        "Seconds are wall time with several conversations at the same time; a cached reply counts with the time that it "
        "took at first, and the first method bears what is loaded and encoded once. A judge's calls are not in the table."
    )
    return _table("Costs per question", columns, run.methods, note)


def part_table(run: RunFigures) -> Table:
    """Tokens a question by what they were spent on, of the rows that count that."""
    chosen = [one for one in run.methods if one.costs.parts]
    names = dict.fromkeys(name for one in chosen for name in one.costs.parts)

    def tokens(name: str) -> _Column:
        return lambda one: shown(one.costs.parts.get(name), 0)

    return _table("Tokens by part", {name: tokens(name) for name in names}, chosen, "Means over the questions, as above.")


def citation_table(run: RunFigures) -> Table:
    """Citations in the answers of the methods that look things up."""

    def of(part: str, whole: str) -> _Column:
        return lambda one: ratio(getattr(one.citations, part), getattr(one.citations, whole))

    columns: dict[str, _Column] = {
        "answers with a citation": of("cited", "answers"),
        "sentences with a citation": of("cited_sentences", "sentences"),
        "marks removed": lambda one: f"{one.citations.removed:,}" if one.citations is not None else "",
    }
    note = "A mark that names no passage which was retrieved is taken out of the answer, and counted."
    return _table("Citations", columns, [one for one in run.methods if one.citations is not None], note)


def trouble_table(run: RunFigures) -> Table:
    """How many questions were asked, and how many failed."""
    columns: dict[str, _Column] = {
        "asked": lambda one: f"{one.asked:,}",
        "failed": lambda one: f"{one.failed:,}",
        "malformed replies": lambda one: f"{one.malformed:,}",
        "in questions": lambda one: f"{one.malformed_questions:,}",
        "unjudged": lambda one: f"{one.unjudged:,}",
        "no known answer": lambda one: f"{one.without_reference:,}",
    }
    note = (
        "failed: the model or the method gave no answer. malformed: replies that were not as the method asks for them. "
        "unjudged: the judge said neither yes nor no. no known answer: counted in the costs alone."
    )
    return _table("What was asked, and what went wrong", columns, run.methods, note)


def sweep_table(run: RunFigures, setting: str) -> Table:
    """Accuracy and time by the value of a setting (Pan et al. 2024b, tables 7 and 8)."""
    labels = {row.label for row in run.rows if row.swept == setting}
    return _settings_table(run, f"Sweep of {SWEPT[setting]}", f"method and {SWEPT[setting]}", labels)


def model_table(run: RunFigures) -> Table:
    """Accuracy and time by model (Pan et al. 2024b, table 10)."""
    several = len({row.model for row in run.rows}) > 1
    return _settings_table(run, "Models", "method and model", {row.label for row in run.rows if several and not row.swept})


def round_table(run: RunFigures) -> Table:
    """Accuracy, time and tokens by round (Pan et al. 2024b, table 11); empty where no question has a history."""
    numbers = sorted({entry.round for one in run.methods for entry in one.rounds})
    rows = []
    for number in numbers if len(numbers) > 1 else ():
        entries = [next((entry for entry in one.rounds if entry.round == number), None) for one in run.methods]
        most = max(entry.questions for entry in entries if entry is not None)
        cells = [
            " / ".join(filter(None, [shown(entry.right), f"{entry.seconds:.2f} s", f"{entry.tokens:,.0f}"])) if entry else ""
            for entry in entries
        ]
        rows.append((f"{number} and later" if number == LAST_ROUND else str(number), f"{most:,}", *cells))
    note = (
        f"{NAMES[run.measure]} / seconds / tokens a question, by the rounds that the conversation has had with this one; "
        "the questions of one round are others than those of the next."
    )
    return Table("By round", ("round", "questions", *(one.method for one in run.methods)), rows, note)


def verification_table(run: RunFigures) -> Table:
    """The sub-questions by what became of them."""

    def share(status: str) -> _Column:
        return lambda one: percent(one.verification["counts"][status] / one.verification["items"]) if one.verification else ""

    def of(part: str, whole: str) -> _Column:
        return lambda one: ratio(one.verification[part], one.verification[whole]) if one.verification else ""

    columns: dict[str, _Column] = {
        "sub-questions": lambda one: f"{one.verification['items']:,}" if one.verification else "",
        "a question": lambda one: shown(one.sub_questions, 2),
        "with a guess": of("guesses", "items"),
        **{status: share(status) for status in STATUSES},
        "kept and right": of("kept_right", "kept_known"),
        "replaced though right": of("corrected_right", "corrected_known"),
    }
    note = (
        "Shares of the sub-questions by what became of them. Whether a guess is right is known where the sub-question is the "
        "question itself."
    )
    return _table("Verification", columns, [one for one in run.methods if one.verification is not None], note)


def misled_table(run: RunFigures) -> Table:
    """Right without retrieval and wrong with it (Pan et al. 2024a, table 5, Pan et al. 2024b, table 5)."""

    def of(part: str, whole: str) -> _Column:
        return lambda one: ratio(one.misled[part], one.misled[whole]) if one.misled else ""

    columns = {
        "misled": of("misled", "questions"),
        "of what the model knew": of("misled", "known"),
        "helped": of("helped", "questions"),
    }
    note = (
        f"misled: {NAMES[run.measure]} says right of closed-book and wrong of the method; helped: the other way round. "
        "The papers give no formula; this is one reading."
    )
    return _table("Misled by retrieval", columns, [one for one in run.methods if one.misled is not None], note)


def contradiction_table(run: RunFigures) -> Table:
    """Answers that contradict earlier ones (Pan et al. 2024b, table 6)."""
    columns: dict[str, _Column] = {
        "contradicting": lambda one: ratio(one.contradictions["contradicting"], one.contradictions["answers"]),
        "could be compared": lambda one: f"{one.contradictions['comparable']:,}",
    }
    note = (
        "Answers that say another thing than an earlier one of the same conversation on the same question or sub-question, of "
        "the answers with earlier ones. Found by rule, without a model: less than a reader would find, and for methods with a "
        "chain there is more to compare."
    )
    chosen = [one for one in run.methods if one.contradictions["answers"]]
    return _table("Contradiction with earlier turns", columns, chosen, note)


def agreement_table(run: RunFigures) -> Table:
    """Agreement of the judge with exact match and cover-EM."""
    rows = [
        (
            one.method,
            NAMES[str(found["measure"])],
            f"{found['answers']:,}",
            percent(found["share"]),
            shown(found["kappa"], 2),
            str(found["only_judge"]),
            str(found["only_measure"]),
        )
        for one in run.methods
        for found in one.agreement
    ]
    columns = ("method", "measure", "answers", "agree", "Cohen's kappa", "right for the judge alone", "for the measure alone")
    return Table("GPT-EM against the measures of strings", columns, rows)


def error_table(run: RunFigures) -> Table:
    """The commonest reasons why questions failed."""
    rows = [(one.method, f"{count:,}", reason) for one in run.methods for reason, count in one.errors.items()]
    return Table("Failures", ("method", "questions", "why"), rows)


def shown_p(value: float | None) -> str:
    """A p value, no finer than the draws that were made.

    Example:
        >>> shown_p(0.0005), shown_p(0.25), shown_p(None)
        ('≤0.001', '0.250', '')
    """
    return "≤0.001" if value is not None and value <= 0.001 else shown(value)


def _settings_table(run: RunFigures, title: str, column: str, labels: set[str]) -> Table:
    columns: dict[str, _Column] = {
        NAMES[run.measure]: _mean(run.measure),
        "seconds": lambda one: shown(one.costs.seconds, 2),
        "model calls": lambda one: shown(one.costs.calls, 2),
        "total tokens": lambda one: shown(one.costs.tokens, 0),
        "sub-questions": lambda one: shown(one.sub_questions, 2),
    }
    return _table(title, columns, [one for one in run.methods if one.method in labels], first=column)


def _mean(measure: str) -> _Column:
    return lambda one: shown(found.mean) if (found := one.quality.get(measure)) else ""


def _table(
    title: str, columns: Mapping[str, _Column], methods: Sequence[MethodFigures], note: str = "", first: str = "method"
) -> Table:
    rows = [(one.method, *(cell(one) for cell in columns.values())) for one in methods]
    return Table(title, (first, *columns), rows, note)
