import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.text.words import content_tokens, content_words, sentences, stem, words


@given(st.text(max_size=200))
def test_sentences_lie_where_they_say(text):
    end = 0
    for sentence in sentences(text):
        assert text[sentence.start : sentence.end] == sentence.text
        assert sentence.text == sentence.text.strip() != ""
        assert sentence.start >= end
        end = sentence.end


@given(st.text(alphabet="ab C.!?\n🎉東京。é", max_size=80))
def test_sentences_hold_every_character_that_is_not_white_space(text):
    covered = "".join(s.text for s in sentences(text))
    assert [c for c in covered if not c.isspace()] == [c for c in text if not c.isspace()]


def test_abbreviations_and_decimals_end_no_sentence():
    text = "Dr. Smith paid 3.5 euros to Mr. Jones. He left."
    assert [s.text for s in sentences(text)] == ["Dr. Smith paid 3.5 euros to Mr. Jones.", "He left."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café naïve", ["café", "naïve"]), ("don’t it's", ["don't", "it's"]),
        ("1,504 of 1,000,000 but 1,2 and 12,345.67", ["1504", "of", "1000000", "but", "1,2", "and", "12345.67"]),
        ("10:30 on 3/4/1999 in the 1990s", ["10:30", "on", "3/4/1999", "in", "the", "1990s"]),
        ("東京2020大会", ["東", "京", "2020", "大", "会"]), ("हिन्दी में।", ["हिन्दी", "में"]), ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
        ("مَرْحَبًا بالعالم", ["مَرْحَبًا", "بالعالم"]), ("นี้คือ", ["นี้", "คื", "อ"]), ("한국어 문장입니다", ["한국어", "문장입니다"]),
        ("ｆｕｌｌ １２３", ["full", "123"]), ("🎉 👨‍👩‍👧 — …!", []), ("snake_case a-b", ["snake", "case", "a", "b"]),
    ],
)  # fmt: skip
def test_words(text, expected):
    assert words(text) == [unicodedata.normalize("NFKC", word) for word in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Alchemy Index Vols. I & II was released in 2007.", ["The Alchemy Index Vols. I & II was released in 2007."]),
        ("See Vol. XI. Then he left.", ["See Vol. XI.", "Then he left."]),
        ("Chs. IV and V tell it, secs. 2 to 4 prove it.", ["Chs. IV and V tell it, secs. 2 to 4 prove it."]),
        ("His Opp. 10 and 11 came first. Paras. 7 to 9 apply.", ["His Opp. 10 and 11 came first.", "Paras. 7 to 9 apply."]),
        ("There are many vols. I like them.", ["There are many vols.", "I like them."]),
        ("It is in 3 vols. 2 are lost.", ["It is in 3 vols.", "2 are lost."]),
        ("It fills five vols. Civil war broke out.", ["It fills five vols.", "Civil war broke out."]),
        ("Those are the vols.\nI & II", ["Those are the vols.", "I & II"]),
    ],
)
def test_a_number_behind_an_abbreviation_belongs_to_it(text, expected):
    assert [sentence.text for sentence in sentences(text)] == expected


def test_composed_and_decomposed_accents_are_one_word():
    assert words("cafe\u0301") == words("caf\u00e9")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the WHO said", ["who", "said"]),
        ("WHO WAS IT", []),
        ("I don't think it isn't so; she'll go", ["think", "go"]),
        ("the Hopfield network", ["hopfield", "network"]),
    ],
)
def test_content_words(text, expected):
    assert content_words(text) == expected


def test_tokens_keep_the_written_form_where_possessives_and_plurals_meet():
    assert [(t.raw, t.item) for t in content_tokens("Hopfield's networks")] == [
        ("Hopfield", "hopfield"),
        ("networks", "network"),
    ]


@given(st.text(max_size=80))
def test_content_words_are_among_the_words(text):
    assert len(content_words(text)) <= len(words(text))


def test_stem_leaves_other_scripts_and_numbers_alone():
    assert [stem(w) for w in ("naïve", "東", "1990s", "running")] == ["naïve", "東", "1990s", "run"]


def test_stemming_in_threads_gives_the_same():
    given_words = [
        f"{root}{ending}" for root in ("network", "connect", "relat", "gener") for ending in ("s", "ed", "ing", "ional")
    ] * 20
    expected = [stem.__wrapped__(word) for word in given_words]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem.__wrapped__, given_words)) == expected
