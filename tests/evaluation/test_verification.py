from __future__ import annotations

import json

import pytest

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim, packaged_claims, read_claims
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification import evaluate_verification

EVIDENCE = (("Bridge", "The bridge opened in 1894. It fell in 1907."),)
CLAIMS = [
    LabelledClaim("The bridge opened in 1894.", EVIDENCE, True, "numbers"),
    LabelledClaim("The bridge opened in 1907 and cost 5 million.", EVIDENCE, False, "numbers"),
    LabelledClaim("The bridge fell in 1907.", EVIDENCE, True, "order"),
    LabelledClaim("The bridge fell in 1894.", EVIDENCE, False, "order"),
]


class Knows:
    name = "knows"
    threshold = 0.5

    def support(self, claims, premises):
        return [0.95 if any(c.claim == claim and c.supported for c in CLAIMS) else 0.05 for claim in claims]


def test_a_verifier_that_is_right_accepts_the_true_claims_alone():
    (row,) = evaluate_verification(CLAIMS, [Knows()]).rows
    assert (row.auc, row.all.true_accepted, row.all.false_accepted) == (1, 1, 0)
    assert [(kind.kind, kind.true, kind.false, kind.false_accepted) for kind in row.kinds] == [
        ("numbers", 1, 1, 0),
        ("order", 1, 1, 0),
    ]
    assert [bin_[0] for bin_ in row.calibration] == [2, 0, 0, 0, 2]
    assert row.calibration[0][2] == 0
    assert row.calibration[4][2] == 1


def test_the_rules_and_the_words_are_measured_side_by_side():
    report = evaluate_verification(CLAIMS)
    assert [row.verifier for row in report.rows] == ["default", "lexical"]
    assert len(report.tables()) == 4
    assert json.loads(json.dumps(report.to_dict()))["rows"][0]["all"]["true"] == 2


def test_claims_of_one_label_measure_nothing():
    with pytest.raises(InputError, match="only one of them"):
        evaluate_verification(CLAIMS[:1])


def test_the_claims_of_the_package_are_of_passages_apart_and_half_true():
    train, test = (packaged_claims(part) for part in ("train", "test"))
    assert (len(train), len(test)) == (29_179, 622)
    assert not {claim.evidence for claim in train} & {claim.evidence for claim in test}
    for part in (train, test):
        assert 0.45 < sum(claim.supported for claim in part) / len(part) < 0.55
        assert all(claim.claim.strip() and claim.evidence[0][1].strip() for claim in part)
    with pytest.raises(InputError, match="train, test"):
        packaged_claims("dev")


def test_labelled_sets_are_read_too(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [{"claim": "a b", "evidence": ["x", "y"], "label": 2}, {"claim": "c", "evidence": ["x"], "label": 1}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert [(c.claim, len(c.evidence), c.supported) for c in read_claims(file)] == [("a b", 2, True), ("c", 1, False)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"claim": "a", "evidence": ["x"]}, "`label` must be"),
        ({"claim": "a", "evidence": ["x"], "label": True}, "`label` must be"),
        ({"claim": " ", "evidence": ["x"], "label": 2}, "`claim` must be"),
        ({"title": "t", "text": "x", "claims": 3}, "`claims` must be a list"),
        ({"title": "t", "text": "x", "claims": [{"claim": "a"}]}, "`supported` of a claim"),
        ({"text": "", "claims": []}, "`text` must be"),
        ({"response": "a", "passages": ["x"], "faithfulness": 4}, "answers that people rated .* experiments.ratings"),
    ],
)
def test_a_row_that_is_wrong_is_named(tmp_path, row, message):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(InputError, match=f"line 1: {message}"):
        list(read_claims(file))


def test_the_command_prints_the_shares(tmp_path, cli):
    file = tmp_path / "rows.jsonl"
    row = {"title": "Bridge", "text": EVIDENCE[0][1]}
    row["claims"] = [{"claim": c.claim, "supported": c.supported, "kind": c.kind} for c in CLAIMS]
    file.write_text(json.dumps(row))
    done = cli("evaluate", "verification", file, "--json", "--verifiers", "lexical,default")
    assert [found["verifier"] for found in json.loads(done.stdout)["rows"]] == ["lexical", "default"]
    cli("evaluate", "verification", tmp_path / "missing.jsonl", code=2)
