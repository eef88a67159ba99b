"""The tests, in the rooms of the package."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository."""
SHARED = Path(os.environ.get("CONVCOA_SHARED") or ROOT.parent / "shared")
"""Evaluation data that is not part of the repository; tests that use it are skipped without it."""
