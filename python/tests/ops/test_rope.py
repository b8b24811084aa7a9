"""rope: right in all its forms against float64, differentiable, safe to compile, found in graphs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from conftest import near

import warplap
from warplap.fusing.matching import calls as fused_calls
from warplap.fusing.plan import Plan
from warplap.ops import rope as ops_rope

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def table(n, columns, dtype=torch.float32, device="cpu"):
    angles = torch.rand(n, columns, device=device) * math.tau
    return angles.cos().to(dtype), angles.sin().to(dtype)


def right(x, cos, sin, interleaved=False, bias=None):
    """One tensor (rows, heads, d) by complex numbers in float64; tables have a row for each row, a column a pair."""
    y = x.double() if bias is None else x.double() + bias.double().view(x.shape[1:])
    rot = 2 * cos.shape[-1]
    head, rest = y[..., :rot], y[..., rot:]
    a, b = (head[..., ::2], head[..., 1::2]) if interleaved else head.chunk(2, -1)
    turned = torch.complex(a, b) * torch.complex(cos.double(), sin.double())[:, None]
    a, b = turned.real, turned.imag
    head = torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)
    return torch.cat((head, rest), -1)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def as_llama(q, k, cos, sin):
    """The form of Hugging Face's models."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_q_and_k_are_turned_in_every_type_and_pairing(dtype, interleaved, device):
    for d, columns, kind in ((64, 32, dtype), (80, 16, torch.float32), (128, 64, torch.float32), (6, 1, dtype)):
        q, k = (torch.randn(2, 5, h, d, device=device).to(dtype) for h in (3, 1))
        cos, sin = table(10, columns, kind, device)
        outputs = warplap.rope(q, k, cos.view(2, 5, -1), sin.view(2, 5, -1), interleaved=interleaved)
        for got, x in zip(outputs, (q, k)):
            assert got.dtype == dtype and got.shape == x.shape
            near(got, right(x.flatten(0, 1), cos, sin, interleaved).view(x.shape))


def test_tables_spread_over_batches_and_positions_pick_their_rows(device):
    q, k = torch.randn(2, 5, 3, 8, device=device), torch.randn(2, 5, 1, 8, device=device)
    cos, sin = table(40, 4, device=device)
    picks = torch.arange(5, device=device).repeat(2)
    near(warplap.rope(q, None, cos[:5], sin[:5]).flatten(0, 1), right(q.flatten(0, 1), cos[picks], sin[picks]))
    near(warplap.rope(q, None, cos[None, :5], sin[None, :5]), warplap.rope(q, None, cos[:5], sin[:5]))
    for kind in (torch.int64, torch.int32):
        positions = torch.randint(0, 40, (2, 5), device=device, dtype=kind)
        picks = positions.flatten().long()
        for got, x in zip(warplap.rope(q, k, cos, sin, positions=positions), (q, k)):
            near(got.flatten(0, 1), right(x.flatten(0, 1), cos[picks], sin[picks]))
    line = torch.randint(0, 40, (5,), device=device)
    near(warplap.rope(q, None, cos, sin, positions=line), warplap.rope(q, None, cos[line], sin[line]))


