"""One search of a corpus, from the states of questions to scores, ranked passages and documents."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.hopfield.arrays import similarity, sparsemax
from langgraph_convcoa.retrieval.corpus import Corpus, Numbers, Passage, View
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors, cores
from langgraph_convcoa.retrieval.graph.index import Links
from langgraph_convcoa.retrieval.graph.walk import FIRST, walk
from langgraph_convcoa.retrieval.patterns import Patterns, rounded
from langgraph_convcoa.retrieval.query.conversation_state import Query
from langgraph_convcoa.retrieval.reranker import TrainedReranker, conversation_text
from langgraph_convcoa.text.words import is_english

Mask = npt.NDArray[np.bool_] | None  # (n,), True for passages that may be returned; None for all.
Scores = npt.NDArray[np.float64]
Each = Callable[..., Iterable[Any]]  # `map` or the `map` of a pool: runs a function for each job.

_QUERIES = 64
# Below this many entries in the patterns, a second thread takes longer to start than to work.
_WORTH_THREADS = 1_000_000
# The products of a group of queries take at most this many bytes, or a sixteenth of the patterns' bytes if that is more.
_PRODUCT_BYTES = 64 * 2**20
_SHARE = 16
# If a filter leaves fewer bytes of patterns than this, the remaining patterns are copied and searched alone.
_COPIED_BYTES = 16 * 2**20
# A block's products fit one core's cache. int8 products are fast, so their blocks are larger.
_BLOCK_PRODUCTS = {"float32": 131_072, "int8": 262_144}
_MOST_ROWS = {"float32": 16_384, "int8": 131_072}
_FEWEST_ROWS = 4_096
# With fewer rows for each thread, a thread takes longer to start than to work.
_SHARED_ROWS = 8_192
# Largest error of a float32 product, relative to the product of the lengths.
_ROUNDING = 1e-6
# At most this many entries of patterns are copied to float64 at once. Many equal scores may need all patterns.
_COPIED = 2_500_000
_LONGEST_GAP = 20  # Two parts of a document are neighbours if at most this many characters of white space are between them.
_OF_THE_QUESTION = frozenset({"score", "certified", "quote", "association", "graph_path"})


class Hit(NamedTuple):
    """A found passage."""

    number: int  # Number in the view.
    score: float
    passage: Passage
    certified: bool  # True if the ranking is proved to be exact.
    path: Sequence[str] = ()  # Way from the question along the evidence graph, if the graph raised the passage.


def search(corpus: Corpus, view: View, query: Query, *, paths: bool = False) -> list[list[Hit]]:
    """For each question, the best passages of a view that reach the threshold; with `paths`, also their graph paths."""
    if not len(view):
        return [[] for _ in query.questions]
    extra = _lexical(corpus, view, query)
    graph = corpus.graph.links(view) if query.graph is not None and corpus.graph is not None else None
    first = max(query.k, query.rerank, 0 if graph is None else FIRST)
    # The filter is applied once, since it may read all metadata.
    allowed = view.allowed(query.filter)
    weights = {"beta": query.beta, "passage_weight": query.passage_weight}
    least = -np.inf if query.score_threshold is None else float(query.score_threshold)
    found: list[list[Hit]] = []
    for row, ranking in enumerate(top_k(view.patterns, query.states, k=first, allowed=allowed, extra=extra, **weights)):
        one, path = query.one(row), None
        ranking, scores = _reranked(view, one, ranking)
        if graph is not None:
            ranking, path = _walked(view, one, ranking, graph, None if extra is None else extra[row], allowed)
            scores = ranking.scores
        kept = np.flatnonzero(scores >= least)[: query.k]
        numbers, certified = ranking.indices[kept].tolist(), ranking.certified and corpus.complete
        hits = zip(numbers, scores[kept].tolist(), view.fetch(numbers), strict=True)
        found.append([Hit(n, own, passage, certified, path(n) if path and paths else ()) for n, own, passage in hits])
    return found


def _lexical(corpus: Corpus, view: View, query: Query) -> Vectors | None:
    """BM25 scores times their weights, (q, n); None without BM25."""
    if corpus.bm25 is None or not query.lexical_weight:
        return None
    extra: Vectors = np.float32(query.lexical_weight) * corpus.bm25.scores(view, query.questions)
    if query.lexical_history and query.history_weight and any(query.turns):
        extra += np.float32(query.lexical_history) * corpus.bm25.scores(view, query.questions, query.turns)
    return extra


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best passages for one query."""

    indices: Numbers  # Passage numbers, best first; equal scores in the order of the numbers.
    scores: Scores  # w <x, y_0> + sim(z, x) + extra of each passage.
    certified: bool  # True if these are proved to be the best of all allowed passages, for the stored patterns.
    scored: int  # Passages scored in full.


