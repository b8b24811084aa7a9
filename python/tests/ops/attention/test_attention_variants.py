"""attention with what torch's own has not, and its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap
from warplap.ops.dropout import drawn, of_weights


def leaves(*shapes, dtype=torch.float32, device="cpu"):
    return [torch.randn(*shape, device=device).to(dtype).requires_grad_() for shape in shapes]


def by_hand(
    q, k, v, *, mask=None, is_causal=False, window=None, softcap=None, alibi_slopes=None, align="top_left",
    dropout_p=0.0, seed=None,
):  # fmt: skip
    """In double precision, from a matrix of scores."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    own = torch.arange(q.shape[2], device=q.device) + (k.shape[2] - q.shape[2] if align == "bottom_right" else 0)
    away = torch.arange(k.shape[2], device=q.device) - own[:, None]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double()[:, None, None] * away.abs()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask.double()
    hidden = (away > 0) & is_causal
    if window is not None:
        hidden = hidden | (away.abs() > window)
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.softmax(scores, -1).nan_to_num()
    if dropout_p:
        weights = weights * of_weights(*weights.shape, drawn(seed, q.device), dropout_p).double()
    return weights @ v


CASES = {
    "window": dict(window=3),
    "window before": dict(window=2, is_causal=True),
    "last corner": dict(is_causal=True, align="bottom_right"),
    "window at the last corner": dict(window=4, is_causal=True, align="bottom_right"),
    "soft cap": dict(softcap=0.7, is_causal=True),
    "slopes": dict(alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625])),
    "dropped": dict(dropout_p=0.4, seed=(7, 3)),
    "dropped and causal": dict(dropout_p=0.2, seed=5, is_causal=True),
    "all of it": dict(window=5, softcap=3.0, alibi_slopes=torch.rand(4), align="bottom_right", is_causal=True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", [(9, 9), (5, 12), (40, 21)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_transformed_as_said_and_so_are_gradients(device, case, sizes, dtype):
    sq, sk = sizes
    facts = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in CASES[case].items()}
    q, k, v = inputs = leaves((2, 4, sq, 8), (2, 2, sk, 8), (2, 2, sk, 8), dtype=dtype, device=device)
    out = warplap.attention(*inputs, enable_gqa=True, **facts)
    right = by_hand(*inputs, **facts)
    assert out.dtype == dtype and near(out, right)
    along = torch.randn_like(right)
    wanted = torch.autograd.grad(right, inputs, along)
    for got, want in zip(torch.autograd.grad(out, inputs, along.to(dtype)), wanted):
        near(got, want, 1e-4)
    with torch.no_grad():
        near(warplap.attention(*inputs, enable_gqa=True, **facts), right)


@pytest.mark.parametrize("shape", [(1, 4, 6, 9), (2, 1, 6, 9), (2, 4, 6, 9), (2, 1, 1, 9)])
def test_masks_of_heads_and_batches_have_gradients_beside_them(device, shape):
    q, k, v = inputs = leaves((2, 4, 6, 8), (2, 4, 9, 8), (2, 4, 9, 8), device=device)
    mask = torch.randn(shape, device=device)
    out, right = warplap.attention(*inputs, mask=mask), by_hand(*inputs, mask=mask)
    near(out, right)
    along = torch.randn_like(right)
    wanted = torch.autograd.grad(right, inputs, along)
    for got, want in zip(torch.autograd.grad(out, inputs, along.float()), wanted):
        near(got, want, 1e-4)
    with torch.no_grad():
        near(warplap.attention(*inputs, mask=mask), right)
    near(warplap.attention(*inputs, mask=mask, window=4), by_hand(*inputs, mask=mask, window=4))


@pytest.mark.parametrize("shape", [(6, 9), (1, 4, 6, 9), (2, 1, 6, 9), (2, 4, 6, 9), (2, 1, 1, 9)])
def test_masks_of_bools_hide(device, shape):
    q, k, v = inputs = leaves((2, 4, 6, 8), (2, 4, 9, 8), (2, 4, 9, 8), device=device)
    mask = torch.rand(shape, device=device) > 0.3
    mask[..., -1, :] = False  # a query that sees nothing, or with the last shape all
    for more in ({}, {"dropout_p": 0.3, "seed": 11}, {"window": 4}):
        out, right = warplap.attention(*inputs, mask=mask, **more), by_hand(*inputs, mask=mask, **more)
        near(out, right)
        along = torch.randn_like(right)
        wanted = torch.autograd.grad(right, inputs, along)
        for got, want in zip(torch.autograd.grad(out, inputs, along.float()), wanted):
            near(got, want, 1e-4)
        with torch.no_grad():
            near(warplap.attention(*inputs, mask=mask, **more), right)


