"""Random queries and stored patterns, of length one or not."""

from __future__ import annotations

import torch
from hypothesis import strategies as st


@st.composite
def memories(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries (m, d) and stored patterns (n, d)."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    m, n, d = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(1, 8))
    scale = draw(st.sampled_from([0.1, 1.0, 3.0]))
    query, stored = (scale * torch.randn(rows, d, generator=generator, dtype=torch.float64) for rows in (m, n))
    return query, stored
