"""vLLM's IR operators by warplap.norm: real vLLM's registry, dispatch and compiler passes, on the CPU."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("vllm")

import torch
from vllm import ir
from vllm.config import CompilationConfig, KernelConfig, VllmConfig, set_current_vllm_config
from vllm.config.kernel import IrOpPriorityConfig

import warplap
from warplap.vllm import ir as ours
from warplap.vllm import register

SHAPES = [(1, 64), (7, 256), (3, 5, 96)]


@pytest.fixture(autouse=True)
def offered(own_store):
    register()
    ours.forget()
    yield
    ours.forget()


def inputs(shape, dtype, name, has_weight=True):
    x, residual = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight = torch.rand(shape[-1]).to(dtype) if has_weight else None
    return (x, weight, 1e-6) if name == "rms_norm" else (x, residual, weight, 1e-6)


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def same(name, got, args):
    """Within what vLLM itself allows for its operator."""
    operation = getattr(ir.ops, name)
    for g, r in zip(outputs(got), outputs(operation.impls["native"].impl_fn(*args)), strict=True):
        assert g.dtype == r.dtype and g.is_contiguous()
        torch.testing.assert_close(g, r, **operation.get_tolerance(r.dtype))


@pytest.fixture(params=["theirs", "ours"])
def answers(request, monkeypatch):
    """Whether a record says that a kernel of ours has won."""
    monkeypatch.setattr(ours, "_find", lambda *_: request.param == "ours")
    return request.param


@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_gives_what_native_gives(name, dtype, answers, monkeypatch):
    called = []
    theirs = ours._theirs
    monkeypatch.setattr(ours, "_theirs", lambda *args: called.append(args[0]) or theirs(*args))
    operation = getattr(ir.ops, name)
    for shape in SHAPES:
        for has_weight in (True, False):
            args = inputs(shape, dtype, name, has_weight)
            before = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            with operation.set_priority(["warplap"]):
                assert operation.dispatch(*args).provider == "warplap"
                got = operation(*args)
            same(name, got, before)
            assert all(torch.equal(a, b) for a, b in zip(args, before) if isinstance(a, torch.Tensor))
    assert called == ([name] * 2 * len(SHAPES) if answers == "theirs" else [])


@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm"])
def test_what_it_cannot_do_goes_to_the_next_on_the_list(name):
    operation = getattr(ir.ops, name)
    x, *rest = inputs((4, 64), torch.bfloat16, name)
    wide = [None if t is None else t.float() if isinstance(t, torch.Tensor) else t for t in rest]
    with operation.set_priority(["warplap", "native"]):
        assert operation.dispatch(x, *rest).provider == "warplap"
        assert operation.dispatch(x, *rest, 32).provider == "native"
        assert operation.dispatch(x, *wide).provider == "native"
        assert operation.dispatch(x.double(), *rest).provider == "native"
        same(name, operation(x, *rest, 32), (x, *rest, 32))


def test_nobody_gets_it_who_does_not_ask():
    for text in (["native"], ["warplap", "native"]):
        kernels = KernelConfig(ir_op_priority=IrOpPriorityConfig(rms_norm=list(text)))
        config = VllmConfig(kernel_config=kernels)
        assert config.kernel_config.ir_op_priority.rms_norm[: len(text)] == text
        assert "warplap" not in config.kernel_config.ir_op_priority.fused_add_rms_norm
    each = (KernelConfig(ir_op_priority=IrOpPriorityConfig(rms_norm=[p])) for p in ("native", "warplap"))
    assert len({config.compute_hash() for config in each}) == 2, "compiled graphs of both are kept apart"


def test_registering_again_changes_nothing():
    first = ir.ops.rms_norm.impls["warplap"]
    register()
    assert ir.ops.rms_norm.impls["warplap"] is first and first.supported


@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm"])
def test_compiled_as_vllm_compiles(name, answers):
    from vllm.compilation.passes.ir.lowering_pass import VllmIRLoweringPass

    config = VllmConfig(compilation_config=CompilationConfig())
    operation = getattr(ir.ops, name)
    with set_current_vllm_config(config), operation.set_priority(["warplap", "native"]):
        lowering = VllmIRLoweringPass(config)
        seen = {}

        def passes(graph):
            lowering(graph)
            seen.update(lowering.selected_impls.get(name, {}))
            seen["graph"] = str(graph)

        torch._dynamo.reset()
        options = {"post_grad_custom_post_pass": passes, "fx_graph_cache": False}
        call = torch.compile(lambda *a: operation(*a), fullgraph=True, dynamic=True, options=options)
        with torch.no_grad():
            for rows in (4, 9):
                args = inputs((rows, 64), torch.bfloat16, name)
                same(name, call(*args), args)
    assert "warplap" in seen.values() and "warplap.served_norm" in seen["graph"]


def test_nothing_is_measured_unless_somebody_says_so(monkeypatch):
    x, weight, eps = inputs((16, 128), torch.float32, "rms_norm")
    monkeypatch.delenv("WARPLAP_VLLM_MODE", raising=False)
    monkeypatch.delenv("WARPLAP_MODE", raising=False)
    assert not ours.is_won(x, False, True, eps) and warplap.store.ls() == []
    ours.forget()
    monkeypatch.setenv("WARPLAP_VLLM_MODE", "tune")
    monkeypatch.setenv("WARPLAP_VLLM_BUDGET", "0.3")
    ours.is_won(x, False, True, eps)
    (row,) = warplap.store.ls("norm")
    monkeypatch.delenv("WARPLAP_VLLM_MODE")
    ours.forget()
    text = warplap.ops.norm.problem.prepared((16, 128), torch.float32, False, True, False, "rms", eps).problem
    verdict = json.loads(warplap._warplap.explain(text))["edition"]["verdict"]
    assert ours.is_won(x, False, True, eps) == (not verdict["winner"]["variant"].startswith("torch_"))
    assert [r["hash"] for r in warplap.store.ls("norm")] == [row["hash"]]


def test_a_store_that_cannot_be_read_leaves_it_to_vllm(monkeypatch, tmp_path):
    monkeypatch.setattr(ours, "_find", lambda *_: 1 / 0)
    args = inputs((4, 64), torch.float32, "rms_norm")
    with ir.ops.rms_norm.set_priority(["warplap"]):
        same("rms_norm", ir.ops.rms_norm(*args), args)
