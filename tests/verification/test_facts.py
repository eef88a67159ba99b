from langgraph_convcoa.verification.facts import facts_of, same_name


def strict(text):
    return {fact.form for fact in facts_of(text).facts if fact.strict}


def test_numbers_and_names_are_strict():
    assert strict("It was closed by Ada Lovelace in twenty-five days.") == {"ada", "lovelac", "25"}


def test_a_capital_that_only_opens_a_sentence_is_no_name():
    assert strict("Bananas are yellow.") == set()
    assert facts_of("Bananas are yellow.").openers == {"banana"}
    assert strict("Note: Bananas are yellow.") == set()
    assert strict("Ada Lovelace wrote it.") == {"ada", "lovelac"}


def test_a_not_turns_what_follows_it():
    assert facts_of("The bridge was not closed by storms in 1988.").negated == {"close", "storm", "1988"}
    assert not facts_of("The bridge was closed.").negative
    assert facts_of("Pets are prohibited.").softly


def test_initials_of_names():
    assert dict(facts_of("It joined the World Health Organization in 1948.").initials) == {
        "who": frozenset({"world", "health", "organiz"})
    }


def test_the_name_of_a_people_is_its_countrys():
    assert same_name("american", {"america"})
    assert same_name("german", {"germani"}) is same_name("germani", {"german"})
    assert not same_name("austria", {"australia"})
