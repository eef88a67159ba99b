import copy
import inspect
import io
import math

import pytest
import torch
from safetensors.torch import load, save

from langgraph_convcoa.hopfield.functional import retrieve
from langgraph_convcoa.hopfield.layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
from tests.hopfield import plain_loops

NAMES = ["sparsemax", "entmax15", "softmax"]
BATCH, M, N, DIM, STORED = 3, 2, 5, 4, 3
BETAS = torch.tensor([0.5, 30.0], dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer(seed=0, **dynamics):
    """Two heads of three dimensions, between queries of four and stored patterns of three."""
    torch.manual_seed(seed)
    return SparseHopfield(DIM, STORED, 6, **{"heads": 2, "beta": BETAS, "eps": 0.0} | dynamics).double()


def rows(linear):
    return linear.weight.detach().T.tolist()


def by_loops(module, query, stored, betas, steps=1, allowed=None):
    output = [
        plain_loops.layer(
            plain_loops.product(q.tolist(), rows(module.query)),
            plain_loops.product(y.tolist(), rows(module.key)),
            rows(module.value),
            betas=betas,
            activation=module.activation,
            steps=steps,
            allowed=None if allowed is None else allowed[i].tolist(),
        )
        for i, (q, y) in enumerate(zip(query, stored, strict=True))
    ]
    return torch.tensor(output, dtype=torch.float64)


QUERY, PATTERNS = normal(BATCH, M, DIM), normal(BATCH, N, STORED, seed=1)
PAIRS = torch.rand(BATCH, M, N, generator=torch.Generator().manual_seed(2)) < 0.6
PAIRS[1, 0] = False


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [1, 3])
def test_equals_plain_loops(name, steps):
    module = layer(activation=name, update_steps=steps)
    expected = by_loops(module, QUERY, PATTERNS, BETAS.tolist(), steps, PAIRS)
    torch.testing.assert_close(module(QUERY, PATTERNS, pair_mask=PAIRS), expected, atol=1e-9, rtol=0)


def test_each_head_has_its_own_beta_in_every_batch_entry():
    """A beta tiled over (batch, head) in the wrong order gives a head the other's beta in some entries."""
    module = layer()
    expected = by_loops(module, QUERY, PATTERNS, BETAS.tolist())
    torch.testing.assert_close(module(QUERY, PATTERNS), expected, atol=1e-9, rtol=0)
    tiled = BETAS.repeat_interleave(BATCH).view(BATCH, 2)
    wrong = torch.stack([by_loops(module, QUERY[[i]], PATTERNS[[i]], tiled[i].tolist())[0] for i in range(BATCH)])
    assert not torch.allclose(wrong, expected, atol=1e-3)
    # And a head's weights move with its own beta alone.
    with torch.no_grad():
        before = module.association(QUERY, PATTERNS)
        module.fixed_beta[0] = 1.1
        after = module.association(QUERY, PATTERNS)
    assert torch.equal(before[:, 1], after[:, 1])
    assert (before[:, 0] != after[:, 0]).any(dim=-1).all()


def test_sparsemax_is_sparse_and_never_calls_softmax(monkeypatch):
    """A `mode='sparsemax'` that still goes through softmax gives every pattern weight."""

    def refuse(*_, **__):
        raise AssertionError("softmax was called")

    for owner in (torch, torch.Tensor, torch.nn.functional):
        monkeypatch.setattr(owner, "softmax", refuse)
    module = layer(activation="sparsemax", update_steps=2)
    weights = module.association(QUERY, PATTERNS)
    assert (weights[:, 1] == 0).any(dim=-1).all()
    module(QUERY, PATTERNS)
    with pytest.raises(AssertionError, match="softmax was called"):
        layer(activation="softmax")(QUERY, PATTERNS)


@pytest.mark.parametrize("name", NAMES)
def test_steps_before_the_last_know_nothing_of_the_value_weights(name):
    """Feeding V-projected output back as the query would make the weights depend on W_V, and Z more than linear in it."""
    # All dimensions are one, so that the projected output would fit as a query.
    torch.manual_seed(0)
    module = SparseHopfield(6, heads=2, activation=name, beta=2.0, update_steps=3, eps=0.0).double()
    query, stored = normal(BATCH, M, 6), normal(BATCH, N, 6, seed=1)
    weights, output = module.association(query, stored), module(query, stored)
    torch.testing.assert_close(output, by_loops(module, query, stored, [2.0, 2.0], steps=3), atol=1e-9, rtol=0)
    with torch.no_grad():
        module.value.weight.mul_(-2.5)
    assert torch.equal(module.association(query, stored), weights)
    torch.testing.assert_close(module(query, stored), -2.5 * output)
    module.update_steps = 1
    assert not torch.allclose(module(query, stored), -2.5 * output, atol=1e-3)


