"""Methods that ask the language model alone, from few-shot prompting to the tree of thoughts."""

from __future__ import annotations

import re
from collections import Counter

from experiments.baselines.replies import concluded, last_line, samples, short_answer, short_reply
from experiments.baselines.worked import WORKED
from langgraph_convcoa.evaluation.methods.prompting import Asking
from langgraph_convcoa.evaluation.records import Outcome

FEW_SHOT = "Answer the last question in the way of the examples before it. Write only the answer."
CHAIN_OF_THOUGHT = 'Reason about the question, then end with "So the answer is:" and the answer, as short as it can be.'
DECOMPOSE = "Which simpler questions must be answered first to answer the last question? List them in order, numbered."
SOLVE = "Answer the last question; use the answers before it. Be brief, and write only the answer."
PLAN = "Write a short plan for the question: which facts are needed, and how the answer follows. Do not answer it yet."
CARRY_OUT = 'Carry out the plan, then end with "So the answer is:" and the answer to the question, as short as it can be.'
VOTE = (
    "Here are a question and several choices for it. Weigh each choice, then conclude in the last line with "
    '"The best choice is s", where s is the number of the most promising one.'
)
_TRIGGER = "Let's think step by step."
_ITEM = re.compile(r"^\s*(?:\d+\s*[.):]|[-*•])\s*(\S.*)$")
_BEST = re.compile(r"best choice is\D*(\d+)", re.IGNORECASE)


async def few_shot(asking: Asking) -> Outcome:
    """Few-shot prompting (Brown et al. 2020, section 2), with three general examples: 1 model call."""
    shown = "\n\n".join(f"Question: {worked.question}\nAnswer: {worked.answer}" for worked in WORKED)
    return asking.outcome(
        await short_reply(asking, f"{FEW_SHOT}\n\n{shown}\n\n{asking.context}Question: {asking.question}\nAnswer:")
    )


async def chain_of_thought(asking: Asking) -> Outcome:
    """Chain of thought (Wei et al. 2022, section 2): 1 model call.

    The trigger of Kojima et al. 2022, section 3, asks for the reasoning. They make two calls; here one reply has the reasoning
    and the answer. A reply without "the answer is" is malformed.
    """
    return concluded(asking, await asking.reply(_thought_prompt(asking)))


async def self_consistency(asking: Asking) -> Outcome:
    """Self-consistency (Wang et al. 2022, section 2): the most frequent answer of chains of thought; 1 call a sample.

    A chain without "the answer is" is malformed and has no vote. If all chains are, the last line of the first one counts.
    """
    replies = await samples(asking, _thought_prompt(asking))
    answers = [found for found in map(short_answer, replies) if found is not None]
    asking.malformed += len(replies) - len(answers)
    return asking.outcome(majority(answers) or last_line(replies[0]))


async def least_to_most(asking: Asking) -> Outcome:
    """Least-to-most prompting (Zhou et al. 2022, section 2): n + 2 model calls for n sub-problems, the question itself last.

    A decomposition without a list is malformed, and the question is solved at once. An empty answer is malformed too.
    """
    steps = "\n".join(f"{n}. {question}" for n, (question, _) in enumerate(WORKED[0].steps, 1))
    shown = f"Question: {WORKED[0].question}\n{steps}"
    reply = await asking.reply(f"{DECOMPOSE}\n\n{shown}\n\n{asking.context}Question: {asking.question}\n")
    problems = listed(reply)[: asking.kit.max_steps]
    asking.malformed += not problems
    solved, found = "", ""
    for problem in [*problems, asking.question]:
        found = await short_reply(asking, f"{SOLVE}\n\n{asking.context}{solved}Question: {problem}\nAnswer:")
        solved += f"Question: {problem}\nAnswer: {found}\n"
    return asking.outcome(found)


async def tree_of_thoughts(asking: Asking) -> Outcome:
    """Tree of thoughts (Yao et al. 2023, algorithm 1 in the form of section 4.2): 4 model calls a sample.

    Two levels: k plans, then k answers. At each level votes keep the best one (b = 1). A vote that names no choice is
    malformed and does not count. An answer without "the answer is" is malformed too.
    """
    question = f"{asking.context}Question: {asking.question}"
    plan = await _best(asking, question, f"{PLAN}\n\n{question}\nPlan:")
    return concluded(asking, await _best(asking, question, f"{CARRY_OUT}\n\n{question}\nPlan: {plan}\nAnswer:"))


def majority(answers: list[str]) -> str:
    """The most frequent answer in its first wording (the first, if several are equally frequent); "" without answers."""
    votes = Counter(map(_plain, answers))
    return max(answers, key=lambda answer: votes[_plain(answer)], default="")


def listed(text: str) -> list[str]:
    r"""The items of a list."""
    return [found.group(1).strip() for line in text.splitlines() if (found := _ITEM.match(line))]


def _thought_prompt(asking: Asking) -> str:
    """The prompt for a chain of thought, with its trigger."""
    return f"{CHAIN_OF_THOUGHT}\n\n{asking.context}Q: {asking.question}\nA: {_TRIGGER}"


async def _best(asking: Asking, question: str, prompt: str) -> str:
    """One level of the tree: draw thoughts, then votes on them, and keep the best thought."""
    thoughts = await samples(asking, prompt)
    choices = "\n\n".join(f"Choice {n}:\n{thought}" for n, thought in enumerate(thoughts, 1))
    votes: Counter[int] = Counter()
    for reply in await samples(asking, f"{VOTE}\n\n{question}\n\n{choices}"):
        found = _BEST.search(reply)
        if found and 1 <= int(found.group(1)) <= len(thoughts):
            votes[int(found.group(1)) - 1] += 1
        else:
            asking.malformed += 1
    return max(enumerate(thoughts), key=lambda numbered: votes[numbered[0]])[1]


def _plain(answer: str) -> str:
    """An answer as it is compared: lower case, without punctuation and articles."""
    return " ".join(word for word in re.findall(r"\w+", answer.lower()) if word not in ("a", "an", "the"))
