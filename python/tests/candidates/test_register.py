"""Callables that race: what they are given, what they return, and who gets it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap
from warplap.candidates import register

ATTENTION = "attention:b=1,h=2,sq=6,sk=9,d=8,dtype=f32,causal=false"


def facts(problem):
    return {"causal": "causal=true" in problem, "kept": len(problem)}


@pytest.fixture
def aside():
    """Lets callables stand aside when their test is over."""
    names = []
    yield lambda op, name: names.append((op, name)) or name
    for op, name in names:
        warplap.add_variant(op, name, lambda *_: None, fit=lambda problem: "its test is over")


def raced(problem, name):
    """What became of one variant. On a busy machine a short budget ends before everyone had a turn."""
    for budget in (0.2, 2.0, 20.0):
        (row,) = (row for row in warplap.benchmark(problem, budget=budget) if row["variant"] == name)
        if "budget" not in row["outcome"]:
            break
    return row


def test_a_callable_gets_one_tensor_a_slot_and_none_where_the_problem_has_none(aside):
    seen = {}

    def mine(q, k, v, mask, out, *, causal, kept):
        seen[mask is None] = [tuple(t.shape) for t in (q, k, v, out)], causal, kept
        out.copy_(F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal))

    warplap.add_variant("attention", aside("attention", "mine"), mine, facts=facts)
    shapes = [(1, 2, 6, 8), (1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 6, 8)]
    for problem in (ATTENTION, f"{ATTENTION},mask=add"):
        assert raced(problem, "mine")["time_us"] > 0
        assert seen[problem == ATTENTION] == (shapes, False, len(problem))


def test_a_callable_may_return_its_output_and_in_a_race_it_is_copied(aside):
    warplap.add_variant(
        "sdpa", aside("sdpa", "mine"), lambda q, k, v, mask=None, **_: F.scaled_dot_product_attention(q, k, v, mask),
        facts=facts, returns=True,
    )  # fmt: skip
    assert raced(ATTENTION, "mine")["time_us"] > 0 and raced(f"{ATTENTION},mask=add", "mine")["time_us"] > 0
    warplap.add_variant("sdpa", "mine", lambda q, k, v, mask=None: q.new_zeros(1), returns=True)
    assert raced(ATTENTION, "mine")["outcome"].startswith("wrong answer")
    warplap.add_variant("sdpa", "mine", lambda q, k, v, mask=None: 3, returns=True)
    assert raced(ATTENTION, "mine")["time_us"] is None


def test_both_forms_of_a_callable_are_proved(aside):
    def product(a, b, c):
        torch.mm(a, b, out=c)

    warplap.add_variant("gemm", aside("gemm", "product"), product, give=torch.mm)
    assert raced("gemm:m=8,n=4,k=5,dtype=f32", "product")["time_us"] > 0
    warplap.add_variant("gemm", "product", product, give=lambda a, b: torch.mm(a, b) + 1)
    assert raced("gemm:m=8,n=4,k=5,dtype=f32", "product")["outcome"].startswith("wrong answer")


def test_strides_and_indices_are_the_problems(aside):
    def product(a, b, c):
        assert a.stride() == (1, 40) and b.stride() == (16, 1) and c.stride() == (20, 1)
        torch.mm(a, b, out=c)

    def sparse(crow, col, values, b, c, *, m, k):
        assert crow.dtype == col.dtype == torch.int32 and b.stride() == (1, k)
        torch.mm(torch.sparse_bsr_tensor(crow, col, values, (m, k)).to_dense(), b, out=c)

    warplap.add_variant("gemm", aside("gemm", "product"), product)
    assert raced("gemm:m=32,n=16,k=8,dtype=f32,a=col,lda=40,ldc=20", "product")["time_us"] > 0
    warplap.add_variant("bsr", aside("bsr", "sparse"), sparse, facts=lambda problem: {"m": 32, "k": 48})
    assert raced("bsr:m=32,k=48,n=5,bs=16,density=0.5,dtype=f32,b=col", "sparse")["time_us"] > 0


def test_torchs_forms_are_declared_once_and_all_of_them_join():
    forms = [(own, device) for own in register.declared() for device in own.devices]
    names = [(own.op, own.name, device) for own, device in forms]
    assert len(names) == len(set(names)) > 40
    for op, problem in (("topk_softmax", "topk_softmax:rows=4,n=8,k=2,dtype=f32"), ("attention", ATTENTION)):
        joined = [v["variant"] for v in warplap.explain(problem).variants]
        assert [v for v in joined if v.startswith("torch_")] == [n for o, n, d in names if (o, d) == (op, "cpu")]


def test_torchs_product_is_right_for_batches():
    assert raced("gemm:m=8,n=4,k=5,dtype=f32,batch=3", "torch_mm")["time_us"] > 0


def test_a_winner_gets_the_callers_own_tensors_and_its_answer_is_not_copied():
    code = f"""
