"""Tests, in the same folders as the package."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""Folder of the repository."""
SHARED = Path(os.environ.get("CONVCOA_SHARED") or ROOT.parent / "shared")
"""Folder of evaluation data outside the repository. Tests that need missing data are skipped."""
