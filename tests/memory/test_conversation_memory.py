from __future__ import annotations

import numpy as np
from langchain_core.messages.utils import count_tokens_approximately

from langgraph_convcoa.memory import conversation_memory as module
from langgraph_convcoa.memory.conversation_memory import ConversationMemory, TextVectors
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from tests.fake_encoder import CountingEncoder

TOPICS = ["ants", "bees", "crabs", "ducks", "eels", "foxes", "goats", "hens", "ibises", "jays"]


def conversation(rounds: int, answer: str = "In a house.") -> ContextualKnowledgeSet:
    knowledge = ContextualKnowledgeSet()
    for n in range(rounds):
        question = f"Where do the {TOPICS[n % 10]} number {n // 10} live?"
        knowledge.add_round(question, question, [], answer)
    return knowledge


def shown(view: str, knowledge: ContextualKnowledgeSet) -> list[int]:
    rounds = {entry["original_question"]: entry["round"] for entry in knowledge.rounds}
    return [rounds[line.removeprefix("User: ")] for line in view.split("\n") if line.startswith("User: ")]


def test_a_view_has_the_last_rounds_and_the_relevant_ones_oldest_first() -> None:
    view, _ = ConversationMemory().recollect(conversation(60), "Tell me more of the bees number 0.", [])
    numbers = shown(view, conversation(60))
    assert 2 in numbers
    assert numbers == sorted(numbers)
    assert {58, 59, 60} < set(numbers)
    assert len(numbers) <= module.RECENT + module.RELEVANT
    assert ConversationMemory().relevant(conversation(60), "Tell me more of the bees number 0.")[0].triple.key == 2


def test_a_view_does_not_grow_with_the_conversation() -> None:
    memory = ConversationMemory()
    sizes = [
        count_tokens_approximately([memory.recollect(conversation(n), "Where do the jays number 0 live?", [])[0]])
        for n in (10, 50, 100)
    ]
    assert max(sizes) <= 1.2 * min(sizes)


def test_a_long_last_round_is_cut_and_leaves_room_for_the_others() -> None:
    knowledge = conversation(12)
    knowledge.add_round("And the lions?", "Where do the lions live?", [], "x" * 1_000_000)
    view = ConversationMemory().recollect(knowledge, "Where do the ants number 0 live?", [], budget_tokens=800)[0]
    assert count_tokens_approximately([view]) <= 800
    assert {1, 13} < set(shown(view, knowledge))


def test_a_turn_encodes_only_what_is_new() -> None:
    encoder = CountingEncoder()
    memory = ConversationMemory(encoder)
    for n in range(1, 30):
        memory.recollect(conversation(n), f"Where do the {TOPICS[n % 10]} number {n // 10} live?", [])
    # The round that ended and the question, whatever the number of rounds.
    assert max(len(texts) for texts in encoder.asked) == 2
    again = CountingEncoder()
    ConversationMemory(again).recollect(conversation(29), "Where do the ants live?", [])
    assert len(again.asked) == 1, "after a restart everything is encoded once, together"
    assert len(again.asked[0]) == 30


def test_going_on_and_starting_again_find_the_same() -> None:
    going = ConversationMemory()
    for n in range(1, 41):
        found = going.relevant(conversation(n), "Where do the crabs number 1 live?")
    fresh = ConversationMemory().relevant(conversation(40), "Where do the crabs number 1 live?")
    assert [one.triple.key for one in found] == [one.triple.key for one in fresh]
    assert found[0].triple.key == 13


def test_two_conversations_with_the_same_beginning_do_not_mix() -> None:
    memory, start = ConversationMemory(), conversation(5)
    one, other = ContextualKnowledgeSet(start.rounds), ContextualKnowledgeSet(start.rounds)
    one.add_round("The secret is?", "The secret is?", [], "Sparsemax.")
    other.add_round("Thanks!", "Thanks!", [], "")
    for knowledge in (start, one, other, one, other):
        memory.relevant(knowledge, "secret sparsemax")
    assert all(found.triple.response != "Sparsemax." for found in memory.relevant(other, "secret sparsemax", 10))
    assert memory.relevant(one, "secret sparsemax", 1)[0].triple.response == "Sparsemax."


def test_a_short_conversation_is_the_history_and_of_a_long_one_what_matters() -> None:
    memory = ConversationMemory()

    def pairs(knowledge: ContextualKnowledgeSet) -> list[tuple[str, str]]:
        return [(entry["original_question"], entry["answer"]) for entry in knowledge.rounds[-20:]]

    short = conversation(8)
    assert memory.recollect(short, "Where do the bees number 0 live?", pairs(short))[1] == pairs(short)
    long = conversation(60)
    history = memory.recollect(long, "Where do the bees number 0 live?", pairs(long))[1]
    assert history[-6:] == pairs(long)[-6:]
    assert ("Where do the bees number 0 live?", "In a house.") in history[:-6]
    assert len(history) <= 10


def test_a_new_topic_has_no_earlier_rounds_and_a_follow_up_has_the_last() -> None:
    memory, knowledge = ConversationMemory(), conversation(12)
    assert memory.topic(knowledge, "Who introduced sparsemax?", leans=False) == set()
    assert memory.topic(knowledge, "Who introduced it?", leans=True) == {12}
    assert 2 in memory.topic(knowledge, "How many bees number 0 are there?", leans=False)


def test_a_conversation_goes_on_when_the_encoder_fails_in_the_middle_of_it() -> None:
    encoder = CountingEncoder()
    memory, knowledge = ConversationMemory(encoder), conversation(12)
    assert memory.relevant(knowledge, "Where do the ants number 0 live?")
    encoder.broken = True
    found = memory.relevant(knowledge, "Where do the crabs number 0 live?", k=1)
    assert "crabs" in found[0].triple.query


def test_only_what_is_new_is_encoded_and_in_one_batch() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(encoder)
    first = vectors(["ants", "bees", "ants"])
    second = vectors(["bees", "crabs", "ants"])
    assert encoder.asked == [["ants", "bees"], ["crabs"]]
    assert np.array_equal(first[[1, 0]], second[[0, 2]])


def test_the_oldest_vectors_are_given_up() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(encoder, capacity=2)
    vectors(["a1", "b1"])
    vectors(["b1", "c1"])
    vectors(["a1", "c1"])
    assert encoder.asked == [["a1", "b1"], ["c1"], ["a1"]]


def test_an_encoder_that_fails_leaves_the_words_and_one_measure_for_all() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(lambda: encoder)
    assert vectors(["the ants"]).shape == (1, 512)
    encoder.broken = True
    rows = vectors(["the ants", "ants here", "bees"])
    assert vectors.lexical
    assert rows.shape == (3, 1024)
    assert rows[0] @ rows[1] > 0.99
    assert rows[0] @ rows[2] < 0.01


def test_no_encoder_and_no_text() -> None:
    vectors = TextVectors()
    assert vectors.lexical
    assert len(vectors([])) == 0
    assert np.allclose(np.linalg.norm(vectors(["of the", "?!"]), axis=1), [1, 0])
