"""A Milvus in a file for a test session, by milvus-lite; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@contextmanager
def milvus_file() -> Iterator[str]:
    """Its URL."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    from milvus_lite.server_manager import server_manager_instance

    with TemporaryDirectory(prefix="convcoa-milvus-") as folder:
        path = Path(folder) / "test.db"
        try:
            yield f"milvus+file://{path}"
        finally:
            server_manager_instance.release_server(str(path))