def test_a_position_that_is_not_in_the_table_makes_nan(device):
    q, (cos, sin) = torch.randn(3, 2, 8, device=device), table(5, 2, device=device)
    for positions in ([0, 5, 1], [0, -1, 1], [0, 2**40, 1]):
        positions = torch.tensor(positions, device=device)
        got = warplap.rope(q, None, cos, sin, positions=positions)
        assert bool(got[1, :, :4].isnan().all()) and torch.equal(got[1, :, 4:], q[1, :, 4:])
        assert not bool(got[::2].isnan().any())
        same = ops_rope.by_torch(
            q, None, cos, sin, positions, wide=False, interleaved=False, plain=0, back=False
        )
        assert torch.equal(same.isnan(), got.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fused_projection_is_biased_and_turned_in_its_own_memory(dtype, device):
    hq, hkv, d, rows = 4, 2, 16, 7
    qkv = torch.randn(rows, (hq + 2 * hkv) * d, device=device).to(dtype)
    bias = torch.randn(qkv.shape[1], device=device).to(dtype)
    cos, sin = table(rows, d // 2, torch.float32, device)
    heads = qkv.view(rows, -1, d)
    wanted = heads.double() + bias.double().view(-1, d)
    wanted[:, : hq + hkv] = right(heads[:, : hq + hkv], cos, sin, bias=bias[: (hq + hkv) * d])
    near(warplap.rope(heads, None, cos, sin, plain=hkv, bias=bias), wanted)
    own = heads.clone()
    assert warplap.rope(own, None, cos, sin, plain=hkv, bias=bias, inplace=True) is own
    near(own, wanted)


def test_q_and_k_of_one_projection_are_turned_in_place_and_v_is_not_touched(device):
    hq, hkv, d = 4, 2, 16
    for rows in (1, 7):
        qkv = torch.randn(rows, (hq + 2 * hkv) * d, device=device)
        before, (cos, sin) = qkv.clone(), table(rows, d // 2, device=device)
        split = lambda t: [p.view(rows, -1, d) for p in t.split([hq * d, hkv * d, hkv * d], -1)]
        (q, k, v), old = split(qkv), split(before)
        got = warplap.rope(q, k, cos, sin, inplace=True)
        assert got[0].data_ptr() == q.data_ptr() and got[1].data_ptr() == k.data_ptr()
        near(q, right(old[0], cos, sin))
        near(k, right(old[1], cos, sin))
        assert torch.equal(v, old[2])
        # k before q: they share rows, and do not follow each other.
        (k, q, _), old = split(qkv), split(qkv.clone())
        near(warplap.rope(q, k, cos, sin, inplace=True)[0], right(old[1], cos, sin))


def test_heads_may_lie_before_tokens_and_columns_be_those_of_elements(device):
    b, s, d = 2, 5, 16
    whole = torch.randn(b, s, 6 * d, device=device)
    q, k = (t.view(b, s, -1, d).transpose(1, 2) for t in whole.split([4 * d, 2 * d], -1))
    angles = torch.rand(b, s, d, device=device) * math.tau  # the two halves differ
    cos, sin = angles.cos(), angles.sin()
    for shape in (q, q.contiguous()):
        outputs = warplap.rope(shape, k, cos, sin, wide=True, heads_dim=1)
        for got, wanted in zip(outputs, as_llama(q.double(), k.double(), cos.double(), sin.double())):
            near(got, wanted)
    cache = torch.cat((cos.flatten(0, 1)[:, :4], sin.flatten(0, 1)[:, :4]), -1)  # cosines beside sines
    got = warplap.rope(q, None, *(t.view(b, s, 4) for t in cache.split(4, -1)), heads_dim=1)
    rows = q.transpose(1, 2).flatten(0, 1)
    near(got.transpose(1, 2).flatten(0, 1), right(rows, cache[:, :4], cache[:, 4:]))


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradients_are_those_in_double_precision(interleaved, device):
    for plain, wide, hk in itertools.product((0, 1), (False, True), (0, 2)):
        if plain and hk:
            continue
        q = torch.randn(4, 3, 8, device=device, requires_grad=True)
        k = torch.randn(4, hk, 8, device=device, requires_grad=True) if hk else None
        bias = torch.randn((3 + hk) * 8, device=device, requires_grad=True)
        cos, sin = (torch.randn(4, 6 if wide else 3, device=device) for _ in range(2))
        inputs = [t for t in (q, k, bias) if t is not None]
        run = lambda q, k, bias, cos, sin: warplap.rope(
            q, k, cos, sin, bias=bias, plain=plain, wide=wide, interleaved=interleaved
        )
        listed = lambda result: result if isinstance(result, tuple) else (result,)
        up = [torch.randn_like(t) for t in listed(run(q, k, bias, cos, sin))]
        ours = torch.autograd.grad(listed(run(q, k, bias, cos, sin)), inputs, up)
        wide_inputs = [t.detach().double().requires_grad_() for t in inputs]
        args = [wide_inputs[0], wide_inputs[1] if hk else None, wide_inputs[-1], cos.double(), sin.double()]
        theirs = torch.autograd.grad(listed(run(*args)), wide_inputs, [t.double() for t in up])
        for got, wanted in zip(ours, theirs):
            near(got, wanted)
        # That way is torch's formula, held to differences here.
        assert torch.autograd.gradcheck(lambda *t: run(t[0], t[1] if hk else None, t[-1], *args[3:]), wide_inputs)


def test_gradients_have_gradients_and_tables_that_are_learnt_have_them_too(device):
    q, (cos, sin) = torch.randn(3, 2, 8, device=device, requires_grad=True), table(3, 4, device=device)
    (first,) = torch.autograd.grad(warplap.rope(q, None, cos, sin).pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), q)
    wide = q.detach().double().requires_grad_()
    (first,) = torch.autograd.grad(warplap.rope(wide, None, cos, sin).pow(3).sum(), wide, create_graph=True)
    near(second, torch.autograd.grad(first.square().sum(), wide)[0])
    cos.requires_grad_()
    (got,) = torch.autograd.grad(warplap.rope(q, None, cos, sin).sum(), cos)
    near(got, sum(half.sum(1) for half in q.double().chunk(2, -1)))


def test_plain_calls_go_at_once_and_others_the_general_way(device):
    make = lambda *shape: torch.randn(shape, device=device)
    q, k, (cos, sin) = make(2, 5, 4, 16).transpose(1, 2), make(2, 5, 2, 16).transpose(1, 2), table(5, 8, device=device)

    def at_once(q=q, k=k, cos=cos, sin=sin, positions=None, bias=None, heads_dim=1):
        return ops_rope._direct((q, k, cos, sin, positions, bias), (False, False, 0, heads_dim))

    for got, wanted in zip(at_once(), ops_rope.of_tensors(q, k, cos, sin, None, None, False, False, False, 0, 1)):
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()
    positions, bias = torch.randint(0, 5, (2, 5), device=device), make(6 * 16)
    general = ops_rope.of_tensors(q, k, cos, sin, positions, bias, False, False, False, 0, 1)
    assert all(map(torch.equal, at_once(positions=positions, bias=bias), general))
    for changes in (
        {"q": q.clone().requires_grad_()},  # a gradient is wanted
        {"q": q.contiguous()},  # rows of heads do not lie one after another
        {"q": q.double(), "k": k.double()},
        {"k": k.half()},
        {"cos": cos.half()},
        {"cos": cos[:, :3]},
        {"cos": make(10, 8)[::2]},  # another step than the sines'
        {"positions": positions[0]},
        {"bias": make(2 * 6 * 16)[::2]},
        {"heads_dim": 3},
    ):
        assert at_once(**changes) is None, changes.keys()


def test_in_place_gives_way_to_gradients(device):
    q, (cos, sin) = torch.randn(3, 2, 8, device=device, requires_grad=True), table(3, 4, device=device)
    before = q.detach().clone()
    y = warplap.rope(q * 1.0, None, cos, sin, inplace=True)
    y.sum().backward()
    near(y, right(before, cos, sin))
    near(q.grad, right(torch.ones_like(before), cos, -sin))


def test_compiled_programs_call_it_and_shapes_may_change(device):
    def block(q, k, cos, sin):
        a, b = warplap.rope(q * 2.0, k, cos, sin, heads_dim=1)
        return a + 1.0, b

    torch._dynamo.reset()
    run = torch.compile(block, fullgraph=True, dynamic=True)
    for s in (4, 9):
        q, k = (torch.randn(2, h, s, 16, device=device, requires_grad=True) for h in (3, 1))
        cos, sin = table(s, 8, device=device)
        for got, wanted in zip(run(q, k, cos, sin), block(q, k, cos, sin)):
            near(got, wanted)
        ours = torch.autograd.grad(run(q, k, cos, sin)[0].square().sum(), q)
        near(ours[0], torch.autograd.grad(block(q, k, cos, sin)[0].square().sum(), q)[0])


def test_the_operators_keep_the_rules_of_torch():
    x, k, bias = (torch.randn(s, requires_grad=True) for s in ((3, 2, 8), (3, 1, 8), (24,)))
    cos, sin = table(3, 4)
    op = torch.ops.warplap
    torch.library.opcheck(op.rope, (x, cos, sin, None, None, False, True, 1, False))
    torch.library.opcheck(op.rope_pair, (x, k, cos, sin, None, bias, False, False, 0, False))


def test_wrong_arguments_are_named():
    q, k, (cos, sin) = torch.randn(4, 3, 8), torch.randn(4, 1, 8), table(4, 4)
    for kind, match, args, more in (
        (ValueError, "k: has shape", (q, torch.randn(4, 1, 6), cos, sin), {}),
        (ValueError, "sin: has shape", (q, k, cos, sin[:3]), {}),
        (ValueError, "cos: has 5 columns", (q, k, torch.randn(4, 5), torch.randn(4, 5)), {}),
        (ValueError, "cos: has 3 columns", (q, k, torch.randn(4, 3), torch.randn(4, 3)), {"wide": True}),
        (ValueError, "cos: has rows of shape", (q, k, cos[:3], sin[:3]), {}),
        (ValueError, "positions: has shape", (q, k, cos, sin), {"positions": torch.zeros(3, dtype=torch.int64)}),
        (TypeError, "positions: holds", (q, k, cos, sin), {"positions": torch.zeros(4)}),
        (ValueError, "plain: is 1", (q, k, cos, sin), {"plain": 1}),
        (ValueError, "plain: is 3", (q, None, cos, sin), {"plain": 3}),
        (ValueError, "bias: has shape", (q, k, cos, sin), {"bias": torch.zeros(24)}),
        (ValueError, "heads_dim: is -1", (q, k, cos, sin), {"heads_dim": -1}),
        (TypeError, "k: holds", (q, k.half(), cos, sin), {}),
        (TypeError, "q: holds", (q.int(), None, cos, sin), {}),
        (TypeError, "expected tensors of torch", (q.numpy(), None, cos.numpy(), sin.numpy()), {}),
    ):
        with pytest.raises(kind, match=match):
            warplap.rope(*args, **more)


def test_nothing_is_turned_where_there_is_nothing():
    cos, sin = table(1, 4)
    q, k = warplap.rope(torch.randn(0, 3, 8), torch.randn(0, 1, 8), cos[:0], sin[:0])
    assert q.shape == (0, 3, 8) and k.shape == (0, 1, 8)


def test_everyone_races_and_a_call_has_one_text():
    q, k, (cos, sin) = torch.randn(6, 3, 8), torch.randn(6, 1, 8), table(6, 4)
    asked = warplap.explain(warplap.rope, q, k, cos, sin, interleaved=True)
    assert "rope:rows=6,h=3,hk=1,d=8,dtype=f32,pairs=interleaved" in str(asked)
    raced = warplap.benchmark(warplap.rope, q, k, cos, sin, budget=0.3)
    assert {"reference", "pairs", "torch_rope"} <= {row["variant"] for row in raced.rows}


def traced(fn, *args):
    graphs = []
    torch._dynamo.reset()
    keep = lambda module, inputs: graphs.append((module, inputs)) or module.forward
    torch.compile(fn, backend=keep, fullgraph=True)(*args)
    return graphs[0]


def by_chunks(q, k, cos, sin):
    cos, sin = cos[:, :, None], sin[:, :, None]

    def turned(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((b.neg(), a), -1) * sin + cos * x

    return turned(q), turned(k)


def test_what_models_write_out_is_found_and_right():
    b, s, d = 2, 6, 16
    cos, sin = (torch.randn(b, s, d) for _ in range(2))
    for fn, heads in ((as_llama, lambda h: (b, h, s, d)), (by_chunks, lambda h: (b, s, h, d))):
        q, k = torch.randn(heads(4), requires_grad=True), torch.randn(heads(2), requires_grad=True)
        module, inputs = traced(fn, q, k, cos, sin)
        plan = Plan(module)
        names = {name.partition(".")[0] for name in plan.kinds}
        assert {"rope", "rope_pair"} <= names, (fn, names)
        wanted = fn(*(t.double() for t in (q, k, cos, sin)))
        for kinds in (["rope_pair"], [name for name in plan.kinds if name.partition(".")[0] == "rope"]):
            covers = plan.partition(kinds).covers
            rewritten = plan.rewritten(covers)
            calls = [n.target for n in rewritten.graph.nodes if n.target in (fused_calls.turned_pair, fused_calls.turned)]
            assert calls == ([fused_calls.turned_pair] if kinds == ["rope_pair"] else [fused_calls.turned] * 2)
            for got, right_one in zip(rewritten(*inputs), wanted):
                near(got, right_one)


@pytest.mark.parametrize(
    "turned",
    [
        lambda x, cos, sin: x * cos + torch.cat((x[..., 8:], -x[..., :8]), -1) * sin,  # the other way round
        lambda x, cos, sin: x * cos + torch.cat((-x[..., :8], x[..., 8:]), -1) * sin,  # in their places
        lambda x, cos, sin: x * cos + torch.cat((-x[..., 6:], x[..., :6]), -1) * sin,  # no halves
        lambda x, cos, sin: x * cos - torch.cat((-x[..., 8:], x[..., :8]), -1) * sin,
    ],
)
def test_what_only_looks_like_it_is_left_alone(turned):
    x, cos, sin = torch.randn(2, 1, 6, 16), torch.randn(2, 1, 6, 16), torch.randn(2, 1, 6, 16)
    module, _ = traced(turned, x, cos, sin)
    assert not any("rope" in name for name in Plan(module).kinds)


def test_a_block_with_it_is_raced_as_a_whole(monkeypatch):
    from warplap.fusing.race import forms

    torch._dynamo.reset()
    monkeypatch.setattr(forms.Inductor, "here", lambda self, module, inputs: module.forward)
    warplap.configure(in_memory=True, budget=0.5)
    q, k, cos, sin = torch.randn(2, 4, 6, 16), torch.randn(2, 2, 6, 16), torch.randn(1, 6, 16), torch.randn(1, 6, 16)
    with torch.no_grad():
        outputs = warplap.fuse(as_llama)(q, k, cos, sin)
    for got, wanted in zip(outputs, as_llama(*(t.double() for t in (q, k, cos, sin)))):
        near(got, wanted)
    report = str(warplap.graphs()[-1])
    assert "rope" in report, report
