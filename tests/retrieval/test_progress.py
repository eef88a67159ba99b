from langgraph_convcoa.retrieval import progress
from langgraph_convcoa.retrieval.progress import track


def test_silence(capfd):
    with track(False, 3, "Work") as advance:
        advance(3)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_goes_to_standard_error(capfd):
    with track(True, 3, "Encoding") as advance:
        advance(3)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Encoding" in captured.err
    assert "3/3" in captured.err


def test_nothing_to_do_shows_nothing(capfd):
    calls = []
    with track(True, 0, "Encoding"), track(lambda done, total: calls.append(done), 0, "Encoding"):
        pass
    assert capfd.readouterr().err == ""
    assert calls == []


def test_without_a_terminal_there_is_a_line_every_half_minute(capfd, monkeypatch):
    clock = iter([0.0, 10.0, 31.0, 31.0, 40.0, 62.0, 62.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with monkeypatch.context() as patched:
        patched.setattr("rich.progress.Progress.get_time", lambda _self: 0.0, raising=False)
        with track(True, 400, "Encoding") as advance:
            for _ in range(4):
                advance(50)
    lines = [line for line in capfd.readouterr().err.splitlines() if " left" in line]
    assert lines == ["Encoding: 100 of 400, about 2 min left", "Encoding: 200 of 400, about 62 s left"]
