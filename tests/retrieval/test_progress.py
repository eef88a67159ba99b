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
