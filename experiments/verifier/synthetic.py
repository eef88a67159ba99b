"""Training pairs of a claim and a premise, made from a passage: from its questions with answers and from its sentences."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence

from langgraph_convcoa.text.words import sentences
from langgraph_convcoa.verification.premise import Evidence

NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w-])(?!\.\d)")
NAME = re.compile(r"(?<![.!?“\"'] )(?<!^)\b[A-Z][a-z]+(?:['’.-]?[A-Za-z]+)?(?: (?:of |de |the )?[A-Z][a-z]+){0,3}")
_YEAR = re.compile(r"\b(1[0-9]{3}|20[0-2][0-9])\b")

# Words that make a sentence false when one replaces the other; "_" stands for a space. A pair that is listed twice is drawn
# twice as often.
_OPPOSITES = """
    rose/fell increased/decreased increase/decrease growth/decline grew/shrank higher/lower more/fewer
    larger/smaller largest/smallest highest/lowest longest/shortest oldest/newest older/younger early/late
    earlier/later before/after first/last began/ended opened/closed won/lost added/removed above/below
    inside/outside north/south northern/southern east/west eastern/western left/right major/minor most/few
    all/some always/never often/rarely many/few public/private include/exclude included/excluded
    includes/excludes with/without allowed/forbidden accepted/rejected success/failure successful/unsuccessful
    strong/weak strongest/weakest old/new male/female men/women buy/sell bought/sold import/export
    imported/exported supported/opposed support/oppose maximum/minimum at_least/at_most more_than/less_than
    hot/cold warm/cool dry/wet upper/lower rich/poor wealthy/poor young/old ancient/modern former/current
    rural/urban positive/negative north/east can/cannot is/is_not was/was_not were/were_not are/are_not
    has/has_not had/had_not will/will_not may/must must/may should/may only/also both/neither every/no
    created/destroyed gave/received sent/received arrived/left entered/left during/after because_of/despite
    same/different similar/different common/rare permanent/temporary million/billion thousand/million
    percent/million hours/days days/weeks weeks/months months/years minutes/hours metres/kilometres miles/feet
    km/m century/decade founded/dissolved built/demolished defeated/joined attacked/defended married/divorced
    born/killed borrowed/lent teacher/student mother/daughter father/son brother/uncle king/queen parent/child