def test_with_the_identity_for_value_several_steps_are_memory_retrieval_in_the_association_space():
    module = SparseHopfield(4, beta=1.3, update_steps=5, eps=0.0).double()
    with torch.no_grad():
        torch.nn.init.eye_(module.value.weight)
        stored = normal(N, 4, seed=5)
        expected = retrieve(module.query(QUERY), module.key(stored), beta=1.3, update_steps=5, eps=0.0).state
        torch.testing.assert_close(module(QUERY, stored), expected)


def test_identity_weights_are_memory_retrieval():
    stored = normal(BATCH, N, DIM, seed=1)
    for beta in (0.0, 3.0, math.inf):
        module = SparseHopfield(DIM, beta=beta).double().identity_()
        torch.testing.assert_close(module(QUERY, stored), retrieve(QUERY, stored, beta=beta).state)
    with pytest.raises(ValueError, match="equal"):
        layer().identity_()


def test_the_order_of_the_patterns_does_not_matter_and_that_of_the_queries_is_kept():
    module, order, turned = layer(update_steps=2), [3, 1, 4, 0, 2], [1, 0]
    output = module(QUERY, PATTERNS, pair_mask=PAIRS)
    permuted = module(QUERY[:, turned], PATTERNS[:, order], pair_mask=PAIRS[:, turned][:, :, order])
    torch.testing.assert_close(permuted, output[:, turned])


@pytest.mark.parametrize("name", NAMES)
def test_a_padded_batch_equals_each_entry_by_itself(name):
    module = layer(activation=name, update_steps=2)
    lengths = [5, 2, 0]
    mask = torch.arange(N) < torch.tensor(lengths).view(-1, 1)
    padded = PATTERNS.masked_fill(~mask.unsqueeze(-1), 7.0)
    output = module(QUERY, padded, stored_mask=mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(output[i], module(QUERY[i], PATTERNS[i, :length]))
    assert (output[2] == 0).all()
    assert torch.equal(module(QUERY, padded, stored_mask=mask.long()), output)
    empty = module(QUERY, PATTERNS[:, :0], stored_mask=mask[:, :0], pair_mask=PAIRS[:, :, :0])
    assert empty.shape == (BATCH, M, DIM)
    assert (empty == 0).all()


def test_both_masks_hold_together():
    module = layer()
    stored_mask = torch.tensor([True, False, True, True, False])
    both = module(QUERY, PATTERNS, stored_mask=stored_mask, pair_mask=PAIRS[0])
    torch.testing.assert_close(both, module(QUERY, PATTERNS, pair_mask=PAIRS[0] & stored_mask))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [1, 2])
def test_gradients(name, steps):
    module = layer(activation=name, beta=torch.tensor([0.4, 2.0]), learn_beta=True, update_steps=steps)
    parameters = dict(module.named_parameters())
    assert "log_beta" in parameters

    def run(query, stored, *values):
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(module, named, (query, stored), {"pair_mask": PAIRS[:2]})

    inputs = [x[:2].clone().requires_grad_() for x in (QUERY, PATTERNS)]
    assert torch.autograd.gradcheck(run, (*inputs, *parameters.values()))


def configurations(**dynamics):
    torch.manual_seed(1)
    dynamics = {"heads": 2} | dynamics
    return [
        (SparseHopfield(DIM, STORED, 6, **dynamics).double(), (QUERY, PATTERNS)),
        (SparseHopfieldPooling(STORED, 2, 6, **dynamics).double(), (PATTERNS,)),
        (SparseHopfieldLayer(DIM, N, 6, **dynamics).double(), (QUERY,)),
    ]


def test_gradients_of_pooling_and_layer():
    for module, inputs in configurations(beta=1.0, learn_beta=True)[1:]:
        parameters = dict(module.named_parameters())

        def run(given, *values, module=module, names=tuple(parameters)):
            return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (given,), {"pair_mask": PAIRS})

        assert torch.autograd.gradcheck(run, (inputs[0].clone().requires_grad_(), *parameters.values()))


def test_pooling_is_the_core_with_learned_queries():
    module = SparseHopfieldPooling(STORED, 2, 6, heads=2, beta=BETAS).double()
    expected = [
        plain_loops.layer(
            module.prototypes.tolist(),
            plain_loops.product(y.tolist(), rows(module.key)),
            rows(module.value),
            betas=BETAS.tolist(),
            activation="sparsemax",
        )
        for y in PATTERNS
    ]
    torch.testing.assert_close(module(PATTERNS), torch.tensor(expected, dtype=torch.float64))


def test_the_layer_is_the_core_with_learned_stored_patterns():
    """Y is the identity, so the key weights of a SparseHopfield on it are the stored patterns."""
    module = SparseHopfieldLayer(DIM, N, 6, heads=2, beta=BETAS).double()
    general = SparseHopfield(DIM, N, 6, heads=2, beta=BETAS).double()
    with torch.no_grad():
        general.query.weight.copy_(module.query.weight)
        general.value.weight.copy_(module.value.weight)
        general.key.weight.copy_(module.patterns.T)
    torch.testing.assert_close(module(QUERY), general(QUERY, torch.eye(N, dtype=torch.float64)))