def top_k(
    patterns: Patterns,
    states: Vectors,
    *,
    k: int,
    beta: float = 10.0,
    passage_weight: float = 1.0,
    allowed: Mask = None,
    extra: Vectors | None = None,
) -> list[Ranking]:
    """The k best passages for each query state (q, d), as if every passage were scored in full.

    Passage i has the rows offsets[i] to offsets[i + 1] of the patterns: y_0 for the whole passage, then its windows Y.
    score(x, Y) = w <x, y_0> + sim(z, x) + extra, with z = sparsemax(beta x Y^T) Y. A passage's association weights add to 1,
    so w <x, y_0> + max_j <x, y_j> + extra bounds its score. Passages are scored in the order of their bounds until the k-th
    score is above every bound left. int8 patterns are first multiplied with the query rounded to int8, with wider bounds.

    Only passages of `allowed` (n,) are returned; `extra` (q, n), such as BM25, is added to the scores. A score depends on the
    passage and the query alone, to the last bit.

    Raises:
        InputError: k, beta or the weight is out of range.
        RetrievalError: The states are not finite vectors of the memory's dimension, another array does not fit, or a pattern
            is not finite.

    Example:
        >>> import numpy as np
        >>> eye = np.repeat(np.eye(2, dtype=np.float32), 2, axis=0)
        >>> patterns = Patterns(eye, np.array([0, 2, 4]))
        >>> ranking, = top_k(patterns, np.array([[0.6, 0.8]], dtype=np.float32), k=1)
        >>> ranking.indices.tolist(), ranking.scores.round(3).tolist(), ranking.certified
        ([1], [1.6], True)
    """
    check_settings(k, beta=beta, passage_weight=passage_weight)
    states = np.ascontiguousarray(states, dtype=np.float32)
    _check_arrays(patterns, states, allowed, extra)
    pool = patterns.n if allowed is None else int(allowed.sum())
    if pool == 0 or not len(states):
        return [Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), True, 0) for _ in states]
    rows = pool * len(patterns.values) / patterns.n
    few = rows * _SHARE < len(patterns.values) and rows * patterns.values.itemsize * patterns.d < _COPIED_BYTES
    if allowed is not None and few:
        chosen = np.flatnonzero(allowed)
        extra = None if extra is None else extra[:, chosen]
        found = top_k(patterns.select(chosen), states, k=k, beta=beta, passage_weight=passage_weight, extra=extra)
        return [replace(ranking, indices=chosen[ranking.indices]) for ranking in found]

    def rank(job: tuple[int, Vectors]) -> Ranking:
        row, bounds = job
        own = None if extra is None else extra[row]
        exact = partial(score, patterns, states[row], beta=beta, passage_weight=passage_weight, extra=own)
        # Usually few more than k passages are needed; rounded queries have wider bounds.
        wanted = 2 * k + 32 if patterns.dtype == "int8" else k + k // 2 + 32
        # The state's greatest possible score, with patterns of length 1.
        reach = (passage_weight + 1) * float(np.linalg.norm(states[row].astype(np.float64)))
        return _rank(exact, bounds, min(k, pool), pool, wanted, _ROUNDING * max(1.0, reach))

    rankings: list[Ranking] = []
    budget = max(_PRODUCT_BYTES, patterns.values.nbytes // _SHARE)
    step = min(_QUERIES, max(1, budget // (4 * len(patterns.values))))
    # A pool starts no thread before its first job.
    with ThreadPoolExecutor(cores(), "matrices") as threads:
        each: Each = threads.map if cores() > 1 and patterns.values.size > _WORTH_THREADS else map
        for start in range(0, len(states), step):
            part = slice(start, start + step)
            own = None if extra is None else extra[part]
            rankings += each(rank, enumerate(upper_bounds(patterns, states[part], passage_weight, allowed, own, each), start))
    return rankings


def check_settings(k: int, **numbers: float) -> None:
    """Raise InputError for a setting that is out of range: numbers are at least 0, and only a beta may be infinite."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    for name, value in numbers.items():
        if name.endswith("beta") and not value >= 0:
            raise InputError(f"{name} must be from 0 to infinity, not {value}.")
        if not name.endswith("beta") and not 0 <= value < math.inf:
            raise InputError(f"{name} must be a number of at least 0, not {value}.")


def _check_arrays(patterns: Patterns, states: Vectors, allowed: Mask, extra: Vectors | None) -> None:
    if states.ndim != 2 or states.shape[1] != patterns.d:
        raise RetrievalError(
            f"The query vectors have shape {states.shape} but the memory holds vectors of length {patterns.d}; "
            "search with the encoder that the memory was built with."
        )
    if not np.isfinite(states).all():
        raise RetrievalError("A query vector holds NaN or infinity; use another encoder.")
    if allowed is not None and (allowed.shape != (patterns.n,) or allowed.dtype != np.bool_):
        raise RetrievalError(f"The filter has {allowed.shape} entries of {allowed.dtype} for {patterns.n} passages.")
    if extra is not None and (extra.shape != (len(states), patterns.n) or not np.isfinite(extra).all()):
        raise RetrievalError(
            f"The added scores have shape {extra.shape} for {len(states)} queries and {patterns.n} passages, "
            "or hold NaN or infinity."
        )


def upper_bounds(
    patterns: Patterns, states: Vectors, passage_weight: float, allowed: Mask, extra: Vectors | None, each: Each
) -> Vectors:
    """Bound every score by w <x, y_0> + max_j <x, y_j> + extra, (q, n); -infinity for passages that are not `allowed` (n,).

    int8 patterns are multiplied with int8 states x^; the bound is then wider by |x - x^| (w |y_0| + max_j |y_j|).
    """
    bounds = np.empty((len(states), patterns.n), dtype=np.float32)
    weight = np.float32(passage_weight)
    queries: npt.NDArray[Any] = states
    if patterns.dtype == "int8":
        queries, steps, errors = rounded(states)
        slack = (errors + _ROUNDING * np.linalg.norm(states.astype(np.float64), axis=1)).astype(np.float32)
        whole, longest = patterns.reach[:, :, None]

    def bound(block: tuple[int, int]) -> None:
        """Fill in the bounds of the passages a to b."""
        a, b = block
        if allowed is not None and not allowed[a:b].any():
            bounds[:, a:b] = -np.inf
            return
        edges = patterns.offsets[a : b + 1] - patterns.offsets[a]
        products = patterns.products(int(patterns.offsets[a]), int(patterns.offsets[b]), queries)
        wholes = weight * products[edges[:-1]]
        # NaN in a window makes the maximum NaN.
        products[edges[:-1]] = -np.inf
        best = np.maximum.reduceat(products, edges[:-1], axis=0) + wholes
        if patterns.dtype == "int8":
            best *= steps.astype(np.float32)
            best += (weight * whole[a:b] + longest[a:b]) * slack
        if extra is not None:
            best += extra.T[a:b]
        if allowed is not None:
            best[~allowed[a:b]] = -np.inf
        bounds[:, a:b] = best.T

    list(each(bound, _blocks(patterns, len(states))))
    return bounds


def _blocks(patterns: Patterns, queries: int) -> list[tuple[int, int]]:
    """Runs of passages, (first, last + 1), whose rows a thread multiplies at once."""
    offsets, threads = patterns.offsets, cores()
    total = int(offsets[-1])
    rows = min(max(_BLOCK_PRODUCTS[patterns.dtype] // queries, _FEWEST_ROWS), _MOST_ROWS[patterns.dtype])
    number = max(1, -(-total // rows))
    if total >= _SHARED_ROWS * threads:
        # Each thread gets the same number of blocks.
        number = -(-number // threads) * threads
    cuts = np.unique(np.searchsorted(offsets[:-1], np.linspace(0, total, number, endpoint=False))).tolist()
    return [(a, b) for a, b in zip(cuts, [*cuts[1:], patterns.n], strict=True) if b > a]


def _rank(exact: Callable[[Numbers], Scores], bounds: Vectors, k: int, pool: int, wanted: int, rounding: float) -> Ranking:
    """Score passages in the order of their bounds (n,), `wanted` at first, until no bound left reaches the k-th score."""
    n, wanted = len(bounds), min(pool, wanted)
    while True:
        # The passages with the largest bounds, best first, and the next passage, whose bound is the best of the rest.
        first = max(n - wanted - 1, 0)
        numbers = np.argpartition(bounds, first)[first:]
        numbers = numbers[bounds[numbers].argsort()[::-1]]
        best = bounds[numbers].astype(np.float64)
        if wanted == pool:
            numbers, best = numbers[:pool], np.append(best[:pool], -math.inf)
        scores = exact(numbers[:k])
        # The k-th score can only rise: other passages matter only if their bound reaches it.
        least = scores.min() - rounding * max(1.0, abs(scores.min()))
        needed = k + int((best[k:wanted] >= least).sum())
        scores = np.concatenate([scores, exact(numbers[k:needed])])
        # Equal scores are ordered by number.
        order = np.lexsort((numbers[:needed], -scores))[:k]
        last = scores[order[-1]]
        # The k-th score must be clearly above the bound, so that rounding never decides between equal scores.
        if last > best[needed] + rounding * max(1.0, abs(last)):
            return Ranking(numbers[order], scores[order], True, needed)
        wanted = min(pool, 2 * wanted)


def score(
    patterns: Patterns, state: Vectors, numbers: Numbers, *, beta: float, passage_weight: float, extra: Vectors | None
) -> Scores:
    """Score some passages for a query state x (d): w <x, y_0> + sum_j sparsemax(beta a)_j a_j + extra, with a = Y x.

    `extra` is (n,). RetrievalError if a stored pattern is damaged.
    """
    firsts, sizes = patterns.offsets[numbers], patterns.offsets[numbers + 1] - patterns.offsets[numbers]
    columns = np.arange(int(sizes.max(initial=2)))
    scores = np.empty(len(numbers))
    step = max(1, _COPIED // (len(columns) * patterns.d))
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        mask = columns < sizes[part, None]
        products = np.zeros(mask.shape)
        products[mask] = patterns.exact((firsts[part, None] + columns)[mask], state)
        whole, windows = products[:, 0], products[:, 1:]
        scores[part] = passage_weight * whole + similarity(windows, beta=beta, mask=mask[:, 1:])
    if extra is not None:
        scores += extra[numbers]
    # NaN bounds come first, so a damaged passage is always scored.
    broken = numbers[~np.isfinite(scores)]
    if len(broken):
        raise RetrievalError(
            f"Passage number {broken[0]} has no finite score: its stored pattern is damaged; build the memory again."
        )
    return scores


def _reranked(view: View, query: Query, ranking: Ranking) -> tuple[Ranking, Scores]:
    """Rank by score + weight * logit. Returns a ranking with these sums, and the search's scores in the same order."""
    # A passage that the reranker does not read has the lowest logit of those that it reads.
    reranker, count = query.reranker, min(query.rerank, len(ranking.indices))
    if reranker is None or count < 2:
        return ranking, ranking.scores
    texts = [pattern_text(passage.document) for passage in view.fetch(ranking.indices[:count].tolist())]
    # The trained reranker reads English.
    if isinstance(reranker, TrainedReranker) and not is_english(query.questions[0], texts[0]):
        return ranking, ranking.scores
    logits = np.asarray(reranker.logits(conversation_text(query.questions[0], query.turns[0]), texts), dtype=np.float64)
    if logits.shape != (count,) or not np.isfinite(logits).all():
        raise RetrievalError(f"The reranker must give one finite number for each of {count} passages; use another one.")
    sums = ranking.scores + reranker.weight * np.pad(logits, (0, len(ranking.indices) - count), constant_values=logits.min())
    order = np.argsort(-sums, kind="stable")
    return replace(ranking, indices=ranking.indices[order], scores=sums[order]), ranking.scores[order]


def _walked(
    view: View, query: Query, ranking: Ranking, graph: tuple[Links, Numbers], extra: Vectors | None, allowed: Mask
) -> tuple[Ranking, Callable[[int], Sequence[str]]]:
    """Rank the passages that a walk reached before the others, by mass. Also returns a function that gives a passage's path.

    The scores stay those of the search.
    """
    assert query.graph is not None
    links, numbers = graph
    walked = walk(links, query.questions[0], np.searchsorted(numbers, ranking.indices), ranking.scores, query.graph)
    mass = walked.passages if allowed is None else np.where(allowed[numbers], walked.passages, 0)
    reached = np.flatnonzero(mass)
    # Passages with equal mass stay in the order of their numbers.
    chosen = numbers[reached[np.argsort(-mass[reached], kind="stable")][: query.k]]
    others = ranking.indices[~np.isin(ranking.indices, chosen)]
    chosen = np.concatenate([chosen, others])[: query.k]
    scores = score(view.patterns, query.states[0], chosen, beta=query.beta, passage_weight=query.passage_weight, extra=extra)
    certified = ranking.certified and np.array_equal(ranking.indices[: query.k], chosen)

    @cache
    def document(node: int) -> Document:
        return view.fetch([int(numbers[node])])[0].document

    def path(number: int) -> Sequence[str]:
        return walked.path(int(np.searchsorted(numbers, number)), document)

    return Ranking(chosen, scores, certified, ranking.scored), path


def hit_document(view: View, hit: Hit, query: Query, *, association: bool) -> Document:
    """A found passage as a document with `source`, `score`, `certified`, `quote`, `graph_path` and `association`."""
    passage, spans = hit.passage.document, hit.passage.spans
    shares, products = associate(view.patterns, hit.number, query.states[0], query.beta)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # If weights are equal, as at beta = 0, the product decides.
    best = max(range(len(texts)), key=lambda i: (shares[i], products[i]))
    metadata |= {"score": hit.score, "certified": hit.certified, "quote": texts[best]}
    if hit.path:
        metadata["graph_path"] = list(hit.path)
    if association:
        metadata["association"] = [
            {"text": text, "start": start, "end": end, "weight": float(weight)}
            for text, (start, end), weight in zip(texts, spans, shares, strict=True)
        ]
    found = Document(id=passage.id, page_content=passage.page_content)
    # The constructor would copy the metadata into a plain dict.
    found.metadata = FoundMetadata(metadata)
    return found


def associate(patterns: Patterns, index: int, state: Vectors, beta: float) -> tuple[Scores, Scores]:
    """The association weights of a passage's windows for a query state (d), and the windows' products with the state."""
    rows = np.arange(int(patterns.offsets[index]) + 1, int(patterns.offsets[index + 1]))
    products = patterns.exact(rows, state)
    return sparsemax(products, beta=beta), products


class FoundMetadata(dict[str, Any]):
    """Metadata of a found passage, compared without `score` and the other entries that depend on the question.

    LangChain compares documents by `==` when it unites results of several questions. Copies and pickles are plain dicts.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return _lasting(self) == _lasting(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _lasting(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name not in _OF_THE_QUESTION}


def with_neighbours(
    corpus: Corpus, view: View, hits: Sequence[Hit], documents: Sequence[Document], neighbours: int
) -> list[Document]:
    """Widen each hit's document by up to `neighbours` parts of its document on either side; no part comes twice."""
    taken = {hit.passage.document.id for hit in hits}
    wider = []
    for hit, document in zip(hits, documents, strict=True):
        if not _is_part(hit.passage):
            wider.append(document)
            continue
        left, right = (_run(hit.passage, part, taken) for part in corpus.beside(view, hit.number, neighbours))
        taken |= {passage.document.id for passage in (*left, *right)}
        wider.append(_joined(document, [*reversed(left), hit.passage, *right]))
    return wider


def _joined(document: Document, parts: Sequence[Passage]) -> Document:
    """A found document with the parts around it; its metadata has `part`, [start, end] of the found part in the text."""
    if len(parts) == 1:
        return document
    text, place = parts[0].document.page_content, 0
    for previous, passage in itertools.pairwise(parts):
        gap = _gap(previous.document, passage.document)
        if passage.document.id == document.id:
            place = len(text) + (gap > 0)
        text += ("\n" if gap else "") + passage.document.page_content
    # Keep the metadata's type: a copy would be a plain dict, which also compares scores.
    wider = document.model_copy(update={"page_content": text, "metadata": type(document.metadata)(document.metadata)})
    wider.metadata["start"] = parts[0].document.metadata["start"]
    wider.metadata["part"] = [place, place + len(document.page_content)]
    if windows := document.metadata.get("association"):
        moved = [{**window, "start": window["start"] + place, "end": window["end"] + place} for window in windows]
        wider.metadata["association"] = moved
    return wider


def _is_part(passage: Passage) -> bool:
    return "document_id" in passage.document.metadata and isinstance(passage.document.metadata.get("start"), int)


def _run(found: Passage, beside: Sequence[Passage], taken: set[str | None]) -> list[Passage]:
    """The passages of `beside`, nearest first, until one is in `taken` or does not adjoin the passage before it."""
    run = [found]
    for passage in beside:
        if passage.document.id in taken or not _goes_on(run[-1], passage):
            break
        run.append(passage)
    return run[1:]


def _goes_on(one: Passage, other: Passage) -> bool:
    if not _is_part(other) or one.document.metadata["document_id"] != other.document.metadata["document_id"]:
        return False
    return min(abs(_gap(one.document, other.document)), abs(_gap(other.document, one.document))) <= _LONGEST_GAP


def _gap(first: Document, second: Document) -> int:
    """Characters between two parts of a document; negative if the second begins before the first ends."""
    return int(second.metadata["start"]) - int(first.metadata["start"]) - len(first.page_content)
