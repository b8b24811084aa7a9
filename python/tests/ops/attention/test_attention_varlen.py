"""attention over sequences that lie one behind the other."""

from __future__ import annotations

import pytest
import torch
from conftest import near

import warplap
from warplap.ops import dropout

LENGTHS = (65, 0, 1, 197, 63, 64, 127)


def offsets(lengths, device):
    return torch.tensor([0, *lengths], device=device).cumsum(0).int()


def one_by_one(q, k, v, begins_q, begins_k, *, is_causal=False, window=None, softcap=None, alibi_slopes=None,
               align="top_left", dropout_p=0.0, seed=None, scale=None):  # fmt: skip
    """In double precision, sequence by sequence."""
    rows, h = [], q.shape[1]
    at_q, at_k = begins_q.tolist(), begins_k.tolist()
    for n, (a, b, c, d) in enumerate(zip(at_q, at_q[1:], at_k, at_k[1:])):
        own, keys, values = (t[x:y].double().transpose(0, 1) for t, x, y in ((q, a, b), (k, c, d), (v, c, d)))
        keys, values = (t.repeat_interleave(h // t.shape[0], 0) for t in (keys, values))
        scores = own @ keys.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        place = torch.arange(b - a, device=q.device) + ((d - c) - (b - a) if align == "bottom_right" else 0)
        away = torch.arange(d - c, device=q.device) - place[:, None]
        if alibi_slopes is not None:
            scores = scores - alibi_slopes.double()[:, None, None] * away.abs()
        hidden = (away > 0) & is_causal
        if window is not None:
            hidden = hidden | (away.abs() > window)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        weights = weights.masked_fill(hidden.all(-1)[:, None], 0.0) if d > c else weights
        if dropout_p:
            words = torch.tensor(seed, device=q.device)
            weights = weights * dropout.of_weights(n + 1, h, b - a, d - c, words, dropout_p)[n].double()
        rows.append((weights @ values).transpose(0, 1))
    return torch.cat(rows)


CASES = {
    "plain": dict(),
    "causal": dict(is_causal=True),
    "last corner": dict(is_causal=True, align="bottom_right"),
    "window": dict(window=9, is_causal=True),
    "wide window": dict(window=30, align="bottom_right", scale=0.3),
    "bent": dict(softcap=2.0, alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625]), is_causal=True),
    "dropped": dict(dropout_p=0.3, seed=(5, 7)),
}


def drawn(device, dtype, begins_q, begins_k, d=16, dv=16, hkv=2):
    shapes = ((int(begins_q[-1]), 4, d), (int(begins_k[-1]), hkv, d), (int(begins_k[-1]), hkv, dv))
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("own", [True, False])
def test_each_sequence_is_attended_to_alone(device, case, dtype, own):
    facts = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in CASES[case].items()}
    begins_q = offsets(LENGTHS, device)
    begins_k = begins_q if own else offsets((70, 3, 0, 64, 200, 1, 127), device)
    inputs = drawn(device, dtype, begins_q, begins_k)
    more = {} if own else {"cu_seqlens_k": begins_k}
    out = warplap.attention(*inputs, enable_gqa=True, cu_seqlens_q=begins_q, **more, **facts)
    right = one_by_one(*inputs, begins_q, begins_k, **facts)
    assert out.dtype == dtype and out.shape == inputs[0].shape and near(out, right)
    grad = torch.randn_like(out)
    gradients = torch.autograd.grad(out, inputs, grad)
    for mine, theirs in zip(gradients, torch.autograd.grad(right, inputs, grad.double())):
        assert near(mine, theirs)
    if (device, dtype) != ("cuda", torch.float32):  # which has no kernel there
        kept = " ".join(str(line) for line in warplap.store.ls())
        assert "tq=" in kept and "attention_grad" in kept


def test_values_may_be_of_another_size_and_lengths_may_be_said(device):
    begins = offsets((5, 40, 2), device)
    q, k, v = drawn(device, torch.float16, begins, begins, dv=8, hkv=4)
    said = dict(cu_seqlens_q=begins, cu_seqlens_k=begins, max_seqlen_q=64, max_seqlen_k=64)
    with torch.no_grad():
        near(warplap.attention(q, k, v, **said), one_by_one(q, k, v, begins, begins))
        near(warplap.attention(q, k, v, cu_seqlens_q=begins, max_seqlen_q=40), one_by_one(q, k, v, begins, begins))


def test_rows_that_do_not_lie_one_behind_the_other_are_taken_too(device):
    begins = offsets((33, 7), device)
    together = torch.randn(40, 3, 4, 16, device=device).half().requires_grad_()
    q, k, v = together.unbind(1)
    out = warplap.attention(q, k, v, cu_seqlens_q=begins, is_causal=True)
    right = one_by_one(q, k, v, begins, begins, is_causal=True)
    near(out, right)
    (mine,), (theirs,) = (torch.autograd.grad(o.sum(), together) for o in (out, right))
    near(mine, theirs)


