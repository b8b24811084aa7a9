"""norm_linear: an RMSNorm and the layer behind it as one product, alone and in graphs whose weights stay as they are."""

import numpy
import pytest
import torch
import torch.nn.functional as F

import warplap
from warplap.fusing.plan import Plan
from warplap.fusing.race.forms import Form, Inductor
from warplap.fusing.race.whole import Whole
from warplap.ops.products import folded_weights

TYPES = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def quick(tmp_path):
    warplap.configure(store=str(tmp_path), budget=0.2)
    folded_weights.forget()
    yield
    folded_weights.forget()


def made(rows, k, n, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(rows, k).to(dtype)
    return x, fixed((torch.randn(n, k) * k**-0.5).to(dtype)), fixed((torch.rand(k) + 0.5).to(dtype))


def fixed(t):
    return torch.nn.Parameter(t, requires_grad=False)


def right(x, w, gain=None, up=None, bias=None, activation=None, residual=None, times=None, eps=1e-6):
    wide = lambda t: None if t is None else t.double()
    x, w, gain, up, bias, residual, times = map(wide, (x, w, gain, up, bias, residual, times))
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = y if gain is None else y * gain
    acts = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"), "silu": F.silu}
    z = F.linear(y, w, bias)
    z = acts[activation](z) if activation else z
    if up is not None:
        return z * F.linear(y, up)
    z = z if residual is None else z + residual
    return z if times is None else z * times


def near(got, want, dtype):
    most = (got.double() - want).abs().max().item() / want.abs().max().item()
    assert most < TYPES[dtype], most


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["tune", "off"])
def test_it_is_a_norm_and_a_layer(dtype, mode):
    x, w, gain = made(9, 72, 40, dtype)
    b, r = torch.randn(40).to(dtype), torch.randn(9, 40).to(dtype)
    up = fixed(torch.randn(40, 72).to(dtype) * 0.1)
    with warplap.tuning() if mode == "tune" else warplap.off():
        for more in (
            {}, {"gain": gain}, {"gain": gain, "bias": b, "activation": "gelu"}, {"gain": gain, "residual": r},
            {"activation": "silu", "times": r}, {"gain": gain, "up": up, "activation": "silu"}, {"eps": 0.5},
        ):  # fmt: skip
            arguments = {("weight" if name == "gain" else name): t for name, t in more.items()}
            near(warplap.norm_linear(x, w, **arguments), right(x, w, **more), dtype)
    near(warplap.norm_linear(x.view(3, 3, 72), w, gain).view(9, 40), right(x, w, gain), dtype)


def test_numpy_arrays_come_back_as_such():
    x, w, gain = made(9, 72, 40)
    got = warplap.norm_linear(x.numpy(), w.numpy(), gain.numpy(), activation="silu", up=w.numpy())
    assert isinstance(got, numpy.ndarray)
    near(torch.from_numpy(got), right(x, w, gain, up=w, activation="silu"), torch.float32)


def test_gradients_are_those_of_a_norm_and_a_layer():
    x, w, gain = (t.detach().clone().requires_grad_() for t in made(5, 24, 16))
    wide = [t.detach().double().requires_grad_() for t in (x, w, gain)]
    for more in ({"activation": "silu"}, {"residual": torch.randn(5, 16)}):
        got = torch.autograd.grad(warplap.norm_linear(x, w, gain, **more).sum(), (x, w, gain))
        want = torch.autograd.grad(right(*wide, **more).sum(), wide)
        for a, b in zip(got, want):
            assert torch.allclose(a.double(), b, rtol=1e-4, atol=1e-5)


def test_a_weight_that_changed_in_place_is_folded_anew_and_freed_with_it():
    x, w, gain = made(4, 16, 8)
    first = warplap.norm_linear(x, w, gain)
    assert len(folded_weights._folded) == 1
    kept = folded_weights._folded[w].made
    assert warplap.norm_linear(x, w, gain).equal(first) and folded_weights._folded[w].made is kept
    w.mul_(2.0)
    near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    gain.add_(1.0)
    near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    with torch.no_grad():
        other = fixed(torch.rand(16) + 2.0)
        near(warplap.norm_linear(x, w, other), right(x, w, other), torch.float32)
        near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    del w, kept
    assert len(folded_weights._folded) == 0, "what is gone is not kept"


def test_what_a_program_computes_is_a_norm_and_a_layer_and_never_kept():
    x, w, gain = (t.detach().clone() for t in made(4, 16, 8))
    near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    w.data.mul_(2.0)  # nobody counts that
    near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    near(warplap.norm_linear(x, fixed(w), gain), right(x, w, gain), torch.float32)
    assert not len(folded_weights._folded)


def test_forgetting_frees_what_was_folded():
    x, w, gain = made(4, 16, 8)
    warplap.norm_linear(x, w, gain)
    w.data.mul_(2.0)
    warplap.forget_folded()
    near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)


def test_autocast_casts_as_torch_does():
    x, w, gain = made(9, 72, 40)
    r = torch.randn(9, 40)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        got = warplap.norm_linear(x, w, gain, residual=r)
    assert got.dtype == torch.float32
    near(got, right(x, w, gain, residual=r), torch.bfloat16)


