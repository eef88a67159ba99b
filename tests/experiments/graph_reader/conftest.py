"""PyTorch Geometric, imported once: its import calls the deprecated `torch.jit.script`, and warnings are errors in tests."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn  # noqa: F401
