"""torch.compile, opcheck, autocast, wrappers: the operators behave as torch's own; tracing measures nothing."""

from __future__ import annotations

import pytest
import torch
from conftest import near

import warplap


def samples(device):
    def rand(*shape):
        return torch.randn(*shape, device=device)

    a = torch.randn(32, 48).to_sparse_bsr((16, 16)).to(device)
    parts = a.crow_indices(), a.col_indices(), a.values().clone(), 32, 48
    q, k, v = (rand(2, 4, 6, 8) for _ in range(3))
    grad = lambda *ts: tuple(
        t.clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in ts
    )
    ops = torch.ops.warplap
    yield ops.matmul.default, (rand(5, 6), rand(6, 7))
    yield ops.matmul.default, grad(rand(5, 6), rand(6, 7))
    yield ops.matmul.default, (rand(6, 5).t(), rand(7, 6).t())
    yield ops.matmul_out.default, (rand(5, 6), rand(6, 7), rand(5, 7))
    yield ops.linear.default, (rand(5, 6), rand(7, 6), None)
    yield ops.linear.default, grad(rand(5, 6), rand(7, 6), rand(7))
    yield ops.linear_finished.default, (rand(5, 6), rand(7, 6), rand(7), "gelu", rand(5, 7), None)
    yield ops.linear_finished.default, grad(rand(5, 6), rand(7, 6), None, "silu", None, rand(5, 7))
    yield ops.attention.default, (q, k, v, None, True, 0.3)
    yield ops.attention.default, grad(q, k, v, rand(6, 6), False, 0.3)
    yield ops.attention.default, (q.transpose(1, 2).contiguous().transpose(1, 2), k, v, None, False, 0.3)
    yield ops.bsr_matmul.default, (*parts, rand(48, 5))
    yield ops.bsr_matmul.default, (*grad(*parts), *grad(rand(48, 5)))
    yield ops.bsr_matmul_out.default, (*parts, rand(48, 5), rand(32, 5))
    yield ops.bsr_sampled.default, (*parts[:2], *grad(rand(32, 5), rand(48, 5)), 16, 16)
    yield ops.bsr_sampled.default, (*parts[:2], rand(5, 32).t(), rand(48, 5), 16, 16)


@pytest.mark.parametrize("at", range(16))
def test_every_operator_passes_opcheck(at, device):
    op, args = list(samples(device))[at]
    torch.library.opcheck(op, args)


def test_every_operator_compiles_whole_with_dynamic_shapes_and_trains(device):
    layer = warplap.SparseLinear.from_dense(torch.nn.Linear(32, 48), torch.rand(3, 2) < 0.9, block=16).to(device)

    def model(x, w, bias, q):
        y = warplap.linear(x, w, bias, "relu")
        y = layer(warplap.matmul(y, w))
        return y.sum() + warplap.attention(q, q, q, is_causal=True).sum()

    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
        for rows in (4, 7, 12):
            x = torch.randn(rows, 32, device=device, requires_grad=True)
            w = torch.randn(24, 32, device=device, requires_grad=True)
            bias = torch.randn(24, device=device, requires_grad=True)
            q = torch.randn(1, 2, rows, 8, device=device, requires_grad=True)
            mine, right = compiled(x, w, bias, q), model(x, w, bias, q)
            near(mine, right, 1e-4)
            inputs = [x, w, bias, q, *layer.parameters()]
            for g, want in zip(torch.autograd.grad(mine, inputs), torch.autograd.grad(right, inputs)):
                near(g, want, 1e-3)


def test_shapes_that_change_recompile_nothing():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda a, b: warplap.matmul(a, b), fullgraph=True, dynamic=True, backend=counter)
    for m in (3, 5, 8, 13):
        a, b = torch.randn(m, 6), torch.randn(6, m + 1)
        near(compiled(a, b), a @ b)
    assert counter.frame_count == 1


def test_tracing_measures_nothing(own_store):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a = torch.empty(64, 64)
        assert warplap.matmul(a, a).shape == (64, 64)
        assert warplap.attention(*(torch.empty(1, 2, 8, 16) for _ in range(3))).shape == (1, 2, 8, 16)
    torch.fx.experimental.proxy_tensor.make_fx(lambda x: warplap.matmul(x, x) * 2, tracing_mode="fake")(
        torch.randn(8, 8)
    )
    meta = torch.empty(3, 3, device="meta")
    assert warplap.matmul(meta, meta).device.type == "meta"
    assert warplap.store.ls() == []


def test_real_tracing_sees_the_operator():
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: warplap.matmul(x, x) * 2)(torch.randn(8, 8))
    assert "warplap.matmul" in graph.code


def test_autocast_casts_as_for_torchs_own_products(device):
    a, b = torch.randn(4, 6, device=device), torch.randn(6, 5, device=device)
    with torch.autocast(device, torch.bfloat16):
        c = warplap.matmul(a, b)
        assert c.dtype == torch.bfloat16
        assert warplap.linear(a, b.t()).dtype == torch.bfloat16
        q = torch.randn(1, 2, 4, 8, device=device)
        assert warplap.attention(q, q, q).dtype == torch.bfloat16
    near(c, a @ b, 3e-2)


def test_subclasses_and_wrapped_tensors_are_not_misread():
    class Mine(torch.Tensor):
        pass

    a = torch.randn(4, 4)
    near(warplap.matmul(a.as_subclass(Mine), a).as_subclass(torch.Tensor), a @ a)
    negative = torch.view_as_complex(torch.randn(4, 4, 2)).conj().imag
    assert negative.is_neg()
    near(warplap.matmul(negative, a), negative.clone() @ a)
    with torch.inference_mode():
        near(warplap.matmul(a * 1, a), a @ a)
    with pytest.raises(Exception):  # no batching rule: an error of torch's, not a wrong answer
        torch.vmap(lambda x: warplap.matmul(x, a))(torch.randn(3, 4, 4)).sum().item()
        raise RuntimeError("vmap gave something")
