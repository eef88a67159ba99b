"""The graph of tokens: chains, and the links between what is named twice."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.graph_reader.token_graph import Relation, TokenGraph


def tokenize(text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Pieces of up to four letters, as a tokenizer of subwords cuts."""
    found = [match.span() for match in re.finditer(r" ?\w{1,4}|[^\w\s]|\s", text)]
    return [hash(text[slice(*place)]) % 1000 for place in found], found


def linked(graph: TokenGraph, texts: list[str], relation: Relation) -> set[tuple[str, str]]:
    written = [text[slice(*place)].strip() for text in texts for place in tokenize(text)[1]]
    return {(written[edge.source], written[edge.target]) for edge in graph.edges if edge.relation is relation}


def test_tokens_of_a_piece_are_a_chain_in_both_directions_and_pieces_are_apart() -> None:
    graph = TokenGraph.of("why", ["a b", "c"], tokenize)
    ways = {relation: [edge[:2] for edge in graph.edges if edge.relation is relation] for relation in Relation}
    assert (len(graph.tokens), graph.evidence) == (4, 3)
    assert ways[Relation.NEXT] == [(0, 1)]
    assert ways[Relation.PREVIOUS] == [(1, 0)]
    assert ways[Relation.ITSELF] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_words_of_the_question_are_linked_with_all_their_tokens_wherever_they_stand() -> None:
    pieces = ["The networks store.", "A network of Hopfield."]
    graph = TokenGraph.of("Who made the network?", pieces, tokenize)
    found = linked(graph, [*pieces, "Who made the network?"], Relation.ASKED)
    # "networks" has the stem of "network"; "the" is no content word.
    assert found == {("netw", "netw"), ("ork", "orks"), ("orks", "ork"), ("ork", "ork")}
    both = {edge[:2] for edge in graph.edges if edge.relation is Relation.ASKED}
    assert both == {(target, source) for source, target in both}


def test_equal_names_of_two_pieces_are_linked_word_by_word_and_parts_of_a_name_are_not() -> None:
    pieces = ["Ada Lovelace wrote it", "it was by Ada Lovelace in 1843", "Ada Byron, 1843"]
    found = linked(TokenGraph.of("?", pieces, tokenize), pieces, Relation.SAME_NAME)
    assert {("Ada", "Ada"), ("Love", "Love"), ("lace", "lace"), ("1843", "1843")} == found
    assert not linked(TokenGraph.of("?", ["Rome. Rome"], tokenize), ["Rome. Rome"], Relation.SAME_NAME)


def test_a_name_in_every_piece_costs_links_in_a_line_with_the_pieces() -> None:
    def links(count: int) -> int:
        return len(TokenGraph.of("Where is Rome?", ["Rome is old"] * count, tokenize).edges)

    # Each further piece adds as many edges as the one before.
    assert links(40) - links(20) == 2 * (links(20) - links(10))


def test_no_evidence_is_the_question_alone() -> None:
    graph = TokenGraph.of("Where is Rome?", [], tokenize)
    assert graph.evidence == 0
    assert len(graph.tokens) > 0


@settings(max_examples=30)
@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=4))
def test_every_edge_has_two_nodes_whatever_the_text(question: str, pieces: list[str]) -> None:
    graph = TokenGraph.of(question, pieces, tokenize)
    assert all(0 <= node < len(graph.tokens) for edge in graph.edges for node in edge[:2])
    assert graph.evidence == sum(len(tokenize(piece)[0]) for piece in pieces)
