"""The query of a search: questions with their earlier turns, and their query states. The turns are a Hopfield memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.hopfield.arrays import update
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentValues, Vectors, normalised
from langgraph_convcoa.text.clean import clean

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.filters import Filter
    from langgraph_convcoa.retrieval.graph.settings import GraphSettings
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.retrieval.reranker import Reranker

Turn = tuple[str, str]  # A question and its answer.
History = Sequence[Turn | Sequence[str] | BaseMessage | Mapping[str, Any]]
"""Earlier turns, oldest first: pairs of question and answer, or messages as LangChain objects or dicts of role and content."""

_ANSWER_CHARACTERS = 300
_ROLES = frozenset({"human", "user", "ai", "assistant", "system", "developer", "tool", "function"})
_KEPT = 4096
# Only this many last turns count, so that the time for a question is bounded.
_TURNS = 100


@dataclass(frozen=True, eq=False)
class Query:
    """Questions in their conversations, with the settings of `HopfieldRetriever`."""

    questions: Sequence[str]  # q questions.
    turns: Sequence[Sequence[Turn]]  # Earlier turns of each question, oldest first.
    states: Vectors  # Query states, (q, d).
    k: int  # Passages wanted for each question.
    encoder: Encoder
    beta: float
    passage_weight: float
    lexical_weight: float
    lexical_history: float
    history_weight: float
    history_beta: float
    filter: Filter | None = None
    score_threshold: float | None = None
    graph: GraphSettings | None = None
    rerank: int = 0  # Passages that the reranker reads for each question.
    reranker: Reranker | None = None
    neighbours: int = 0  # Parts of a document that are returned on either side of a found part.

    def one(self, row: int) -> Query:
        """The query with the question of this row only."""
        part = slice(row, row + 1)
        return replace(self, questions=self.questions[part], turns=self.turns[part], states=self.states[part])


def checked_questions(questions: Sequence[str], histories: Sequence[History | None]) -> tuple[list[str], list[list[Turn]]]:
    """The texts of questions and the turns before each; InputError for an empty question or a history of another form."""
    turns = [history_pairs(history) for history in histories]
    if len(turns) != len(questions):
        raise InputError(f"There are {len(questions)} queries and {len(turns)} histories; give one of each.")
    texts = []
    for question, earlier in zip(questions, turns, strict=True):
        if not isinstance(question, str):
            raise InputError(f"The question must be a string, not {type(question).__name__}.")
        texts.append(clean(question).strip())
        if not texts[-1]:
            raise InputError("The question is empty; write one.")
        # An app may have appended the new question to its messages.
        if earlier and earlier[-1] == (texts[-1], ""):
            earlier.pop()
    return texts, turns


def history_pairs(history: Iterable[Turn | Sequence[str] | BaseMessage | Mapping[str, Any]] | None) -> list[Turn]:
    """Earlier turns as pairs of question and answer, from pairs or from messages; InputError for other entries.

    Only messages of the user and the model count; several in a row form one text. A missing question or answer is empty.
    """
    if history is None:
        return []
    if isinstance(history, str) or not isinstance(history, Iterable):
        found = "a string" if isinstance(history, str) else f"{history!r:.80}"
        raise InputError(f"The history must be pairs of question and answer or messages, not {found}.")
    pairs: list[tuple[list[str], list[str]]] = []
    for entry in history:
        if isinstance(entry, Mapping) and "content" in entry and ("role" in entry or "type" in entry):
            entry = _message(entry.get("role", entry.get("type")), entry["content"])
        if isinstance(entry, BaseMessage):
            text = clean(str(entry.text)).strip()
            if not text or not isinstance(entry, HumanMessage | AIMessage):
                continue
            asks = isinstance(entry, HumanMessage)
            if not pairs or (asks and pairs[-1][1]):
                pairs.append(([], []))
            pairs[-1][0 if asks else 1].append(text)
        elif isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            pairs.append(([clean(entry[0])], [clean(entry[1])]))
        else:
            raise InputError(f"The history must be pairs of question and answer or messages, not {entry!r:.80}.")
    return [(" ".join(questions), " ".join(answers)) for questions, answers in pairs]


def _message(role: Any, content: Any) -> BaseMessage:
    # Messages of these roles are ignored later. A ToolMessage would need the id of its call.
    kept = "system" if role in ("tool", "function", "developer") else role
    try:
        return convert_to_messages([{"role": kept, "content": content or ""}])[0]
    except (ValueError, TypeError, NotImplementedError):
        shown = f"{{'role': {role!r}, 'content': {content!r:.40}}}"
        raise InputError(f"The history holds {shown}; a message has a role, such as user or assistant, and a text.") from None


class StateEncoder:
    """Query states of questions with their histories; vectors of recent texts are kept, since histories recur.

    The state is `conversational_state`. The query encoder of the default model also encodes the question with its turns, and
    this vector is mixed with the state (`mixed_states`). A trained head replaces `conversational_state` (`StateWeights`).
    """

    def __init__(self, encoder: Encoder, model: RetrieverModel | None = None) -> None:
        self.encoder, self.model = encoder, model
        self._vectors = RecentValues[str, Vectors](_KEPT)

    def states(
        self, queries: Sequence[str], histories: Sequence[Sequence[Turn]], *, history_weight: float, history_beta: float
    ) -> Vectors:
        """The query state of each question with its earlier turns (oldest first), (n, d). New texts are encoded in one batch.

        The last 100 turns count; with a history weight of 0 no turn counts. RetrievalError if the encoder gives unusable
        vectors, or the model is for another encoder.
        """
        model = self.model
        if model is not None:
            model.check_encoder(self.encoder)
        state = conversational_state if model is None or model.state is None else model.state.state
        none = np.zeros((0, 0), dtype=np.float32)
        kept = [list(history[-_TURNS:]) if history_weight else [] for history in histories]
        turns = [[text for text in map(turn_text, history) if text] for history in kept]
        vectors = self._vectors.of([*queries, *(text for texts in turns for text in texts)], self._encode)
        patterns = [np.stack([vectors[text] for text in texts]) if texts else none for texts in turns]
        pairs = zip(queries, patterns, strict=True)
        rows = [state(vectors[query], history, history_weight, history_beta) for query, history in pairs]
        states = np.stack(rows) if rows else np.zeros((0, self.encoder.dimension), dtype=np.float32)
        followed = [row for row, history in enumerate(kept) if history]
        if model is not None and model.query_encoder is not None and followed:
            earlier = [[(question.strip(), answer.strip()) for question, answer in kept[row]] for row in followed]
            encoded = model.query_encoder.encode([queries[row] for row in followed], earlier)
            questions = np.stack([vectors[queries[row]] for row in followed])
            states[followed] = mixed_states(encoded, questions, states[followed], model.state_weight, model.gate)
        return states

    def _encode(self, texts: list[str]) -> Vectors:
        return normalised(self.encoder.encode_queries(texts), len(texts), self.encoder.dimension, self.encoder.name)


def turn_text(turn: Turn) -> str:
    """The text of an earlier turn that is encoded: its question and the start of its answer."""
    question, answer = turn
    return f"{question.strip()} {answer.strip()[:_ANSWER_CHARACTERS]}".strip()


def conversational_state(query: Vectors, history: Vectors, history_weight: float, history_beta: float) -> Vectors:
    """normalise(x + lambda sparsemax(beta_h x H^T) H); x without a history.

    The query x is (d,); the history H is (t, d), with a pattern for each turn; lambda is at least 0, beta_h 0 to infinity.
    """
    if len(history) == 0 or history_weight == 0:
        return query
    state = query + history_weight * update(query, history, beta=history_beta)
    return np.asarray(state / max(float(np.linalg.norm(state)), 1e-12), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class StateWeights:
    """The trained weights of a conversation state.

    normalise(x W_x + lambda g r W_h), where r = sparsemax(beta_h x W_a H^T) H is the pattern that the earlier turns H return,
    and the gate g = 2 sigmoid(u [x, r, x * r, <x, r>, 1]). Identity matrices and u = 0 give the untrained state. A question
    without a history stays x. `direct` (W_x), `association` (W_a) and `history` (W_h) are (d, d), `gate` (u) is (3 d + 2,).
    RetrievalError for other shapes and weights that are not finite.
    """

    direct: Vectors
    association: Vectors
    history: Vectors
    gate: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        d = len(self.direct)
        shapes = self.direct.shape, self.association.shape, self.history.shape
        if shapes != ((d, d),) * 3 or self.gate.shape != (3 * d + 2,):
            found = f"{shapes} and {self.gate.shape}"
            raise RetrievalError(f"The conversation state's weights must have shapes 3 x (d, d) and (3 d + 2,), not {found}.")
        if not all(np.isfinite(weight).all() for weight in (self.direct, self.association, self.history, self.gate)):
            raise RetrievalError("A weight of the conversation state is NaN or infinite; train again or load another.")

    def state(self, query: Vectors, history: Vectors, history_weight: float, history_beta: float) -> Vectors:
        """The state of a question in its conversation, (d,), of length one."""
        state = query
        if len(history) and history_weight:
            recalled = update(query @ self.association, history, beta=history_beta)
            features = np.concatenate([query, recalled, query * recalled, [query @ recalled, 1.0]])
            gate = 2 / (1 + np.exp(-np.clip(self.gate @ features, -50, 50)))
            state = query @ self.direct + history_weight * gate * (recalled @ self.history)
        length = np.linalg.norm(state)
        return np.asarray(state / length if length else state, dtype=np.float32)


def mixed_states(encoded: Vectors, questions: Vectors, states: Vectors, state_weight: float, gate: float) -> Vectors:
    """normalise((1 - <t, x>)^p t + g s): states s mixed with the query encoder's vectors t.

    x are the vectors of the questions without their turns. All vectors are (n, d), of length one. For a self-contained
    question, t is near x and has little weight. With p = 0, the query encoder has the same weight for every question.
    """
    weights = np.clip(1 - np.einsum("nd,nd->n", encoded, questions), 0, None)[:, None] ** np.float32(gate)
    mixed = weights * encoded + np.float32(state_weight) * states
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    return np.asarray(np.divide(mixed, lengths, out=mixed, where=lengths > 0), dtype=np.float32)


def messages_of(history: Iterable[Turn | Sequence[str] | BaseMessage | Mapping[str, Any]] | None) -> Any:
    """Turn the (role, text) tuples of a chat history into messages; anything else is returned unchanged."""
    if isinstance(history, str) or not isinstance(history, Iterable):
        return history
    entries = list(history)
    tuples = [entry for entry in entries if isinstance(entry, list | tuple)]
    if not all(len(entry) == 2 and isinstance(entry[0], str) and entry[0] in _ROLES for entry in tuples):
        return entries
    return [_message(*entry) if isinstance(entry, list | tuple) else entry for entry in entries]
