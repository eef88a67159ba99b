import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.query.conversation_state import (
    StateEncoder,
    conversational_state,
    history_pairs,
    mixed_states,
    turn_text,
)

WEIGHTS = {"history_weight": 0.6, "history_beta": 1.0}


def unit(*values):
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def test_no_history_leaves_the_query_as_it_is():
    x = unit(1, 2)
    np.testing.assert_array_equal(conversational_state(x, np.zeros((0, 2), np.float32), 0.6, 1.0), x)
    np.testing.assert_array_equal(conversational_state(x, unit(2, 1)[None], 0.0, 1.0), x)


def test_the_state_is_pulled_towards_the_turns_that_fit():
    x, near, far = unit(1, 0.2, 0), unit(1, 0, 0.3), unit(-1, 0, 0.5)
    state = conversational_state(x, np.stack([near, far]), 0.6, 1.0)
    # sparsemax by hand: the products differ by more than one, so that all weight is on the near turn.
    assert x @ near - x @ far > 1
    np.testing.assert_allclose(state, unit(*(x + 0.6 * near)), rtol=1e-5)


def test_turns_that_fit_equally_are_averaged():
    x, one, two = unit(1, 0), unit(1, 1), unit(1, -1)
    np.testing.assert_allclose(conversational_state(x, np.stack([one, two]), 1.0, 1.0), x, atol=1e-6)


def test_the_gate_leaves_a_question_that_means_what_it_says_to_the_state():
    x, t, s = unit(1, 0, 0), unit(1, 1, 0), unit(0, 0, 1)
    states = mixed_states(np.stack([x, t]), np.stack([x, x]), np.stack([s, s]), 0.5, 2.0)
    np.testing.assert_allclose(states[0], s, atol=1e-6)
    np.testing.assert_allclose(states[1], unit(*((1 - t @ x) ** 2 * t + 0.5 * s)), atol=1e-6)
    plain = mixed_states(np.stack([x, t]), np.stack([x, x]), np.stack([s, s]), 0.5, 0.0)
    np.testing.assert_allclose(plain, np.stack([unit(*(x + 0.5 * s)), unit(*(t + 0.5 * s))]), atol=1e-6)


def test_nothing_is_divided_by_no_length():
    x = unit(1, 0)
    assert mixed_states(x[None], x[None], np.zeros((1, 2), np.float32), 1.0, 1.0).tolist() == [[0.0, 0.0]]


def test_a_turn_is_its_question_and_the_start_of_its_answer():
    assert turn_text((" Who? ", "a" * 1000)) == "Who? " + "a" * 300
    assert turn_text(("Who?", "")) == "Who?"


def test_messages_and_pairs_are_told_apart():
    messages = [
        SystemMessage("Be brief."),
        AIMessage("Hello."),
        HumanMessage("Who?"),
        HumanMessage("I mean who wrote it?"),
        AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "1"}]),
        ToolMessage("found", tool_call_id="1"),
        AIMessage([{"type": "text", "text": "Ada."}]),
        HumanMessage("When?"),
    ]
    assert history_pairs(messages) == [("", "Hello."), ("Who? I mean who wrote it?", "Ada."), ("When?", "")]
    assert history_pairs([("a", "b"), ["c", ""]]) == [("a", "b"), ("c", "")]
    assert history_pairs(None) == history_pairs([]) == []


@pytest.mark.parametrize("history", ["text", ["text"], [("a",)], [("a", None)], [{"q": "a"}], [3]])
def test_another_history_is_refused(history):
    with pytest.raises(InputError, match="pairs of question and answer or messages"):
        history_pairs(history)


def test_a_history_that_recurs_is_encoded_once(encoder):
    states = StateEncoder(encoder)
    turns = [("who wrote sparsemax", "martins")]
    first = states.states(["when was it"], [turns], **WEIGHTS)
    again = states.states(["where was it", "when was it"], [turns, turns], **WEIGHTS)
    assert encoder.queries == ["when was it", "who wrote sparsemax martins", "where was it"]
    np.testing.assert_array_equal(first[0], again[1])


def test_only_so_many_vectors_are_kept(encoder, monkeypatch):
    monkeypatch.setattr("langgraph_convcoa.retrieval.query.conversation_state._KEPT", 2)
    states = StateEncoder(encoder)
    for query in ("one", "two", "three", "three", "one"):
        states.states([query], [[]], **WEIGHTS)
    assert encoder.queries == ["one", "two", "three", "one"]
    assert states.states([], [], **WEIGHTS).shape == (0, 4096)


def test_of_a_very_long_history_the_last_turns_count(encoder):
    turns = [(f"what of topic{i}", f"it is about thing{i}") for i in range(10_000)]
    found = StateEncoder(encoder).states(["what of topic9999"], [turns], **WEIGHTS)
    assert len(encoder.queries) == 101
    np.testing.assert_array_equal(found, StateEncoder(encoder).states(["what of topic9999"], [turns[-100:]], **WEIGHTS))


def test_histories_do_not_mix(encoder):
    states = StateEncoder(encoder)
    alone = states.states(["when was it"], [[("dpr", "karpukhin")]], **WEIGHTS)
    both = states.states(["when was it"] * 2, [[("sparsemax", "martins")], [("dpr", "karpukhin")]], **WEIGHTS)
    np.testing.assert_array_equal(both[1], alone[0])
    assert not np.array_equal(both[0], both[1])


@pytest.mark.parametrize("text", ["Who \ud83d it\x00?", "\ude00", "a \ud83d\ude00"])
def test_a_history_has_no_half_a_character(text):
    for history in ([(text, text)], [HumanMessage(text), AIMessage(text)], [{"role": "user", "content": text}]):
        [turn] = history_pairs(history)
        assert "\x00" not in "".join(turn).encode().decode()
