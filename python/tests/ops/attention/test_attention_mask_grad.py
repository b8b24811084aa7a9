"""Gradients of masks: without a matrix of scores, against torch in float64."""

from __future__ import annotations

import resource

import pytest
import torch

import warplap
from conftest import Seen, near
from warplap.ops.attention import dense, variants

from test_attention_variants import by_hand, leaves


@pytest.fixture
def no_scores(monkeypatch):
    """Nobody computes the matrix of scores."""

    def refused(*args, **kwargs):
        raise AssertionError("the matrix of scores was computed")

    monkeypatch.setattr(variants, "by_scores", refused)
    monkeypatch.setattr(dense, "_from_scores", refused)


def gradients(attend, inputs, weight, **facts):
    q, k, v, mask = inputs
    return torch.autograd.grad((attend(q, k, v, mask=mask, **facts) * weight).sum(), inputs)


MASKS = [(37, 50), (1, 4, 37, 50), (2, 1, 37, 50), (2, 4, 37, 50)]
BENDS = [{}, {"softcap": 2.0}, {"window": 9}, {"window": 9, "softcap": 3.0, "align": "bottom_right", "is_causal": True}]


def right_kind(device, dtype):
    return device != "cuda" or dtype != torch.float32  # on a GPU kernels have half types


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("bends", BENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_masks_have_torchs_gradients(device, shape, bends, dtype, no_scores):
    if not right_kind(device, dtype):
        pytest.skip("by torch")
    sizes = (2, 4, 37, 16), (2, 2, 50, 16), (2, 2, 50, 16), shape
    inputs = [t.detach().to(dtype).requires_grad_() for t in leaves(*sizes, device=device)]
    weight = torch.randn(2, 4, 37, 16, device=device, dtype=dtype)
    mine = gradients(warplap.attention, inputs, weight, enable_gqa=True, **bends)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    right = gradients(by_hand, wide, weight.double(), **bends)
    assert mine[3].dtype == dtype and mine[3].shape == shape
    assert all(near(g, w, 1e-4) for g, w in zip(mine, right))


def test_one_row_that_all_queries_share_gets_the_sum_of_theirs(no_scores):
    q, k, v, mask = inputs = leaves((2, 2, 9, 8), (2, 2, 11, 8), (2, 2, 11, 8), (2, 1, 1, 11))
    weight = torch.randn(2, 2, 9, 8)
    right = gradients(by_hand, inputs, weight)
    assert all(near(g, w, 1e-4) for g, w in zip(gradients(warplap.attention, inputs, weight), right))


def test_a_mask_alone_may_want_its_gradient(device, no_scores):
    dtype = torch.float16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(1, 2, 20, 16, device=device, dtype=dtype) for _ in range(3))
    mask = torch.randn(20, 20, device=device, dtype=dtype, requires_grad=True)
    warplap.attention(q, k, v, mask=mask).sum().backward()
    wide = mask.detach().double().requires_grad_()
    by_hand(q.double(), k.double(), v.double(), mask=wide).sum().backward()
    near(mask.grad, wide.grad)


def test_what_is_hidden_has_no_gradient(no_scores):
    inputs = leaves((1, 2, 6, 8), (1, 2, 7, 8), (1, 2, 7, 8), (6, 7))
    with torch.no_grad():
        inputs[3][2] = float("-inf")
        inputs[3][:, 5] = float("-inf")
    mask_gradient = gradients(warplap.attention, inputs, torch.randn(1, 2, 6, 8))[3]
    assert (mask_gradient[2] == 0).all() and (mask_gradient[:, 5] == 0).all()
    assert mask_gradient.isfinite().all() and mask_gradient.abs().max() > 0


def test_dropped_weights_are_those_of_the_forward_pass(no_scores):
    q, k, v, mask = leaves((2, 2, 33, 16), (2, 2, 33, 16), (2, 2, 33, 16), (33, 33))
    weight, seed = torch.randn(2, 2, 33, 16), torch.tensor([3, 4])
    facts = {"dropout_p": 0.3, "seed": seed}
    attend = lambda m: (warplap.attention(q, k, v, mask=m, **facts) * weight).sum()
    (mask_gradient,) = torch.autograd.grad(attend(mask), mask)
    at, step = (7, 11), 1e-2
    with torch.no_grad():
        moved = [mask.clone() for _ in range(2)]
        moved[0][at] += step
        moved[1][at] -= step
        slope = (attend(moved[0]) - attend(moved[1])) / (2 * step)
    assert abs(mask_gradient[at] - slope) < 2e-3 * max(1.0, abs(slope.item()))


def test_gradients_of_a_masks_gradient_come_from_the_scores():
    inputs = leaves((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), (1, 2, 5, 6))

    def second(attend):
        q, k, v, mask = inputs
        (first,) = torch.autograd.grad(attend(q, k, v, mask=mask).square().sum(), mask, create_graph=True)
        return torch.autograd.grad(first.square().sum(), inputs)

    assert all(near(g, w, 1e-3) for g, w in zip(second(warplap.attention), second(by_hand)))


def test_a_mask_is_learnt_in_a_compiled_program(device):
    dtype = torch.float16 if device == "cuda" else torch.float32
    sizes = (1, 2, 33, 16), (1, 2, 33, 16), (1, 2, 33, 16), (1, 2, 33, 33)
    inputs = [t.detach().to(dtype).requires_grad_() for t in leaves(*sizes, device=device)]
    fn = lambda q, k, v, mask: warplap.attention(q, k, v, mask=mask).square().sum()
    actual = torch.autograd.grad(torch.compile(fn)(*inputs), inputs)
    assert all(near(g, w, 1e-4) for g, w in zip(actual, torch.autograd.grad(fn(*inputs), inputs)))


def test_the_operator_is_what_torch_expects():
    q, k, v, mask = leaves((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 5, 6))
    facts = (False, 0.3, 0, 0.0, False, 0.0, 0, 0)
    with Seen() as seen:
        torch.autograd.grad(warplap.attention(q, k, v, mask=mask).sum(), mask)
    assert any("attention_mask_grad" in name for name in seen.names), seen.names
    out, lse = (t.detach() for t in torch.ops.warplap.attention_bent(q, k, v, mask, None, None, *facts))
    call = tuple(t.detach() for t in (torch.ones_like(out), q, k, v, mask))
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.warplap.attention_mask_grad.default, (*call, None, None, out, lse, *facts),
                          test_utils=checks)  # fmt: skip


def test_a_long_mask_takes_no_more_memory_than_itself(no_scores):
    # Scores of 16 heads of 4096 queries and keys would take 1 GiB; the mask and its gradient take 128 MiB.
    warplap.set_mode("off")
    q, k, v = (torch.randn(1, 16, 4096, 2) for _ in range(3))
    mask = torch.zeros(4096, 4096, requires_grad=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    warplap.attention(q, k, v, mask=mask).sum().backward()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1 << 19, f"{grown} KiB"
    assert mask.grad.isfinite().all() and mask.grad.sum(1).abs().max() < 1e-2
