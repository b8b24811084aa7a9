"""Programs that torch.compile makes call kernels without torch's dispatcher; who watches still sees operators."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from torch._inductor.utils import fresh_cache, run_and_get_code

import warplap

MASK = torch.tensor([[True, False, True], [False, True, False]])


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()


@pytest.fixture
def counted(monkeypatch):
    """How often compiled programs called what computes an operator."""
    calls = {}

    def count(name):
        run = getattr(torch.ops.warplap, f"run_{name}")

        def called(*args):
            calls[name] = calls.get(name, 0) + 1
            return run(*args)

        monkeypatch.setattr(torch.ops.warplap, f"run_{name}", called)

    rest = ("linear_finished", "attention", "norm", "norm_add", "bsr_matmul", "bsr_linear", "bsr_sampled")
    for name in ("matmul", "linear", *rest):
        count(name)
    return calls


def layer():
    return warplap.SparseLinear.from_dense(torch.nn.Linear(24, 16), MASK, 8)


def test_a_sparse_layer_and_its_gradients_are_calls_of_functions(counted):
    sparse, x = layer(), torch.randn(3, 24, requires_grad=True)
    compiled = torch.compile(sparse, fullgraph=True)
    y, (code, *_) = run_and_get_code(compiled, x)
    assert "torch.ops.warplap.run_bsr_linear(" in code and "bsr_linear.default(" not in code
    inputs, along = [x, sparse.values, sparse.bias], torch.randn(3, 16)
    right = torch.autograd.grad(sparse(x), inputs, along)
    for mine, theirs in zip(torch.autograd.grad(y, inputs, along), right):
        near(mine, theirs)
    assert counted == {"bsr_linear": 2, "bsr_sampled": 1}
    with torch.no_grad():
        near(compiled(x), sparse(x))
        near(compiled(x), sparse(x))
    assert counted == {"bsr_linear": 4, "bsr_sampled": 1}


def test_every_operator_is_called_so_and_answers_as_it_promised(counted):
    s = torch.randn(16, 24).to_sparse_bsr((8, 8))
    parts = *(t.clone() for t in (s.crow_indices(), s.col_indices(), s.values())), 16, 24

    def model(x, w, q):
        y = warplap.linear(x.t(), w[:, 1:], activation="relu") + warplap.linear(x.t(), w[:, 1:])
        y = warplap.matmul(y.t(), y)
        z, total = warplap.norm(warplap.norm(y), residual=y)
        product = torch.ops.warplap.bsr_matmul(*parts, z[:1, :1].expand(24, 3).contiguous())
        seen = warplap.attention(q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2))
        return y, z, total, product, seen

    x, w, q = torch.randn(7, 3), torch.randn(4, 8), torch.randn(2, 5, 3, 8)
    got, right = torch.compile(model, fullgraph=True)(x, w, q), model(x, w, q)
    for mine, theirs in zip(got, right):
        near(mine, theirs)
        assert mine.stride() == theirs.stride()
    assert set(counted) == {"matmul", "linear", "linear_finished", "attention", "norm", "norm_add", "bsr_matmul"}


def test_who_profiles_or_watches_sees_the_operator():
    sparse, x = layer(), torch.randn(3, 24)
    compiled = torch.compile(sparse)
    with torch.no_grad():
        compiled(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            compiled(x)
        assert "warplap::bsr_linear" in {event.key for event in profile.key_averages()}
        with Seen() as seen:
            torch.ops.warplap.run_bsr_linear(sparse.crow, sparse.col, sparse.values, None, 16, x, False)
        assert any("warplap.bsr_linear" in name for name in seen.names), seen.names
    # Whoever keeps gradients gets them: such a call is not for a function to answer.
    y = torch.ops.warplap.run_bsr_linear(sparse.crow, sparse.col, sparse.values, None, 16, x, False)
    assert y.requires_grad
    near(y.detach(), F.linear(x, sparse.to_dense().weight).detach())


def test_a_torch_without_the_registry_goes_through_the_dispatcher(monkeypatch):
    from torch._inductor.codegen.custom_extern_kernel_codegen import CUSTOM_EXTERN_KERNEL_CODEGEN

    from warplap.operator import compile as compile_

    for name in compile_._names:
        monkeypatch.delitem(CUSTOM_EXTERN_KERNEL_CODEGEN, name, raising=False)
    monkeypatch.setattr(compile_, "_is_announced", False)
    monkeypatch.setattr(compile_, "_REGISTRY", "torch._inductor.there_is_none")
    sparse, x = layer(), torch.randn(3, 24)
    with torch.no_grad():
        y, (code, *_) = run_and_get_code(torch.compile(sparse), x)
    near(y, sparse(x).detach())
    assert "torch.ops.warplap.bsr_linear.default(" in code


def test_a_deep_model_is_compiled_without_writing_all_of_it_into_a_log(monkeypatch):
    from torch._inductor import ir, lowering

    from warplap.operator import compile as announced

    written = []
    op = torch.ops.warplap.softmax.default
    lowering.lowerings.pop(op, None)  # as in a new process
    monkeypatch.setattr(announced, "_is_announced", False)
    monkeypatch.setattr(ir.IRNode, "str_helper", lambda self, lines, **_: written.append(1) or "")

    x = torch.randn(4, 8)
    with torch.no_grad():
        near(torch.compile(lambda x: warplap.softmax(chain_of(x)))(x), torch.softmax(chain_of(x), -1))
    assert op in lowering.lowerings and not written


def chain_of(x):
    for _ in range(24):
        x = x + torch.sigmoid(x * 2 + x)
    return x