def test_tensors_of_inference_mode_are_not_folded():
    with torch.inference_mode():
        x, w, gain = made(4, 16, 8)
        near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
        w.mul_(2.0)
        near(warplap.norm_linear(x, w, gain), right(x, w, gain), torch.float32)
    assert not len(folded_weights._folded)


def test_torchs_norm_and_product_race_too_and_the_problem_says_so():
    x, w, gain = made(9, 72, 40)
    warplap.norm_linear(x, w, gain)
    text = warplap.explain(warplap.norm_linear, x, w, gain).problem
    assert text.startswith("gemm:m=9,n=40,k=72") and "rms=0.000001" in text
    explanation = str(warplap.explain(text))
    assert "torch_linear" in explanation


@pytest.mark.parametrize(
    "name, change, says",
    [
        ("eps", {"eps": 0.0}, "eps"),
        ("times", {"residual": torch.ones(9, 40), "times": torch.ones(9, 40)}, "times"),
        ("up", {"up": torch.ones(40, 72), "bias": torch.ones(40)}, "up"),
        ("up's shape", {"up": torch.ones(41, 72)}, "up"),
        ("weight", {"weight": torch.ones(40)}, "weight"),
        ("one weight for all", {"weight": torch.ones(1)}, "weight"),
        ("residual", {"residual": torch.ones(9, 41)}, "residual"),
        ("activation", {"activation": "swish"}, "activation"),
    ],
)
def test_what_is_wrong_is_named(name, change, says):
    x, w, _ = made(9, 72, 40)
    with pytest.raises((ValueError, TypeError), match=says):
        warplap.norm_linear(x, w, **change)
    arrays = {key: t.numpy() if isinstance(t, torch.Tensor) else t for key, t in change.items()}
    with pytest.raises((ValueError, TypeError), match=says):
        warplap.norm_linear(x.numpy(), w.numpy(), **arrays)


def block(x, r, gain, wq, wk, wv, gate, up, down):
    h = F.rms_norm(x, (x.shape[-1],), gain, 1e-6)
    q, k, v = F.linear(h, wq), F.linear(h, wk), F.linear(h, wv)
    y = q + k + v + r
    h = F.rms_norm(y, (x.shape[-1],), gain, 1e-6)
    return y + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)


def inputs(k=32):
    torch.manual_seed(1)
    square = [torch.randn(k, k) * k**-0.5 for _ in range(3)]
    return torch.randn(7, k), torch.randn(7, k), torch.rand(k) + 0.5, *square, *(torch.randn(k, k) * 0.2 for _ in range(3))


def plan_of(frozen):
    torch._dynamo.reset()
    graphs = []
    block_inputs = inputs()
    torch.compile(block, backend=lambda module, taken: graphs.append((module, taken)) or module.forward)(*block_inputs)
    return Plan(graphs[0][0], frozen), block_inputs, graphs[0][1]


def test_frozen_graphs_have_norms_inside_their_products_and_others_do_not():
    plan, block_inputs, taken = plan_of(True)
    assert {"norm_linears_3", "norm_gated_linear_silu"} <= set(plan.kinds), plan.kinds
    partition = plan.partition(["norm_linears_3", "norm_gated_linear_silu"])
    assert partition is not None
    got = plan.rewritten(partition.covers)(*taken)
    got = got[0] if isinstance(got, (tuple, list)) else got
    near(got, block(*(t.double() for t in block_inputs)), torch.float32)
    assert not any(kind.startswith("norm_linear") or "norm_gated" in kind for kind in plan_of(False)[0].kinds)


class Block(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        torch.manual_seed(2)
        self.gain = fixed(torch.rand(k) + 0.5)
        self.q, self.gate, self.up, self.down = (fixed(torch.randn(k, k) * k**-0.5) for _ in range(4))

    def forward(self, x):
        y = F.linear(F.rms_norm(x, x.shape[-1:], self.gain, 1e-6), self.q) + x
        h = F.rms_norm(y, x.shape[-1:], self.gain, 1e-6)
        return y + F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


def test_a_frozen_module_runs_with_folded_weights():
    torch._dynamo.reset()
    module, x = Block(64), torch.randn(7, 64)
    want = Block(64).double()(x.double())
    graphs = []
    torch.compile(module, backend=lambda g, taken: graphs.append((g, taken)) or g.forward)(x)
    (graph, taken), inductor = graphs[0], Inductor(None, None)
    plan = Plan(graph, True)
    kinds = [kind for kind in plan.kinds if kind in ("norm_linear_add", "norm_gated_linear_silu")]
    form = Form(plan, plan.partition(kinds), True, inductor)
    assert len(kinds) == 2 and form.partition is not None
    with torch.no_grad():
        near(Whole(form, tuple(taken), {})()[0], want, torch.float32)
    assert len(folded_weights._folded) == 3
    module.q.mul_(2.0)
    fresh = Block(64).double()
    fresh.q.mul_(2.0)
    with torch.no_grad():
        near(Whole(form, tuple(taken), {})()[0], fresh(x.double()), torch.float32)


def test_fuse_decides_about_frozen_weights(tmp_path):
    torch._dynamo.reset()
    block_inputs = inputs(64)
    fused = warplap.fuse(block, freeze=True)
    with torch.no_grad():
        near(fused(*block_inputs), block(*(t.double() for t in block_inputs)), torch.float32)
    (decision,) = fused.decisions
    assert "frozen=true" in decision.key and "norm_gated_linear_silu" in decision.plan.kinds
