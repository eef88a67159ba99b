"""What a command says while it encodes documents."""

from __future__ import annotations

import pytest

from langgraph_convcoa.cli import documents


@pytest.mark.parametrize(("each", "advised"), [(5.0, True), (0.05, False)])
def test_a_long_encoding_says_how_to_do_it_once(
    each: float, advised: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(documents.time, "monotonic", lambda: clock[0])
    with documents._encoding("papers") as report:
        assert callable(report)
        for done in range(1, 101):
            report(done, 100)
            clock[0] += each
    said = capsys.readouterr().err
    assert said.count("convcoa index papers --out DIR") == advised
    assert "100/100" in said


def test_an_encoding_that_fails_leaves_no_bar_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), documents._encoding("papers") as report:
        assert callable(report)
        report(1, 3)
        raise ZeroDivisionError
    with documents._encoding("papers") as report:
        assert callable(report)
        report(3, 3)
    assert "3/3" in capsys.readouterr().err
