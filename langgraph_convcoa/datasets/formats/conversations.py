"""Conversational question answering as published: QReCC, TopiOCQA, QuAC, CoQA and MTRAG.

- QReCC (Anantha et al. 2021): a list of turns, also in the form of SCAI-QReCC 2021. The passages are a separate
  collection. The id of a passage is the address of its page with the ending `_p{n}`.
- TopiOCQA (Adlakha et al. 2022): a list of turns, or the files of its retriever, where the question follows its history:
  "q [SEP] a [SEP] q".
- QuAC (Choi et al. 2018): the questions of a paragraph are one conversation. A question whose original answer is CANNOTANSWER
  has no right answer. CANNOTANSWER from other annotators is left out.
- CoQA (Reddy et al. 2019): stories; "span_start" is -1 if the story does not answer a question. The development set has the
  answers of three more people.
- MTRAG (Katsis et al. 2025): generation tasks, whose contexts are the gold passages. Also retrieval tasks in BEIR's form
  (Thakur et al. 2021): a folder with `qrels/dev.tsv` and query files. A query in "NAME_questions.jsonl" has all user turns.

A question without a gold passage has `answerable` false in its extra fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Entries, Query, passage, split_of
from langgraph_convcoa.datasets.rows import Row, json_lines, paired, table_rows
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.words import content_words

_PAGE = "page"
_SPEAKER = "|user|:"
_KINDS = ("lastturn", "questions", "rewrite")
_SEPARATOR = " [SEP] "
_NO_ANSWER = "CANNOTANSWER"
UNANSWERABLE = {"answerable": False}


def read_qrecc(row: Row) -> Entries:
    """A turn of QReCC. Without passage ids, the gold is the address of a page (see `resolve_pages`)."""
    conversation = f"{row.split or 'qrecc'}-{row.identity('Conversation_no')}"
    gold = tuple(dict.fromkeys(row.strings("Truth_passages")))
    page = "" if gold else row.optional("Answer_URL")
    yield Query(
        id=f"{conversation}-{row.identity('Turn_no')}",
        question=row.text("Question"),
        history=paired(row.strings("Context")),
        gold=gold or ((page,) if page else ()),
        rewrite=row.optional("Truth_rewrite" if "Truth_rewrite" in row else "Rewrite"),
        answer=row.optional("Truth_answer" if "Truth_answer" in row else "Answer"),
        conversation=conversation,
        extra={_PAGE: page} if page else {} if gold else dict(UNANSWERABLE),
    )


def page_of(identity: str) -> str:
    """The address of the page that a passage of QReCC is from."""
    page, mark, number = identity.rpartition("_p")
    return page if mark and number.isdigit() else identity


def resolve_pages(queries: Sequence[Query], corpus: Sequence[Document]) -> list[Query]:
    """Replace a gold page by its passages that share the most words with the answer. The word "yes" does not count."""
    wanted = {query.extra[_PAGE] for query in queries if _PAGE in query.extra}
    pages: dict[str, list[Document]] = {}
    for document in corpus if wanted else ():
        page = page_of(str(document.id))
        if page in wanted:
            pages.setdefault(page, []).append(document)
    return [_resolved(query, pages.get(query.extra[_PAGE], [])) if _PAGE in query.extra else query for query in queries]


def _resolved(query: Query, passages: list[Document]) -> Query:
    words = set(content_words(query.answer)) - {"yes"}
    shared = [len(words & set(content_words(document.page_content))) for document in passages]
    most = max(shared, default=0)
    gold = tuple(str(document.id) for document, count in zip(passages, shared, strict=True) if 0 < count == most)
    return replace(query, gold=gold if passages else query.gold)


def read_topiocqa(row: Row) -> Entries:
    """A turn of TopiOCQA with its gold passages."""
    if "positive_ctxs" in row:
        *earlier, question = row.text("question").split(_SEPARATOR)
        if not question.strip():
            raise row.error("`question` ends without a question.")
        keys, answers = ("conv_id", "turn_id"), list(row.answers("answers"))
        found = [(entry.identity("passage_id"), entry) for entry in row.objects("positive_ctxs")]
    else:
        question, earlier = row.text("Question"), row.strings("Context")
        given = [row, *row.objects("Additional_answers", optional=True)]
        keys, answers = ("Conversation_no", "Turn_no"), [one.optional("Answer") for one in given]
        found = [(entry.identity("id"), entry) for entry in [row.object("Gold_passage")] if entry]
    for identity, entry in found:
        # The section follows the title after a separator.
        titles = (title.strip() for title in entry.optional("title").split(_SEPARATOR))
        yield passage(identity, entry.text("text"), *titles)
    conversation = f"{row.split or 'topiocqa'}-{row.identity(keys[0])}"
    yield Query(
        id=f"{conversation}-{row.identity(keys[1])}",
        question=question,
        history=paired(earlier),
        gold=tuple(dict.fromkeys(identity for identity, _ in found)),
        references=tuple(answer for answer in answers if answer.strip()),
        conversation=conversation,
        extra=({"topic": row["Topic"]} if "Topic" in row else {}) | ({} if found else UNANSWERABLE),
    )


def is_quac(row: Row) -> bool:
    """Whether an object is an article of QuAC: SQuAD's form, with a `followup` at each question."""
    try:
        return "followup" in row["paragraphs"][0]["qas"][0]
    except (KeyError, IndexError, TypeError):
        return False


