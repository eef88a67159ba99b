import numpy as np

from langgraph_convcoa.retrieval.encoders.recent import RecentEncoder


def test_what_is_kept_is_not_encoded_again(encoder):
    recent = RecentEncoder(encoder, 3)
    first = recent.encode_passages(["a cat", "a dog", "a cat"])
    assert encoder.passages == ["a cat", "a dog"]
    again = recent.encode_passages(["a dog", "an owl", "a cat"])
    assert encoder.passages == ["a cat", "a dog", "an owl"]
    np.testing.assert_array_equal(again[[2, 0]], first[:2])
    np.testing.assert_array_equal(again, encoder.encode_passages(["a dog", "an owl", "a cat"]))


def test_the_least_recently_used_goes_first(encoder):
    recent = RecentEncoder(encoder, 2)
    recent.encode_passages(["a cat", "a dog"])
    recent.encode_passages(["a cat"])
    recent.encode_passages(["an owl"])
    encoder.passages.clear()
    recent.encode_passages(["a cat", "an owl"])
    assert encoder.passages == []
    recent.encode_passages(["a dog"])
    assert encoder.passages == ["a dog"]


def test_more_than_is_kept_still_comes_back(encoder):
    recent = RecentEncoder(encoder, 1)
    texts = ["a cat", "a dog", "an owl"]
    np.testing.assert_array_equal(recent.encode_passages(texts), encoder.encode_passages(texts))
    assert recent.count_tokens_batch(texts) == encoder.count_tokens_batch(texts)


def test_the_rest_is_the_other_encoders(encoder):
    recent = RecentEncoder(encoder, 9)
    assert (recent.name, recent.dimension, recent.max_tokens) == (encoder.name, encoder.dimension, encoder.max_tokens)
    assert recent.count_tokens("one two") == 4
    assert recent.encode_passages([]).shape == (0, 4096)
    np.testing.assert_array_equal(recent.encode_queries(["a cat"]), encoder.encode_queries(["a cat"]))
