"""attention: the meaning of scaled_dot_product_attention's arguments, gradients included."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap


def qkv(shape_q, shape_kv, dtype=torch.float32, device="cpu", dv=None):
    v = (*shape_kv[:-1], dv or shape_kv[-1])
    return [torch.randn(s, device=device).to(dtype) for s in (shape_q, shape_kv, v)]


@pytest.fixture(params=["ours", "torch"])
def winner(request, monkeypatch):
    """Who won every heat of whole steps."""
    from warplap.training import steps

    monkeypatch.setattr(steps.Steps, "_is_torchs", lambda *_: request.param == "torch")
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 8), (2, 3, 17, 17, 16), (1, 2, 5, 40, 64)])
def test_it_is_torchs_attention(device, dtype, causal, sizes):
    b, h, sq, sk, d = sizes
    q, k, v = qkv((b, h, sq, d), (b, h, sk, d), dtype, device)
    right = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    near(warplap.attention(q, k, v, is_causal=causal), right)


def test_masks_scales_and_shared_heads():
    q, k, v = qkv((2, 4, 6, 8), (2, 2, 9, 8), dv=5)
    wide = lambda t: t.double()
    for mask in (
        torch.rand(6, 9) > 0.3,
        torch.randn(6, 9),
        torch.randn(1, 9),
        torch.randn(2, 1, 6, 9),
        torch.randn(2, 4, 6, 9),
    ):
        right = F.scaled_dot_product_attention(
            wide(q), wide(k), wide(v), mask if mask.dtype == torch.bool else wide(mask), scale=0.3, enable_gqa=True
        )
        near(warplap.attention(q, k, v, mask=mask, scale=0.3, enable_gqa=True), right)
    nothing = torch.ones(6, 9, dtype=torch.bool)
    nothing[2] = False
    assert (warplap.attention(q, k, v, mask=nothing, enable_gqa=True)[:, :, 2] == 0).all()


def test_both_orders_and_other_ranks():
    q, k, v = (torch.randn(2, 6, 3, 8).transpose(1, 2) for _ in range(3))
    right = F.scaled_dot_product_attention(q, k, v)
    got = warplap.attention(q, k, v)
    near(got, right)
    assert got.stride() == q.stride()
    near(warplap.attention(q, k.contiguous(), v), right)
    near(warplap.attention(q[0], k[0], v[0]), right[0])
    near(warplap.attention(q[0, 0], k[0, 0], v[0, 0]), right[0, 0])
    five = [t.unflatten(0, (1, 2)) for t in (q, k, v)]
    near(warplap.attention(*five), right[None])
    padded = torch.randn(2, 3, 6, 16)[..., :8]
    near(warplap.attention(padded, padded, padded), F.scaled_dot_product_attention(padded, padded, padded))
    out = torch.empty(2, 3, 6, 8)
    assert warplap.attention(q, k, v, out=out) is out
    near(out, right)


def test_gradients_are_torchs(device, winner):
    for causal, gqa, mask in ((False, False, None), (True, False, None), (False, True, "add")):
        q, k, v = qkv((2, 4, 7, 8), (2, 2 if gqa else 4, 9, 8), device=device)
        inputs = [t.requires_grad_() for t in (q, k, v)]
        bias = torch.randn(7, 9, device=device, requires_grad=True) if mask else None
        inputs += [bias] if mask else []
        mine = warplap.attention(q, k, v, mask=bias, is_causal=causal, enable_gqa=gqa)
        right = F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, enable_gqa=gqa)
        weight = torch.randn_like(mine)
        grads = torch.autograd.grad((mine * weight).sum(), inputs)
        wanted = torch.autograd.grad((right * weight).sum(), inputs)
        assert all(near(g, w, 1e-4) for g, w in zip(grads, wanted))


def test_a_graph_that_is_kept_gives_its_gradients_again(winner):
    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    total = warplap.attention(q, k, v).square().sum()
    first, second = (torch.autograd.grad(total, (q, k, v), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_a_checkpoint_keeps_what_came_in_and_nothing_else(winner):
    from torch.utils.checkpoint import checkpoint

    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    attend = lambda *qkv: warplap.attention(*(t * 2 for t in qkv))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or len(kept) - 1, lambda i: kept[i]):
        plain = attend(q, k, v)
    assert kept
    first = torch.autograd.grad(plain.square().sum(), q, create_graph=True)[0]
    again = torch.autograd.grad(attend(q, k, v).square().sum(), q, create_graph=True)[0]
    near(*(torch.autograd.grad(g.square().sum(), k, retain_graph=True)[0] for g in (first, again)), 1e-4)
    through = checkpoint(attend, q, k, v, use_reentrant=False)
    right = torch.autograd.grad(attend(q, k, v).square().sum(), (q, k, v))
    for out in (plain, through):
        assert all(near(g, w, 1e-5) for g, w in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), right))


def test_gradients_of_gradients_are_torchs(winner):
    q, k, v = (t.double() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    q, k, v = (t.float().requires_grad_() for t in (q, k, v))

    def second(attend):
        (first,) = torch.autograd.grad(attend(q, k, v).square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (q, k, v))

    right = second(lambda *qkv: torch.softmax(qkv[0] @ qkv[1].mT / 2, -1) @ qkv[2])
    assert all(near(g, w, 1e-3) for g, w in zip(second(lambda *qkv: warplap.attention(*qkv)), right))


@pytest.mark.parametrize("sizes", [((1, 2, 5, 4), (1, 2, 6, 4)), ((2, 4, 5, 8), (2, 2, 5, 8)), ((2, 5, 8), (2, 6, 8))])
@pytest.mark.parametrize("only", [(0,), (1, 2), (0, 1, 2)])
def test_a_call_with_gradients_is_the_winners_and_has_gradients_of_gradients(sizes, only, winner):
    gqa, causal = sizes[0][-3] != sizes[1][-3], sizes[0][-2] == sizes[1][-2]
    q, k, v = inputs = [t.requires_grad_(i in only) for i, t in enumerate(qkv(*sizes))]
    leaves = [inputs[i] for i in only]
    out = warplap.attention(*inputs, is_causal=causal, enable_gqa=gqa)
    if out.ndim == 4 and not gqa:
        own = F.scaled_dot_product_attention(*inputs)
        assert (type(out.grad_fn) is type(own.grad_fn)) == (winner == "torch")
    along = torch.randn_like(out).requires_grad_()

    def by_hand(q, k, v):
        scores = q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).mT * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        return torch.softmax(scores, -1) @ v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)

    def both(out):
        first = torch.autograd.grad(out, leaves, along, create_graph=True)
        return *first, *torch.autograd.grad(sum(g.square().sum() for g in first), (*leaves, along))

    for mine, theirs in zip(both(out), both(by_hand(*inputs))):
        near(mine, theirs, 1e-3)


def test_gradients_alone_are_never_taken_from_the_scores():
    from warplap.ops.attention import training as attention_training

    def refused(*_):
        raise AssertionError("the scores were asked for")

    training = attention_training.Training(refused)
    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    total = training.direct(q, k, v, False, None, False).square().sum()
    torch.autograd.grad(total, (q, k, v), retain_graph=True)
    with pytest.raises(AssertionError, match="the scores"):
        torch.autograd.grad(total, (q, k, v), create_graph=True)


def test_nothing_is_kept_beyond_a_backward_pass(winner):
    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    mine = [t * 1 for t in (q, k, v)]
    gone = [weakref.ref(t) for t in mine]
    out = warplap.attention(*mine)
    total = out.sum()
    del mine
    assert all(ref() is not None for ref in gone)
    total.backward()
    assert not any(ref() is not None for ref in gone)
    gone = weakref.ref(out)
    del out, total
    assert gone() is None


def test_changed_inputs_are_found_out_in_gradients_of_gradients_too(winner):
    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 4), (1, 2, 6, 4)))
    total = warplap.attention(q, k, v).square().sum()
    with torch.no_grad():
        k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(total, q, create_graph=True)


def test_who_traces_or_casts_is_served_where_gradients_are_wanted():
    q, k, v = (t.requires_grad_() for t in qkv((1, 2, 5, 8), (1, 2, 5, 8)))
    with torch.autocast("cpu", torch.bfloat16):
        cast = warplap.attention(q, k, v)
    assert cast.dtype == torch.bfloat16
    cast.float().sum().backward()
    assert q.grad.dtype == torch.float32
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda q: warplap.attention(q, k, v))(q)
    near(traced(q), F.scaled_dot_product_attention(q, k, v))


def test_numpy_in_numpy_out():
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, 3, 6, 8), dtype=np.float32) for _ in range(3))
    right = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=True).numpy()
    got = warplap.attention(q, k, v, is_causal=True)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(warplap.attention(q[0], k[0], v[0], is_causal=True), right[0], rtol=1e-4, atol=1e-5)
    mask = rng.random((6, 6)) > 0.2
    right = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), torch.from_numpy(mask)).numpy()
    np.testing.assert_allclose(warplap.attention(q, k, v, mask=mask), right, rtol=1e-4, atol=1e-5)


def test_wrong_arguments_are_named():
    q, k, v = qkv((2, 4, 6, 8), (2, 4, 9, 8))
    z = torch.zeros
    for error, name, call in [
        (ValueError, "dropout_p:", lambda: warplap.attention(q, k, v, dropout_p=1.0)),
        (ValueError, "k:", lambda: warplap.attention(q, k[:, :2], v[:, :2])),
        (ValueError, "k:", lambda: warplap.attention(q, k[:, :3], v[:, :3], enable_gqa=True)),
        (ValueError, "v:", lambda: warplap.attention(q, k, v[:, :, :5])),
        (ValueError, "k:", lambda: warplap.attention(q, k[..., :4], v)),
        (ValueError, "q:", lambda: warplap.attention(z(3), k, v)),
        (ValueError, "mask:", lambda: warplap.attention(q, k, v, mask=z(6, 8))),
        (ValueError, "mask:", lambda: warplap.attention(q, k, v, mask=z(6, 9), is_causal=True)),
        (TypeError, "mask:", lambda: warplap.attention(q, k, v, mask=z(6, 9, dtype=torch.float64))),
        (TypeError, "k:", lambda: warplap.attention(q, k.half(), v)),
        (ValueError, "out:", lambda: warplap.attention(q, k, v, out=z(2, 4, 6, 9))),
        (TypeError, "one library", lambda: warplap.attention(q.numpy(), k, v)),
    ]:
        with pytest.raises(error, match=name):
            call()


@pytest.mark.parametrize("shape", [(6, 9), (2, 1, 6, 9), (1, 4, 6, 9), (2, 4, 6, 9), (1, 1, 1, 9)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attn_mask_is_taken_as_torch_takes_it(shape, kind, device):
    q, k, v = (torch.randn(2, 4, n, 8, device=device) for n in (6, 9, 9))
    mask = torch.rand(shape, device=device) > 0.3 if kind == "bool" else torch.randn(shape, device=device)
    if kind == "bool":
        mask[..., 0] = True
    right = F.scaled_dot_product_attention(q, k, v, mask)
    near(warplap.attention(q, k, v, attn_mask=mask), right)
    near(warplap.attention(q, k, v, mask), right)
    near(warplap.attention(q, k, v, mask=mask), right)
    with pytest.raises(ValueError, match="mask: is given beside attn_mask"):
        warplap.attention(q, k, v, mask, mask=mask)


def test_attention_of_doubles_is_torchs():
    q, k, v = (torch.randn(1, 2, n, 8, dtype=torch.float64) for n in (6, 9, 9))
    assert torch.equal(warplap.attention(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert warplap.store.ls() == []


@pytest.mark.parametrize("grad", [False, True])
def test_batches_and_heads_spread_as_torchs_do(grad, device):
    shapes = [((4, 3, 8), (4, 4, 6, 8)), ((2, 1, 3, 8), (2, 4, 6, 8)), ((2, 4, 3, 8), (1, 4, 6, 8)), ((3, 8), (2, 6, 8))]
    for of_q, of_k in shapes:
        q, k, v = (torch.randn(s, device=device, requires_grad=grad) for s in (of_q, of_k, of_k))
        out, right = warplap.attention(q, k, v), F.scaled_dot_product_attention(q, k, v)
        assert out.shape == right.shape
        near(out.detach(), right.detach())
        if grad:
            for mine, own in zip(*(torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (out, right))):
                near(mine, own)
