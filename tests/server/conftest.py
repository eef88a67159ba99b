"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("python_multipart")

from tests.server.served import Served, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """On loopback, for whoever asks."""
    with served(tmp_path_factory.mktemp("server")) as found:
        yield found
