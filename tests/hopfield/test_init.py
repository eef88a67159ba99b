import torch

import langgraph_convcoa.hopfield as hopfield


def test_the_names_that_are_handed_on_are_there():
    assert len(hopfield.__all__) <= 15
    assert all(callable(getattr(hopfield, name)) for name in hopfield.__all__)
    assert hopfield.SparseHopfieldLayer(8, patterns=3)(torch.zeros(2, 4, 8)).shape == (2, 4, 8)
    torch.testing.assert_close(hopfield.sparsemax(torch.tensor([1.0, 0.5, -0.5])), torch.tensor([0.75, 0.25, 0.0]))