import torch, torch.nn.functional as F, warplap
gave, got = [], []
def mine(q, k, v, mask=None):
    got[:] = [q, k, v]
    gave.append(F.scaled_dot_product_attention(q, k, v, mask))
    return gave[-1]
def product(a, b, c):
    got[:] = [a, b, c]
    torch.mm(a, b, out=c)
for op, text, call in (("attention", {ATTENTION!r}, mine), ("gemm", "gemm:m=4,n=4,k=4,dtype=f32", product)):
    for v in warplap.explain(text).variants:  # the callable takes the reference's place, the others stand aside
        fit = None if v["reference"] else lambda problem: "not asked"
        warplap.add_variant(op, v["variant"], call, fit, returns=op == "attention")
warplap.configure(in_memory=True, budget=0.05)
q, k, v = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
for _ in range(2):
    o = warplap.attention(q, k, v)
    assert o is gave[-1] and got[0] is q and got[1] is k and got[2] is v
apart = torch.empty(1, 2, 6, 16)[..., :8].copy_(q)
assert torch.equal(warplap.attention(apart, k, v), o) and got[0] is apart, "gaps are for the callable to follow"
into = torch.empty_like(q)
assert warplap.attention(q, k, v, out=into) is into and torch.equal(into, o)
a, b, c = torch.randn(4, 4), torch.randn(4, 4), torch.empty(4, 4)
assert warplap.matmul(a, b, out=c) is c and got[0] is a and got[1] is b and got[2] is c
assert warplap.explain(warplap.attention, q, k, v).variant == "reference"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_operators_are_found_by_every_name_they_have():
    a, q = torch.randn(8, 8), torch.randn(1, 2, 4, 8)
    s = torch.randn(16, 16).to_sparse_bsr((8, 8))
    for names, args in ((("matmul", "gemm", warplap.matmul), (a, a)), (("attention", "sdpa"), (q, q, q))):
        assert len({warplap.explain(name, *args).problem for name in names}) == 1
    assert (
        warplap.explain("bsr", s, torch.randn(16, 2)).problem
        == warplap.explain("bsr_matmul", s, torch.randn(16, 2)).problem
    )
    for name in ("sampled", "nothing", lambda: None):
        with pytest.raises(ValueError, match="^op:"):
            warplap.explain(name, a, a)


def test_torchs_own_function_gets_the_callers_arguments_as_they_are():
    code = """
import torch, torch.nn.functional as F, warplap
from warplap.candidates import register, torch_products as own
got = []
def layer(*args):
    got[:] = args
    return F.linear(*args)
def product(*args):
    got[:] = args
    return torch.mm(*args)
for v in warplap.explain("gemm:m=5,n=6,k=4,dtype=f32,b=col").variants:
    fit = None if v["reference"] else lambda problem: "not asked"
    register.add(
        "gemm", v["variant"], own._torch_linear, fit, facts=own._torch_linear_facts,
        give=own._torch_linear_new, _as_called={"linear": layer, "matmul": product},
    )
warplap.configure(in_memory=True, budget=0.05)
x, w, bias = torch.randn(5, 4), torch.randn(6, 4), torch.randn(6)
def same(args, own):
    return len(args) == len(own) and all(g is o for g, o in zip(args, own))
for _ in range(2):
    got.clear()
    y = warplap.linear(x, w, bias)
    assert same(got, (x, w, bias)) and torch.equal(y, F.linear(x, w, bias)), got
    assert torch.equal(warplap.linear(x, w), F.linear(x, w)) and same(got, (x, w, None)), got
    assert torch.equal(warplap.matmul(x, w.t()), F.linear(x, w)) and got[0] is x, got
    got.clear()
    torch.testing.assert_close(warplap.linear(x, w, bias, "relu"), F.linear(x, w, bias).relu())
    out = torch.empty(5, 6)
    torch.testing.assert_close(warplap.linear(x, w, bias, out=out), F.linear(x, w, bias))
    assert not got, "an activation and an output are not theirs"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
