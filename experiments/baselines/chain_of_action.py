"""Chain of action: Pan et al. 2024a, "Chain-of-Action: Faithful and Multimodal Question Answering through Large Language
Models", section 2 and algorithm 1, with the one action that searches the corpus.

A single-turn method: the conversation is text in front of the question.
"""

from __future__ import annotations

from langchain_core.documents import Document

from langgraph_convcoa.chain import ActionChain, ActionNode, ChainItem
from langgraph_convcoa.evaluation.methods.prompting import Asking
from langgraph_convcoa.evaluation.records import Outcome
from langgraph_convcoa.reasoning.parsing import parse_chain
from langgraph_convcoa.verification.faith_score import conv_mrfs

ACTION = "Knowledge-encoding"
CHAIN = (
    "Construct an action reasoning chain for the complex [Question] below in JSON format. For each step of the chain the "
    f'action is "{ACTION}" (search existing domain information in a local knowledge base) as the value of the element '
    '"Action"; generate a sub-question, which describes the information that is needed, as the value of the element "Sub". '
    'Also generate an initial answer for each Sub as the value of the element "Guess_answer" if you make sure it is correct. '
    'If you cannot answer a sub-question, make the element "Missing_flag" "True" and leave the guess blank, otherwise make it '
    '"False". Try to generate the final answer for the [Question] from the chain, as the value of the element "Final_answer".'
)
CORRECT = (
    "The answer to a sub-question conflicts with what was retrieved. Answer the [Sub-question] from the [Reference] in one "
    "short sentence, with [n] behind what passage n says, and write only the answer."
)
FINAL = (
    "Here is the corrected reasoning chain for a complex [Question]. Each step has [Sub-question] and [Solved Answer]. Answer "
    "the [Question] starting with [Final Content] through the reasoning chain. Be brief, and leave [n] behind what passage n "
    "says."
)
_FINAL_MARK = "[Final Content]"
_EXAMPLE = (
    '{"Question": "Is it good to invest in Bitcoin now?", "Chain": [{"Action": "Knowledge-encoding", "Sub": "What is '
    'Bitcoin?", "Guess_answer": "Bitcoin is one of the cryptocurrencies.", "Missing_flag": "False"}, {"Action": '
    '"Knowledge-encoding", "Sub": "What is the recent price trend of Bitcoin?", "Guess_answer": "", "Missing_flag": "True"}], '
    '"Final_answer": ""}'
)


async def chain_of_action(asking: Asking) -> Outcome:
    """Chain, verify, answer: 2 model calls, and 1 for each guess whose plain MRFS is not above T = 0.75.

    A missing guess is filled with the best passage, without a call. Three replies are malformed: an empty correction (the best
    passage is used), an unreadable chain (the question is its only step), and a final answer without its mark (it is taken as
    it is).
    """
    question, most = asking.question, asking.kit.settings.max_sub_questions
    reply = await asking.reply(f"{CHAIN}\n\nFor example: {_EXAMPLE}\n\n{asking.context}[Question]: {question}")
    chain = parse_chain(reply, question=question, actions=[ACTION], max_sub_questions=most)
    asking.malformed += chain is None
    if chain is None or not chain.nodes:
        chain = ActionChain.single(question, ACTION)
    solved = [await _solved(asking, node) for node in chain.nodes]
    steps = "\n".join(
        f"[Sub-question {n}]: {item['sub_question']}\n[Solved Answer {n}]: {item['answer'] or '(unknown)'}{mark}"
        for n, (item, mark) in enumerate(solved, 1)
    )
    text = await asking.reply(f"{FINAL}\n\n{asking.context}[Question]: {question}\n{steps}")
    asking.malformed += _FINAL_MARK not in text
    return asking.outcome(text.rsplit(_FINAL_MARK, 1)[-1].strip(" :\n"), [item for item, _ in solved])


async def _solved(asking: Asking, node: ActionNode) -> tuple[ChainItem, str]:
    """Retrieve for a node, and verify, correct or fill its guess. Returns the item and the mark of its passage."""
    guess = "" if node.is_missing else node.guess_answer
    documents = await asking.search(node.sub_question, guess)
    item: ChainItem = {
        "action": ACTION,
        "sub_question": node.sub_question,
        "guess_answer": guess,
        "action_input": "",
        "answer": "",
        "status": "unsupported",
        "score": 0.0,
        "reason": "no evidence was found",
        "evidence": [str(document.id) for document in documents],
    }
    if not documents:
        return item, ""
    first = f" [{asking.number(documents[0])}]"
    if not guess:
        return item | {"answer": _text(documents[0]), "status": "filled", "reason": "the best passage"}, first
    verdict = conv_mrfs(guess, documents)
    item |= {"score": verdict.score, "reason": f"score {verdict.score:.2f}, threshold {verdict.threshold:.2f}"}
    if verdict.faithful:
        holds = (f" [{asking.number(document)}]" for document in documents if verdict.quote in document.page_content)
        return item | {"answer": guess, "status": "kept"}, next(holds, first)
    asked = f"[Sub-question]: {node.sub_question}\n[Answer]: {guess}\n[Reference]:\n{asking.shown(documents)}"
    corrected = await asking.reply(f"{CORRECT}\n\n{asked}")
    asking.malformed += not corrected
    item |= {"answer": corrected or _text(documents[0]), "status": "corrected"}
    return item, "" if corrected else first


def _text(document: Document) -> str:
    return " ".join(document.page_content.split())