def test_what_is_dropped_follows_from_the_seed(device):
    q, k, v = (torch.randn(2, 2, 64, 16, device=device) for _ in range(3))
    drop = lambda seed: warplap.attention(q, k, v, dropout_p=0.5, seed=seed)
    assert torch.equal(drop(1), drop((1, 0))) and not torch.equal(drop(1), drop(2))
    torch.manual_seed(3)
    first = drop(None)
    torch.manual_seed(3)
    assert torch.equal(first, drop(None)) and not torch.equal(first, drop(None))
    # Values of one: what is left of a row's weights, which is all of them in the mean.
    ones = torch.ones_like(v)
    kept = torch.stack([warplap.attention(q, k, ones, dropout_p=0.5, seed=s) for s in range(30)])
    assert abs(kept.mean().item() - 1.0) < 0.05 and kept.std().item() > 0.05


def test_dropped_weights_in_a_compiled_program(device):
    q, k, v = leaves((1, 2, 33, 16), (1, 2, 33, 16), (1, 2, 33, 16), device=device)
    seed = torch.tensor([5, 6], device=device)
    fn = lambda q, k, v: warplap.attention(q, k, v, dropout_p=0.3, seed=seed, is_causal=True).square().sum()
    gradients = torch.autograd.grad(torch.compile(fn)(q, k, v), (q, k, v))
    right = torch.autograd.grad(fn(q, k, v), (q, k, v))
    assert all(near(g, w, 1e-4) for g, w in zip(gradients, right))


def test_masks_and_slopes_that_are_learnt_have_gradients():
    q, k, v, mask, slopes = inputs = leaves((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), (1, 2, 5, 6), (2,))
    facts = dict(mask=mask, alibi_slopes=slopes, window=3)
    mine = torch.autograd.grad(warplap.attention(q, k, v, **facts).square().sum(), inputs)
    right = torch.autograd.grad(by_hand(q, k, v, **facts).square().sum(), inputs)
    assert all(near(g, w, 1e-4) for g, w in zip(mine, right))


def test_gradients_of_gradients_come_from_the_scores():
    q, k, v = inputs = leaves((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4))

    def second(attend):
        (first,) = torch.autograd.grad(attend(*inputs, window=2, softcap=2.0).square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), inputs)

    assert all(near(g, w, 1e-3) for g, w in zip(second(warplap.attention), second(by_hand)))


def test_problems_say_what_a_call_was():
    q, k, v = (torch.randn(1, 2, 40, 16) for _ in range(3))
    warplap.attention(q, k, v, window=7, softcap=5.0, alibi_slopes=torch.rand(2), align="bottom_right")
    keys = " ".join(str(line) for line in warplap.store.ls())
    for field in ("window=7", "softcap=true", "alibi=true", "corner=bottom", "lse=true"):
        assert field in keys, keys


def test_plain_arguments_beside_them_are_torchs():
    q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))
    near(warplap.attention(q, k, v, window=100), F.scaled_dot_product_attention(q, k, v))
    near(warplap.attention(q[0], k[0], v[0], window=100), F.scaled_dot_product_attention(q, k, v)[0])


def test_wrong_arguments_are_named():
    q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))
    for error, name, more in [
        (ValueError, "window:", dict(window=0)),
        (ValueError, "softcap:", dict(softcap=-1.0)),
        (ValueError, "align:", dict(align="middle")),
        (ValueError, "alibi_slopes:", dict(alibi_slopes=torch.rand(4))),
        (ValueError, "dropout_p:", dict(window=3, dropout_p=1.5)),
        (ValueError, "dropout_p:", dict(dropout_p=float("nan"))),
        (ValueError, "seed:", dict(dropout_p=0.5, seed=torch.zeros(3))),
        (NotImplementedError, "out:", dict(dropout_p=0.5, out=torch.empty_like(q))),
    ]:
        with pytest.raises(error, match=name):
            warplap.attention(q, k, v, **more)
    with pytest.raises(NotImplementedError, match="tensors of torch"):
        warplap.attention(q.numpy(), k.numpy(), v.numpy(), window=3)