def test_inputs_without_a_batch():
    for module, inputs in configurations():
        torch.testing.assert_close(module(*(x[1] for x in inputs)), module(*inputs)[1])


def test_a_memory_or_a_query_for_all_of_the_batch():
    module = layer(update_steps=2)
    torch.testing.assert_close(module(QUERY, PATTERNS[0]), module(QUERY, PATTERNS[0].expand(BATCH, -1, -1)))
    torch.testing.assert_close(module(QUERY[0], PATTERNS), module(QUERY[0].expand(BATCH, -1, -1), PATTERNS))


@pytest.mark.parametrize("learn", [True, False])
def test_weights_travel_through_safetensors(learn):
    for (one, inputs), (other, _) in zip(
        configurations(learn_beta=learn, beta=BETAS), configurations(learn_beta=learn), strict=True
    ):
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(0.1)
        assert not torch.allclose(one(*inputs), other(*inputs))
        other.load_state_dict(load(save({name: value.contiguous() for name, value in one.state_dict().items()})))
        assert torch.equal(one(*inputs), other(*inputs))
        torch.testing.assert_close(other.beta, BETAS)
        buffer = io.BytesIO()
        torch.save(one.state_dict(), buffer)
        buffer.seek(0)
        assert torch.load(buffer, weights_only=True).keys() == one.state_dict().keys()


def test_what_is_learned_is_what_was_asked_for():
    names = [sorted(name for name, _ in module.named_parameters()) for module, _ in configurations()]
    assert names == [
        ["key.weight", "query.weight", "value.weight"],
        ["key.weight", "prototypes", "value.weight"],
        ["patterns", "query.weight", "value.weight"],
    ]
    learned = SparseHopfield(4, heads=2, learn_beta=True)
    assert learned.log_beta.shape == (2,)
    torch.testing.assert_close(learned.beta, torch.full((2,), 2**-0.5))
    assert not any(isinstance(part, torch.nn.LayerNorm) for module, _ in configurations() for part in module.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_type_and_device_go_where_they_are_sent(dtype):
    for module, inputs in configurations(learn_beta=True, update_steps=2):
        output = copy.deepcopy(module).to(dtype)(*(x.to(dtype) for x in inputs))
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), module(*inputs), atol=0.1 if dtype == torch.bfloat16 else 1e-4, rtol=0)
    with torch.device("meta"):
        assert {tensor.device.type for tensor in SparseHopfield(4).state_dict().values()} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_what_the_cpu_gives(name):
    for module, inputs in configurations(activation=name, beta=BETAS, learn_beta=True, update_steps=3):
        there = copy.deepcopy(module).cuda()(*(x.cuda() for x in inputs), pair_mask=PAIRS.cuda()).cpu()
        torch.testing.assert_close(there, module(*inputs, pair_mask=PAIRS))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "softmax"])
def test_training_finds_the_pattern_that_is_asked_for(name):
    """Each query carries the key of one stored pattern and must return that pattern's content."""
    torch.manual_seed(0)
    keys, content = torch.eye(6), torch.randn(20, 6, 4)
    stored = torch.cat([keys.expand(20, 6, 6), content], dim=-1)
    query = torch.cat([keys.expand(20, 6, 6), torch.zeros(20, 6, 4)], dim=-1)
    module = SparseHopfield(10, heads=2, activation=name, learn_beta=True)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    losses = []
    for _ in range(150):
        loss = (module(query, stored)[..., 6:] - content).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, "heads must divide"),
        ({"heads": 0}, "heads must divide"),
        ({"update_steps": 0}, "update_steps must be 1"),
        ({"eps": -1.0}, "eps 0 or more"),
        ({"activation": "sparse"}, "Unknown activation"),
        ({"beta": -1.0}, "beta must be from 0"),
        ({"beta": torch.ones(3)}, "beta must be a number or a tensor"),
        ({"beta": math.inf, "learn_beta": True}, "begin above 0"),
    ],
)
def test_settings_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        SparseHopfield(4, **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer()(QUERY, QUERY), "stored must be"),
        (lambda: layer()(QUERY[0, 0], PATTERNS), "query must be"),
        (lambda: layer()(QUERY[:2], PATTERNS), "batch of 2"),
        (lambda: layer()(QUERY, PATTERNS, stored_mask=torch.ones(N)), "stored_mask must be boolean"),
        (lambda: layer()(QUERY, PATTERNS, stored_mask=torch.ones(N + 1).bool()), "stored_mask must be"),
        (lambda: layer()(QUERY, PATTERNS, pair_mask=torch.ones(N, M).bool()), "pair_mask must be"),
        (lambda: SparseHopfieldPooling(4, 0), "prototypes must be"),
        (lambda: SparseHopfieldLayer(4, 0), "patterns must be"),
    ],
)
def test_inputs_that_do_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_few_arguments():
    for configuration in (SparseHopfield, SparseHopfieldPooling, SparseHopfieldLayer):
        named = [p for p in inspect.signature(configuration).parameters.values() if p.kind is not p.VAR_KEYWORD]
        assert len(named) <= 3