def read_quac(article: Row) -> Entries:
    """The questions of an article of QuAC and its sections."""
    titles = (article.optional("title"), article.optional("section_title"))
    for paragraph in article.objects("paragraphs"):
        identity = paragraph.text("id")
        yield passage(identity, paragraph.text("context").removesuffix(_NO_ANSWER).rstrip(), *titles)
        history: list[tuple[str, str]] = []
        for row in paragraph.objects("qas"):
            question = row.text("question")
            original = [row.object("orig_answer").optional("text")] if row.get("orig_answer") else []
            texts = [one.optional("text") for one in row.objects("answers", optional=bool(original))] or original
            first = (original or texts or [""])[0]
            answer = "" if first == _NO_ANSWER else first
            yield Query(
                id=row.text("id"),
                question=question,
                history=tuple(history),
                gold=(identity,) if answer else (),
                answer=answer,
                references=tuple(text for text in texts if text.strip() and text != _NO_ANSWER) if answer else (),
                conversation=identity,
                extra={} if answer else dict(UNANSWERABLE),
            )
            history.append((question, answer))


def read_coqa(row: Row) -> Entries:
    """A story of CoQA and its questions."""
    identity = row.text("id")
    yield passage(identity, row.text("story"))
    questions, answers = row.objects("questions"), row.objects("answers")
    if len(questions) != len(answers):
        raise row.error(f"{len(questions)} questions and {len(answers)} answers; there must be one of each.")
    others: dict[str, list[str]] = {}
    additional = row.object("additional_answers")
    for answer in (one for person in additional for one in additional.objects(person)):
        others.setdefault(answer.identity("turn_id"), []).append(answer.optional("input_text"))
    history: list[tuple[str, str]] = []
    for asked, given in zip(questions, answers, strict=True):
        turn, answered = asked.identity("turn_id"), given.get("span_start") != -1
        question, said = asked.text("input_text"), given.text("input_text")
        yield Query(
            id=f"{identity}-{turn}",
            question=question,
            history=tuple(history),
            gold=(identity,) if answered else (),
            answer=said,
            references=(said, *(text for text in others.get(turn, ()) if text.strip())),
            conversation=identity,
            extra={"domain": row.get("source", "")} | ({} if answered else UNANSWERABLE),
        )
        history.append((question, said))


