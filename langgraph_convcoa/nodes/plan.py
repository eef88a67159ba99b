"""The node `plan`: one model call that answers from what was found, or says what is to be looked up."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.memory.recall import RecalledAnswer, recall_answers
from langgraph_convcoa.nodes.drafts import SentenceGate
from langgraph_convcoa.nodes.review import ANSWER, PLAN
from langgraph_convcoa.nodes.runtime import LOOKED, Call, Steps, TurnRuntime, emit, evidence_of
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.state import ConvCoAState, Finding, Plan, PlannedNode, pairs_of
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.same_question import words_agree
from langgraph_convcoa.text.words import content_words


def plan(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call; the sentences of an answer are shown as they are verified."""
    settings, reasoner = turn.settings(), turn.reasoner("plan")
    evidence = evidence_of(state["findings"]).documents
    shows = evidence and settings.allow_draft_answer and not {PLAN, ANSWER} & {*state["approve"]}
    gate = SentenceGate(lambda: turn.checker(state)) if shows else None
    request = PlanRequest(
        question=state["asked"],
        actions=turn.actions.descriptions(),
        history=pairs_of(state),
        knowledge=state["knowledge_view"],
        max_sub_questions=settings.max_sub_questions,
        language=settings.language,
        evidence=evidence,
        recognised=turn.actions.recognised(state["asked"], pairs_of(state)),
        gate=gate,
    )
    chain = yield Call(reasoner.plan, reasoner.aplan, (request, config))
    made = _plan_of(chain)
    questions = [node["sub_question"] for node in made["nodes"]]
    emit({"type": "plan", "optimized_question": made["optimized_question"], "sub_questions": questions})
    shown = {} if gate is None else {"shown": gate.shown, "final_message_id": gate.message_id}
    return {"plan": made, "recalled": recall_plan(turn, state, made), **shown}


def after_plan(turn: TurnRuntime, state: ConvCoAState) -> list[Send] | str:
    """One branch a sub-question that is neither recalled nor looked up already; an empty chain needs no more than one look."""
    made = state["plan"]
    if not made["nodes"]:
        if any(finding["index"] == LOOKED for finding in state["findings"]):
            return "verify"
        single = _plan_of(ActionChain.single(made["optimized_question"], next(iter(turn.actions.actions))))
        return [turn.send(state, LOOKED, single["nodes"][0])]
    known = {entry["index"] for entry in (*still_recalled(state), *state["findings"], *looked_up(turn, state))}
    sends = [turn.send(state, index, node) for index, node in enumerate(made["nodes"]) if index not in known]
    # An empty list of branches would end the graph without an answer.
    return sends or "verify"


def _plan_of(chain: ActionChain) -> Plan:
    return {
        "optimized_question": cut_field(chain.optimized_question),
        "draft_answer": cut_answer(chain.draft_answer),
        "self_contained": chain.self_contained,
        "nodes": [
            {
                "action": node.action,
                "sub_question": cut_field(node.sub_question),
                "guess_answer": "" if node.is_missing else cut_field(node.guess_answer),
                "action_input": cut_field(node.action_input),
            }
            for node in chain.nodes
        ],
    }


def looked_up(turn: TurnRuntime, state: ConvCoAState) -> list[Finding]:
    """A sub-question that repeats the question has been looked up: its action found what it would find again."""
    looked = [finding for finding in state["findings"] if finding["index"] == LOOKED and finding["documents"]]
    if len(looked) != 1:
        return []
    asked = sorted(content_words(state["asked"]))

    def repeats(node: PlannedNode) -> bool:
        return (
            node["action"] == looked[0].get("action")
            and not node["guess_answer"]
            and sorted(content_words(node["sub_question"])) == asked
        )

    repeated = [index for index, node in enumerate(state["plan"]["nodes"]) if repeats(node)]
    return [{**looked[0], "index": index, "depth": 1, "seconds": 0.0} for index in repeated]


def still_recalled(state: ConvCoAState) -> list[RecalledAnswer]:
    """The recalled answers whose sub-questions still stand in the plan, which a person may have edited."""
    nodes = state["plan"]["nodes"]
    return [
        answer
        for answer in state["recalled"]
        if answer["index"] < len(nodes) and words_agree(answer["sub_question"], nodes[answer["index"]]["sub_question"])
    ]


def recall_plan(turn: TurnRuntime, state: ConvCoAState, made: Plan) -> list[RecalledAnswer]:
    """The sub-questions of a plan that need no look-up: an earlier round answered them.

    An action that sets `always_fresh` is asked every time. A sub-question that needs the conversation to be understood means
    another thing in another place.
    """
    settings = turn.settings()
    if not settings.recall_answers or not made["self_contained"]:
        return []
    asked = [
        (index, node["action"], node["sub_question"])
        for index, node in enumerate(made["nodes"])
        if not turn.actions.always_fresh(node["action"])
    ]
    rounds = ContextualKnowledgeSet.load(state.get("knowledge_set")).after(state.get("shared") or []).rounds
    return recall_answers(
        asked,
        rounds[-settings.memory_capacity :],
        state.get("evidence_memory") or [],
        turn.memory.vectors,
        max_age=settings.recall_max_age,
    )