"""


def _swaps(pairs: str) -> dict[str, list[str]]:
    """Each word with its opposites."""
    swaps: dict[str, list[str]] = {}
    for pair in pairs.split():
        one, two = (part.replace("_", " ") for part in pair.split("/"))
        swaps.setdefault(one, []).append(two)
        swaps.setdefault(two, []).append(one)
    return swaps


SWAPS = _swaps(_OPPOSITES)
_SWAP = re.compile(r"\b(" + "|".join(sorted(map(re.escape, SWAPS), key=len, reverse=True)) + r")\b")

# Rules that turn a question into a statement.
_WHO_DID = re.compile(r"^who (?!did |do |does |is |was |are |were |'s )(\w+ .+)$", re.IGNORECASE)
_WHO_IS = re.compile(r"^(?:who|what) (is|was|are|were) ((?:the|a|an|one) .+)$", re.IGNORECASE)
_WHEN_OR_WHERE = re.compile(
    r"^(?:when|in what year|in which year|what year|on what date|where|in what \w+|at what \w+|in which \w+)"
    r" (did|does|do|was|were|is|are|has|had|can|will) (.+)$",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    r"^how many ((?:\w+ ){1,3}?)"
    r"(are|were|have|had|was|is|can|could|make|live|lived|died|attended|participated)\b(.*)$",
    re.IGNORECASE,
)
_WHICH = re.compile(
    r"^(?:what|which) (\w+(?: \w+)?) "
    r"(was|were|is|are|has|had|won|wrote|led|made|became|began|caused|created|used|helped|founded|have|can|does) (.+)$",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"^(?:what|who|which \w+|what \w+|how many \w+|how much \w*) (did|does|do) (.+)$", re.IGNORECASE)
_COUNTED = re.compile(r"^how (?:many|much) (\w+) (?:did|does|do)", re.IGNORECASE)
_PREPOSITION = re.compile(r"(in|on|at|during|since|from|by|near|after|before|between|around|about|under|to) ", re.IGNORECASE)

# The kind of answer that a question asks for.
_ASKS_YEAR = re.compile(r"(when|what year|in what year)", re.IGNORECASE)
_ASKS_NUMBER = re.compile(r"how (many|much|long|old)", re.IGNORECASE)
_ASKS_NAME = re.compile(r"(who|where|which|what (country|city|state|person|king|company))", re.IGNORECASE)

# Forms of sentences that can be changed.
_PASSIVE = re.compile(
    r"^(?P<patient>.{3,60}?) (?P<be>was|were|is|are) (?:\w+ly )?"
    r"(?P<verb>\w+ed|built|written|led|won|held|sold|bought|made|taken|given|known|found|sent|struck|shot|drawn|sung"
    r"|taught|beaten|brought|overthrown)"
    r" (?:\w+ ){0,3}?by (?P<agent>[^,;.()]{3,50}).*$"
)
_AFTER_AGENT = re.compile(r" (?:in|on|at|and|who|which|that|from|as|to|with|during|after|before) ")
_PAST = {
    "written": "wrote",
    "given": "gave",
    "taken": "took",
    "known": "knew",
    "drawn": "drew",
    "sung": "sang",
    "beaten": "beat",
    "overthrown": "overthrew",
}
_AUXILIARY = re.compile(r"\b(was|is|were|are|has|had|can|could|will|would)\b")
_SUBJECT = re.compile(r"^((?:The |A )?[A-Z]\w+(?: [A-Z]\w+)*) (?=was|is|were|are|had|has|\w+ed )")
_LONG_SUBJECT = re.compile(
    r"^((?:(?:The|A|An) )?[A-Z]?[\w'’&-]+(?: (?:of |the |de )?[\w'’&-]+){0,3}?) "
    r"(was|is|were|are|had|has|have|can|may|must|will|does|did|costs?|runs?|offers?|opened|began|became|\w{3,}ed)\b"
)
_PREDICATE = re.compile(r" (?:was|is|were|are|had|has|\w+ed) .+$")
_NOUN = re.compile(r"(?:(?<=[Tt]he )|(?<=[Aa]n )|(?<=\b[Aa] )|(?<=[Ii]ts )|(?<=[Hh]is )|(?<=[Hh]er ))[a-z]{4,}\b")
_LISTED = re.compile(r"(?:,| and| or| to|-|–)*\s*(?:and |or |to )?(?:the |a |an |its |his |her )?")
_LIST = re.compile(r"(\w+), (\w+),? and (\w+)\b")
_INNER_CLAUSE = re.compile(r",[^,]{5,80},")
_BRACKETS = re.compile(r" \([^)]*\)")
_CONNECTIVE = re.compile(r"^(However|Moreover|In addition|Furthermore|Also|Thus|Therefore), ")
_OPENING = re.compile(r"^((?:In|On|During|After|Since|By|At|From) [^,]{3,40}), (.+?)\.$")
_TWO_CLAUSES = re.compile(r"^(.{25,}), (?:and|but) .{20,}$")
_SUBORDINATE = re.compile(r"^(.{20,}?) (?:because|although|while|when|which|where|who) .{15,}$")

_LEANS = re.compile(
    r"(?:he|she|it|they|his|her|its|their|this|these|that|those|however|but|also|both|such|another)\b", re.IGNORECASE
)
_Edit = tuple[str, int, str]
"""A claim, its label (1 if the passage supports it) and the kind of edit."""


def kind_of(answer: str) -> str:
    """The kind of an answer: year, number, name, or words with their count up to 4.

    Example:
        >>> kind_of("in 1984"), kind_of("40 rooms"), kind_of("Ada Lovelace"), kind_of("a red car")
        ('year', 'number', 'name', 'words3')
    """
    if _YEAR.search(answer):
        return "year"
    if re.search(r"\d", answer):
        return "number"
    if answer[:1].isupper():
        return "name"
    return f"words{min(len(answer.split()), 4)}"


def statement(question: str, answer: str, rng: random.Random) -> str:
    """A claim from a question and its answer.

    Args:
        question: The question.
        answer: The answer, right or wrong.
        rng: Random generator that chooses the form.

    Returns:
        A sentence if a rule fits, in three of four draws; otherwise the question and the answer side by side.
    """
    asked, answer = question.strip().rstrip("?").strip(), answer.strip().rstrip(".")
    if rng.random() < 0.75:
        for rule in (_who_did, _who_is, _when_or_where, _how_many, _which, _object):
            claim = rule(asked, answer, rng)
            if claim is not None:
                return claim
    form = rng.random()
    if form < 0.5:
        return f"{question.strip()} {_capital(answer)}."
    return f"{_capital(answer)}: {question.strip()}" if form < 0.6 else f"The answer to “{question.strip()}” is {answer}."


def _who_did(question: str, answer: str, rng: random.Random) -> str | None:
    """Who wrote X: A wrote X."""
    match = _WHO_DID.match(question)
    return f"{_capital(answer)} {match[1]}." if match else None


def _who_is(question: str, answer: str, rng: random.Random) -> str | None:
    """Who is the X: A is the X, or the X is A."""
    match = _WHO_IS.match(question)
    if not match:
        return None
    be, described = match.groups()
    return rng.choice([f"{_capital(answer)} {be} {described}.", f"{_capital(described)} {be} {answer}."])


def _when_or_where(question: str, answer: str, rng: random.Random) -> str | None:
    """When did X happen: X did happen in A."""
    match = _WHEN_OR_WHERE.match(question)
    if not match:
        return None
    words = match[2].split()
    n = _subject_words(words)
    if not n:
        return None
    preposition = "in " if not _PREPOSITION.match(answer) and kind_of(answer) in ("year", "name") else ""
    claim = f"{' '.join(words[:n])} {match[1].lower()} {' '.join(words[n:])} {preposition}{answer}."
    return claim.replace("  ", " ").capitalize() if words[0][0].islower() else claim


def _how_many(question: str, answer: str, rng: random.Random) -> str | None:
    """How many X are Y: A X are Y."""
    match = _HOW_MANY.match(question)
    return f"{_capital(answer)} {match[1]}{match[2]}{match[3]}." if match else None


def _which(question: str, answer: str, rng: random.Random) -> str | None:
    """Which X won Y: A won Y, or the X that won Y is A."""
    match = _WHICH.match(question)
    if not match:
        return None
    noun, verb, rest = match.groups()
    if verb == "does" or noun.split()[-1] in ("did", "do", "does"):
        return None
    return f"{_capital(answer)} {verb} {rest}." if rng.random() < 0.5 else f"The {noun} that {verb} {rest} is {answer}."


def _object(question: str, answer: str, rng: random.Random) -> str | None:
    """What did X write: X did write A."""
    match = _OBJECT.match(question)
    if not match:
        return None
    words = match[2].split()
    n = _subject_words(words)
    if not n:
        return None
    counted = _COUNTED.match(question)
    amount = f"{answer} {counted[1]}" if counted else answer
    return f"{' '.join(words[:n])} {match[1].lower()} {' '.join(words[n:])} {amount}."


def _subject_words(words: Sequence[str]) -> int:
    """How many words at the start are the subject, guessed by capitals and articles; 0 if unclear."""
    if words and words[0].lower() in ("the", "a", "an", "his", "her", "its", "their", "this", "these", "some", "many"):
        n = 1
        while n < len(words) - 1 and words[n][:1].isupper():
            n += 1
        if n > 1:
            return n
        return 2 if len(words) > 2 else 0
    n = 0
    while n < len(words) - 1 and (words[n][:1].isupper() or (n and words[n] in ("of", "the", "de", "and"))):
        n += 1
    if n == 0 and words and words[0].lower() in ("he", "she", "it", "they", "people"):
        return 1
    return n


def from_questions(
    passage: tuple[str, str], asked: Sequence[tuple[str, str, bool]], rng: random.Random
) -> Iterator[tuple[str, str, int, str]]:
    """Pairs from the questions about a passage.

    Args:
        passage: Title and text.
        asked: Questions as (question, answer, True if the passage answers it).
        rng: Random generator.

    Yields:
        (claim, premise, label, kind). The kind is "qa" for a right answer (label 1), "qa-other" for a wrong answer
        and "qa-absent" for an answer to a question that the passage does not answer (label 0).
    """
    evidence = Evidence([passage])
    answers: dict[str, list[str]] = {}
    for _, answer, good in asked:
        if good and answer:
            answers.setdefault(kind_of(answer), []).append(answer)
    every = [answer for kept in answers.values() for answer in kept]
    in_text: dict[str, list[str]] = {
        "name": NAME.findall(passage[1]),
        "number": NUMBER.findall(passage[1]),
        "year": _YEAR.findall(passage[1]),
    }
    for question, answer, good in asked:
        if good and answer:
            yield _pair(evidence, (statement(question, answer, rng), 1, "qa"), rng)
            kind = kind_of(answer)
            others = _unlike(answer, answers.get(kind, []) + in_text.get(kind, [])) or _unlike(answer, every)
            if others and rng.random() < 0.8:
                yield _pair(evidence, (statement(question, rng.choice(others), rng), 0, "qa-other"), rng)
        elif not good:
            kind = _kind_asked(question)
            others = (answers.get(kind, []) + in_text.get(kind, [])) or every
            if others:
                yield _pair(evidence, (statement(question, rng.choice(others), rng), 0, "qa-absent"), rng)


def _kind_asked(question: str) -> str:
    """The kind of answer that a question asks for, as in `kind_of`; "" if unclear."""
    if _ASKS_YEAR.match(question):
        return "year"
    if _ASKS_NUMBER.match(question):
        return "number"
    return "name" if _ASKS_NAME.match(question) else ""


def _unlike(answer: str, others: Sequence[str]) -> list[str]:
    """The other answers that neither contain the answer nor are part of it."""
    lower = answer.lower()
    return [other for other in others if other.lower() not in lower and lower not in other.lower()]


def from_sentences(passage: tuple[str, str], rng: random.Random) -> Iterator[tuple[str, str, int, str]]:
    """Pairs from up to three sentences of a passage, changed in one fact or only in form.

    Args:
        passage: Title and text.
        rng: Random generator.

    Yields:
        (claim, premise, label, kind). The kind names the edit. The label is 1 if the edit keeps the meaning.
    """
    evidence = Evidence([passage])
    found = [sentence.text for sentence in sentences(passage[1]) if 6 <= len(sentence.text.split()) <= 32]
    rng.shuffle(found)
    names = NAME.findall(passage[1])
    for text in found[:3]:
        voices = _voices(text)
        wrong = [
            *(edit for edit in voices if not edit[1]),
            *_other_names(text, names, rng),
            *_other_numbers(text, rng),
            *_exchanged(text, rng),
            *_opposites(text, rng),
            *_other_subjects(text, found, rng),
            *_longer_lists(text, names, rng),
        ]
        wrong = [edit for edit in wrong if edit[0] != text]
        rng.shuffle(wrong)
        wrong = wrong[:2]
        same = _same_meaning(text)
        rng.shuffle(same)
        # About as many true claims as false ones.
        true = [(claim, 1, "edit") for claim in same[: max(1, len(wrong))]]
        for edit in [*wrong, *(edit for edit in voices if edit[1]), *true]:
            yield _pair(evidence, edit, rng)


def from_article(passage: tuple[str, str], others: Sequence[str], rng: random.Random) -> Iterator[tuple[str, str, int, str]]:
    """Pairs from a passage and the sentences of other passages of its article, which are near its subject.

    Args:
        passage: Title and text.
        others: Texts of other passages of the same article.
        rng: Random generator.

    Yields:
        (claim, premise, label, kind). "copy" is a sentence of the passage (label 1), "both" are two of them (label 1). "near"
        is a sentence of another passage (label 0), "half" joins a sentence of each (label 0).
    """
    evidence = Evidence([passage])
    own, near = (_plain_sentences(text, rng) for text in (passage[1], " ".join(others)))
    for here, there in zip(own[:2], near[:2], strict=False):
        yield _pair(evidence, (_shortened(here, rng), 1, "copy"), rng)
        yield _pair(evidence, (_shortened(there, rng), 0, "near"), rng)
    if len(own) > 2 and len(near) > 2:
        both = _joined(own[0], own[2], rng)
        premise = evidence.premise(both).text
        if own[0] in premise and own[2] in premise:
            yield both, premise, 1, "both"
        yield _pair(evidence, (_joined(own[1], near[2], rng), 0, "half"), rng)


def _plain_sentences(text: str, rng: random.Random) -> list[str]:
    """The sentences of a text that make sense alone, in random order."""
    found = [one.text for one in sentences(text) if 6 <= len(one.text.split()) <= 28 and not _LEANS.match(one.text)]
    rng.shuffle(found)
    return found


def _shortened(text: str, rng: random.Random) -> str:
    """A sentence, sometimes without its last clause."""
    if rng.random() < 0.25 and (match := _SUBORDINATE.match(text) or _TWO_CLAUSES.match(text)):
        return match[1].rstrip(",") + "."
    return text


def _joined(one: str, two: str, rng: random.Random) -> str:
    """Two sentences in random order, sometimes joined by "and"."""
    first, second = (one, two) if rng.random() < 0.5 else (two, one)
    return f"{first.rstrip('.')}, and {second}" if rng.random() < 0.5 else f"{first} {second}"


def with_pronoun(claim: str, premise: str, rng: random.Random) -> str:
    """The claim with a pronoun for its subject, if the premise names the subject; otherwise the claim as it is.

    Example:
        >>> with_pronoun("The bridge was opened in 1903.", "The bridge was built by the city.", random.Random(0))
        'It was opened in 1903.'
    """
    match = _LONG_SUBJECT.match(claim)
    if not match or match[1].lower() not in premise.lower():
        return claim
    if match[2] in ("are", "were", "have"):
        pronoun = "They"
    elif match[1].startswith(("The ", "A ", "An ")):
        pronoun = "It"
    else:
        pronoun = rng.choice(("It", "He", "She"))
    return pronoun + claim[match.end(1) :]


def _voices(text: str) -> list[_Edit]:
    """A passive sentence in the active voice (true), and with agent and patient exchanged (false)."""
    match = _PASSIVE.match(text)
    if not match:
        return []
    patient, be, verb = match["patient"].strip(), match["be"], match["verb"]
    agent = _AFTER_AGENT.split(match["agent"].strip())[0]
    if be not in ("was", "were") or len(agent.split()) >= 7:
        return []
    past = _PAST.get(verb, verb)
    first = agent[0].upper() + agent[1:]
    starts_low = patient.split()[0] in ("The", "A", "It", "He", "She", "This", "They")
    last = patient[0].lower() + patient[1:] if starts_low else patient
    return [
        (f"{first} {past} {last}.", 1, "active"),
        (f"{patient} {past} {agent}.", 0, "active-swap"),
        (f"{first} {be} {verb} by {last}.", 0, "passive-swap"),
    ]


def _other_names(text: str, names: Sequence[str], rng: random.Random) -> list[_Edit]:
    """Two names of the sentence exchanged, and one name replaced by another name of the passage."""
    made: list[_Edit] = []
    inside = [name for name in dict.fromkeys(NAME.findall(text)) if len(name) > 3]
    if len(inside) >= 2:
        one, two = rng.sample(inside, 2)
        made.append((text.replace(one, "\0").replace(two, one).replace("\0", two), 0, "names-swap"))
    others = [name for name in names if name not in text and len(name) > 3]
    if inside and others:
        made.append((text.replace(rng.choice(inside), rng.choice(others)), 0, "name"))
    return made


def _other_numbers(text: str, rng: random.Random) -> list[_Edit]:
    """One number replaced by a number near it."""
    numbers = NUMBER.findall(text)
    if not numbers:
        return []
    number = rng.choice(numbers)
    changed = re.sub(rf"(?<![\w.,-]){re.escape(number)}(?!\w)", _other_number(number, rng), text, count=1)
    return [(changed, 0, "number")]


def _other_number(text: str, rng: random.Random) -> str:
    """A number that differs from the given one, written in the same way."""
    plain = text.replace(",", "")
    if "." in plain:
        whole, decimals = plain.replace(".", ""), len(plain.split(".")[1])
        return f"{float(plain) * rng.choice((0.5, 1.5, 2, 10)):.{decimals}f}" if whole.isdigit() else text + "1"
    value = int(plain)
    if 1000 <= value <= 2030 and "," not in text:
        return str(value + rng.choice((-30, -10, -4, -2, -1, 1, 2, 3, 7, 10, 20)))
    new = value + rng.choice((-2, -1, 1, 2, 3)) if value < 20 else int(value * rng.choice((0.5, 0.9, 1.1, 1.5, 2, 10)))
    new = max(0, new)
    if new == value:
        new += 1
    return f"{new:,}" if "," in text else str(new)


def _exchanged(text: str, rng: random.Random) -> list[_Edit]:
    """Two nouns of the sentence exchanged, and two of its numbers, but never two parts of one list."""
    made: list[_Edit] = []
    for pattern, kind in ((_NOUN, "nouns-swap"), (NUMBER, "numbers-swap")):
        found = [match for match in pattern.finditer(text) if match[0] not in ("of", "and")]
        pairs = [
            (one, two)
            for one, two in itertools.pairwise(found)
            if one[0].lower() != two[0].lower()
            and bool(_YEAR.fullmatch(one[0])) == bool(_YEAR.fullmatch(two[0]))
            and not _LISTED.fullmatch(text[one.end() : two.start()])
        ]
        if pairs:
            one, two = rng.choice(pairs)
            swapped = text[: one.start()] + two[0] + text[one.end() : two.start()] + one[0] + text[two.end() :]
            made.append((swapped, 0, kind))
    return made


def _opposites(text: str, rng: random.Random) -> list[_Edit]:
    """One word replaced by its opposite; if no word has one, "not" after the first auxiliary verb."""
    hits = list(_SWAP.finditer(text))
    if hits:
        hit = rng.choice(hits)
        return [(text[: hit.start()] + rng.choice(SWAPS[hit[1]]) + text[hit.end() :], 0, "antonym")]
    verb = _AUXILIARY.search(text)
    return [(text[: verb.end()] + " not" + text[verb.end() :], 0, "negation")] if verb else []


def _other_subjects(text: str, found: Sequence[str], rng: random.Random) -> list[_Edit]:
    """The subject of the sentence with the predicate of another sentence."""
    other = rng.choice(found)
    if other == text:
        return []
    subject, predicate = _SUBJECT.match(text), _PREDICATE.search(other)
    return [(subject[1] + predicate[0], 0, "subject")] if subject and predicate else []


def _longer_lists(text: str, names: Sequence[str], rng: random.Random) -> list[_Edit]:
    """A list of three items with a name of the passage added."""
    match = _LIST.search(text)
    if not match:
        return []
    one, two, three = match.groups()
    added = f"{one}, {two}, {three} and {rng.choice(names or [three])}"
    return [(text[: match.start()] + added + text[match.end() :], 0, "list")]


def _same_meaning(text: str) -> list[str]:
    """The sentence and true variants of it: without a clause, in another order, or its first part."""
    short = _INNER_CLAUSE.sub("", text, count=1)
    bare = _BRACKETS.sub("", _CONNECTIVE.sub("", text))
    bare = _capital(bare) if bare else text
    made = [claim for claim in dict.fromkeys((short, bare)) if claim != text and len(claim.split()) > 4]
    if match := _OPENING.match(text):
        opening, rest = match.groups()
        made.append(f"{_capital(rest)} {opening[0].lower()}{opening[1:]}.")
    if match := _TWO_CLAUSES.match(text):
        made.append(match[1] + ".")
    if match := _SUBORDINATE.match(text):
        made.append(match[1].rstrip(",") + ".")
    if match := _LIST.search(text):
        one, two, three = match.groups()
        made.append(text[: match.start()] + f"{three}, {one} and {two}" + text[match.end() :])
    return [*made, text]


def _capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _pair(evidence: Evidence, edit: _Edit, rng: random.Random) -> tuple[str, str, int, str]:
    """The claim with a premise of random length."""
    claim, label, kind = edit
    return claim, evidence.premise(claim, rng.choice((20, 30, 45, 60))).text, label, kind