def read_mtrag_task(row: Row) -> Entries:
    """The question of a generation task and its contexts."""
    turns = row.objects("input")
    if not turns or turns[-1].get("speaker") != "user":
        raise row.error("`input` must end with the user's question.")
    contexts = [(entry.identity("document_id"), entry) for entry in row.objects("contexts")]
    for context, entry in contexts:
        yield passage(context, entry.text("text"), entry.optional("title"))
    identity = row.identity("task_id")
    targets = (target.optional("text") for target in row.objects("targets", optional=True))
    yield Query(
        id=identity,
        question=turns[-1].text("text"),
        history=_history(turns[:-1]),
        gold=tuple(dict.fromkeys(context for context, _ in contexts)),
        references=tuple(answer for answer in targets if answer.strip()),
        conversation=row.optional("conversation_id") or _conversation(identity),
        extra={"domain": row.get("Collection", "")} | ({} if contexts else UNANSWERABLE),
    )


def is_beir(folder: Path) -> bool:
    """Whether a folder holds judgements of relevance in BEIR's form."""
    return (folder / "qrels").is_dir() or (folder / "qrels.tsv").is_file()


def query_files(folder: Path) -> dict[str, Path]:
    """The query files in a folder of retrieval tasks, by kind: lastturn, questions, rewrite or queries."""
    files = {kind: sorted(folder.glob(f"*_{kind}.jsonl")) for kind in _KINDS}
    files["queries"] = [path for name in ("queries.jsonl", "queries.jsonl.gz") if (path := folder / name).is_file()]
    return {kind: paths[0] for kind, paths in files.items() if paths}


def read_beir(folder: Path) -> Iterable[Query]:
    """The queries that have gold passages in a folder of retrieval tasks. Answers in their histories are empty."""
    files = query_files(folder)
    main = files.get("questions") or files.get("lastturn") or files.get("queries")
    if main is None:
        raise InputError(f"{folder} has judgements and no queries; add queries.jsonl or NAME_questions.jsonl.")
    rewrites = {_id(row): _turns(row)[-1] for row in json_lines(files["rewrite"])} if "rewrite" in files else {}
    gold, splits = _judgements(folder)
    for row in json_lines(main):
        identity = _id(row)
        if identity not in gold:
            continue
        *earlier, question = _turns(row)
        yield Query(
            id=identity,
            question=question,
            history=tuple((turn, "") for turn in earlier),
            gold=tuple(dict.fromkeys(gold[identity])),
            rewrite=rewrites.get(identity, ""),
            split=splits[identity],
            conversation=_conversation(identity),
            where=row.where,
        )


def _judgements(folder: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The gold passages and the split of each query."""
    gold: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    for path in sorted((folder / "qrels").glob("*.tsv")) or [folder / "qrels.tsv"]:
        for row in table_rows(path):
            query, document = row.text("query-id"), row.text("corpus-id")
            try:
                relevant = float(row.get("score", "")) > 0
            except ValueError:
                raise row.error("`score` must be a number.") from None
            if relevant:
                gold.setdefault(query, []).append(document)
                splits.setdefault(query, split_of(path))
    return gold, splits


def _turns(row: Row) -> list[str]:
    turns = [turn.strip() for turn in row.text("text").split(_SPEAKER) if turn.strip()]
    if not turns:
        raise row.error("`text` has no question.")
    return turns


def _id(row: Row) -> str:
    return row.identity("_id" if "_id" in row else "id")


def _history(turns: list[Row]) -> tuple[tuple[str, str], ...]:
    pairs: list[list[str]] = []
    for turn in turns:
        user = turn.get("speaker") == "user"
        if user or not pairs:
            pairs.append(["", ""])
        pairs[-1][not user] = f"{pairs[-1][not user]} {turn.optional('text')}".strip()
    return tuple((question, answer) for question, answer in pairs)


def _conversation(identity: str) -> str:
    return identity.rpartition("<::>")[0]  # An id holds the ids of the conversation and the turn: 2c07...<::>3.