def test_nobody_is_no_sequence(device):
    q = torch.randn(0, 4, 8, device=device, requires_grad=True)
    out = warplap.attention(q, q, q, cu_seqlens_q=offsets((0, 0), device), max_seqlen_q=1)
    assert out.shape == (0, 4, 8)


def test_gradients_have_gradients(device):
    begins = offsets((5, 3), device)
    inputs = [torch.randn(8, 2, 4, device=device, requires_grad=True) for _ in range(3)]
    twice = []
    for call in (
        lambda: warplap.attention(*inputs, cu_seqlens_q=begins, is_causal=True),
        lambda: one_by_one(*inputs, begins, begins, is_causal=True).float(),
    ):
        (first,) = torch.autograd.grad(call().square().sum(), inputs[0], create_graph=True)
        twice.append(torch.autograd.grad(first.square().sum(), inputs)[1])
    near(twice[0], twice[1])


def test_a_traced_program_takes_them_too(device):
    begins = offsets((20, 0, 28), device)
    q, k, v = (torch.randn(48, 4, 8, device=device, requires_grad=True) for _ in range(3))
    call = lambda q: warplap.attention(q * 2, k, v, cu_seqlens_q=begins, max_seqlen_q=28, is_causal=True) + 1
    traced = torch.compile(call, backend="aot_eager", fullgraph=True)
    near(traced(q), call(q))
    (mine,), (theirs,) = (torch.autograd.grad(f(q).square().sum(), q) for f in (traced, call))
    near(mine, theirs)


def test_offsets_on_a_gpu_never_lead_outside(device):
    if device == "cpu":
        pytest.skip("on the host they are looked at")
    q, k, v = (torch.randn(64, 2, 16, device=device).half() for _ in range(3))
    for wild in ([0, 2**31 - 1, -5, 10], [64, 0, 64, 3], [-(2**31), 2**31 - 1, 7, 1000]):
        begins = torch.tensor(wild, dtype=torch.int32, device=device)
        # torch's own kernel follows them blindly, and knows no caps.
        warplap.attention(q, k, v, cu_seqlens_q=begins, max_seqlen_q=64, is_causal=True, softcap=9.0)
    torch.cuda.synchronize()


def test_errors_name_the_argument_and_the_remedy():
    begins = offsets((5, 3), "cpu")
    q, k, v = (torch.randn(8, 4, 8) for _ in range(3))
    call = lambda q=q, k=k, v=v, **facts: warplap.attention(q, k, v, **{"cu_seqlens_q": begins, **facts})
    for error, words, facts in [
        (TypeError, r"cu_seqlens_q: holds torch.int64, .*cu_seqlens_q.int\(\)", dict(cu_seqlens_q=begins.long())),
        (ValueError, r"cu_seqlens_q: has shape", dict(cu_seqlens_q=begins[None])),
        (ValueError, r"cu_seqlens_q: is \[0, 5, 7\], expected .*8 rows", dict(cu_seqlens_q=offsets((5, 2), "cpu"))),
        (ValueError, r"cu_seqlens_q: is \[0, 9, 8\]", dict(cu_seqlens_q=offsets((9, -1), "cpu"), max_seqlen_q=9)),
        (ValueError, r"cu_seqlens_k: has shape", dict(cu_seqlens_k=offsets((8,), "cpu"))),
        (ValueError, r"max_seqlen_q: is 4, expected .*5", dict(max_seqlen_q=4)),
        (ValueError, r"max_seqlen_q: is 3, expected the longest length of 2 sequences", dict(max_seqlen_q=3)),
        (ValueError, r"max_seqlen_q: is 0", dict(max_seqlen_q=0)),
        (ValueError, r"q: has 4 dimensions", dict(q=q[None])),
        (ValueError, r"k: has 2 heads, expected 4 as q has; or say enable_gqa=True", dict(k=k[:, :2], v=v[:, :2])),
        (ValueError, r"v: has shape", dict(v=v[:5])),
        (ValueError, r"cu_seqlens_k: is cu_seqlens_q", dict(k=k[:5], v=v[:5])),
        (ValueError, r"cu_seqlens_k, .*expected cu_seqlens_q", dict(cu_seqlens_q=None, max_seqlen_q=8)),
        (NotImplementedError, r"cu_seqlens_q: is given beside", dict(out=torch.empty_like(q))),
        (ValueError, r"align: is 'middle'", dict(align="middle")),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call(**facts)
