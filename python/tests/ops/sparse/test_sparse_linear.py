"""A sparse layer reads its weight as it is now, whatever became of its parts, and refuses what does not fit."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from torch.nn.utils import parametrize

from warplap.nn import SparseLinear

MASK = torch.tensor([[True, False, True], [False, True, False]])


def layer(mask=MASK, bias=True):
    return SparseLinear.from_dense(torch.nn.Linear(24, 16, bias), mask, 8)


def is_right(sparse, x):
    dense = sparse.to_dense()
    with torch.no_grad():
        return near(sparse(x), dense(x))


@pytest.mark.parametrize("bias", [True, False])
def test_rows_of_any_number_and_shape_are_right(bias):
    sparse = layer(bias=bias)
    for rows in (1, 3, 3, 70):
        assert is_right(sparse, torch.randn(rows, 24)) and is_right(sparse, torch.randn(rows, 2, 24))
    sparse(torch.randn(3, 24)).sum().backward()


def test_values_that_an_optimizer_writes_are_read():
    sparse, x = layer(), torch.randn(3, 24)
    is_right(sparse, x)
    with torch.no_grad():
        sparse.values.mul_(3)
        sparse.bias.add_(1)
    assert is_right(sparse, x)


def test_other_parts_are_looked_at_again():
    sparse, x = layer(), torch.randn(3, 24)
    is_right(sparse, x)
    other = layer(torch.tensor([[False, True, False], [True, False, True]]))
    sparse.load_state_dict(other.state_dict())  # writes into the same indices
    assert is_right(sparse, x)
    sparse.values.data = sparse.values.data.clone().mul_(2)
    assert is_right(sparse, x)
    sparse.load_state_dict(layer().state_dict(), assign=True)
    assert is_right(sparse, x)
    sparse.to(torch.bfloat16)
    assert is_right(sparse, x.to(torch.bfloat16))


def test_copies_and_kept_layers_know_nothing_of_the_first():
    sparse, x = layer(), torch.randn(3, 24)
    is_right(sparse, x)
    twin = copy.deepcopy(sparse)
    with torch.no_grad():
        sparse.values.zero_()
    assert is_right(twin, x) and is_right(sparse, x) and twin.values.abs().sum() > 0
    kept = io.BytesIO()
    torch.save(twin, kept)
    kept.seek(0)
    assert is_right(torch.load(kept, weights_only=False), x)


def test_gradients_are_those_of_the_dense_layer():
    sparse, x = layer(), torch.randn(3, 24, requires_grad=True)
    dense = sparse.to_dense()
    along = torch.randn(3, 16)
    got = torch.autograd.grad(sparse(x), [x, sparse.values, sparse.bias], along)
    gx, gw, gb = torch.autograd.grad(dense(x), [x, dense.weight, dense.bias], along)
    near(got[0], gx)
    near(got[2], gb)
    blocks = gw.reshape(2, 8, 3, 8).transpose(1, 2)[MASK]
    near(got[1], blocks)
    sparse.values.requires_grad_(False)
    (only,) = torch.autograd.grad(sparse(x.detach()), [sparse.bias], along)
    near(only, gb)
    sparse.requires_grad_(False)
    assert not sparse(x.detach()).requires_grad and sparse(x).requires_grad


def test_a_bias_that_is_computed_for_every_call_is_taken():
    class Twice(torch.nn.Module):
        def forward(self, bias):
            return 2 * bias

    sparse, x = layer(), torch.randn(3, 24)
    right = sparse.to_dense()(x) + sparse.bias
    parametrize.register_parametrization(sparse, "bias", Twice())
    near(sparse(x).detach(), right.detach())


def test_inference_mode_and_a_bias_of_another_type_are_taken():
    x = torch.randn(3, 24)
    with torch.inference_mode():
        made = layer()
        assert is_right(made, x) and is_right(made, x)
    sparse = layer()
    with torch.inference_mode():
        is_right(sparse, x)
    assert is_right(sparse, x) and sparse(x).requires_grad
    sparse.values.data = sparse.values.data.bfloat16()
    with torch.no_grad():
        assert sparse(x.bfloat16()).dtype == torch.float32  # as torch adds them


@pytest.mark.parametrize("grad", [True, False])
def test_who_watches_or_casts_sees_the_operator(grad):
    sparse, x = layer(), torch.randn(3, 24)
    is_right(sparse, x)
    with torch.set_grad_enabled(grad):
        with Seen() as seen:
            sparse(x)
        assert any("warplap.bsr_linear" in name for name in seen.names), seen.names
        with torch.autocast("cpu", torch.bfloat16):
            near(sparse(x).float(), F.linear(x, sparse.to_dense().weight, sparse.bias).float(), 3e-2)
        compiled = torch.compile(sparse, backend="eager", fullgraph=True)
        near(compiled(x).detach(), sparse(x).detach())


def test_wrong_inputs_are_refused():
    sparse = layer()
    is_right(sparse, torch.randn(3, 24))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            with pytest.raises(ValueError, match="^x: has shape"):
                sparse(torch.randn(3, 16))
            with pytest.raises(TypeError, match="expected torch.float32"):
                sparse(torch.randn(3, 24).half())
            for nothing in ("x", 1.0, torch.tensor(1.0)):
                with pytest.raises(TypeError, match="^x: is .*expected a tensor of 24 columns"):
                    sparse(nothing)
