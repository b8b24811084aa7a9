"""norm with quant: codes and factors are right in every form, go straight into products, and have no gradient."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from test_norm import drawn, right

import warplap
from warplap.ops import dropout
from warplap.ops.norm import quantized as norm_quantized

FORMATS = {"fp8": (448.0, torch.float8_e4m3fn), "int8": (127.0, torch.int8)}


def judged(codes, scale, y, quant, slack=1e-4):
    """Whether codes are no farther than half a step from what they stand for, and factors are those of the rows."""
    top, dtype = FORMATS[quant]
    assert codes.dtype == dtype and codes.shape == y.shape and codes.is_contiguous()
    assert scale.dtype == torch.float32 and scale.shape == (*y.shape[:-1], 1)
    most = y.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(scale.double(), most / top, rtol=1e-5, atol=1e-12)
    exact = y / (most / top)
    # Half a step: of the number's own exponent, or of the smallest ones.
    exponents = torch.frexp(exact.abs().clamp(min=2.0**-6)).exponent.double() - 1
    step = torch.full_like(exact, 0.5) if quant == "int8" else torch.exp2(exponents - 4)
    off = (codes.double() - exact).abs() - step - slack * (1 + exact.abs())
    assert off.max() <= 0, f"{off.max()} beyond half a step"
    assert codes.double().abs().amax(-1).min() == top


@pytest.mark.parametrize("quant", FORMATS)
@pytest.mark.parametrize("kind,residual,bias", list(itertools.product(("rms", "layer"), (False, True), (False, True))))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_form_is_right_in_every_type(quant, kind, residual, bias, dtype, device):
    for shape in ((7, 33), (2, 3, 64), (50,)):
        x, r, w, b = drawn(shape, residual, True, bias, dtype, device)
        codes, scale, *total = warplap.norm(x, w, b, residual=r, kind=kind, eps=1e-3, quant=quant)
        y, s = right(x, r, w, b, kind, 1e-3)
        judged(codes, scale, y, quant)
        assert len(total) == residual and (not residual or torch.equal(total[0], s.to(dtype)))


@pytest.mark.parametrize("quant", FORMATS)
def test_what_stands_in_front_is_followed_by_codes(quant, device):
    x, r, w, b = drawn((6, 80), True, True, True, torch.bfloat16, device)
    front, seed = torch.randn(80, device=device).bfloat16(), torch.tensor([5, 9], device=device)
    options = {"residual": r, "kind": "layer", "before": front, "dropout": 0.3, "seed": seed}
    codes, scale, total = warplap.norm(x, w, b, **options, quant=quant)
    factors = dropout.factors(x.numel(), seed, 0.3).view(x.shape)
    s = (x.double() + front.double()) * factors.double() + r.double()
    judged(codes, scale, right(s, None, w, b, "layer")[0], quant)
    assert torch.equal(total, warplap.norm(x, w, b, **options)[1])


@pytest.mark.parametrize("quant", FORMATS)
def test_rows_of_zeros_give_zeros_and_nothing_gives_nothing(quant, device):
    x = torch.randn(4, 40, device=device)
    x[1] = 0
    for result in (warplap.norm(x, quant=quant), norm_quantized.coded(right(x, None, None, None, "rms")[0], quant)):
        codes, scale = result
        assert codes[1].float().abs().max() == 0 and 0 < scale[1] < 1e-30 and bool(scale.isfinite().all())
    x[2, 3] = float("nan")
    assert bool(warplap.norm(x, quant=quant)[1].isnan()[2])
    for shape in ((0, 5), (3, 0)):
        codes, scale = warplap.norm(torch.empty(shape, device=device), quant=quant)
        assert codes.shape == shape and scale.shape == (shape[0], 1) and bool(scale.isfinite().all())


def test_codes_go_straight_into_products(device):
    x, r, w, _ = drawn((48, 256), True, True, False, torch.bfloat16, device)
    layer = torch.randn(64, 256, device=device) / 16
    y = right(x, r, w, None, "rms")[0]
    # A layer's rows are quantised as a norm's are.
    for quant in FORMATS:
        codes, scale, _ = warplap.norm(x, w, residual=r, quant=quant)
        turned, of_layer = norm_quantized.coded(layer, quant)
        if quant == "fp8":
            got = warplap.scaled_mm(codes, turned.t(), scale, of_layer.t(), out_dtype=torch.bfloat16).double()
        else:
            got = warplap.int_mm(codes, turned.t()).double() * scale.double() * of_layer.t().double()
        expected = y @ layer.double().t()
        assert (got - expected).norm() / expected.norm() < (0.05 if quant == "fp8" else 0.02)


@pytest.mark.parametrize("quant", FORMATS)
def test_there_is_no_gradient_and_who_asks_is_told(quant):
    x, r, w, _ = drawn((3, 8), True, True, False)
    w.requires_grad_(True)
    with pytest.raises(NotImplementedError, match=r"^quant: .*weight requires one.*no_grad"):
        warplap.norm(x, w, residual=r, quant=quant)
    with torch.no_grad():
        assert not warplap.norm(x, w, residual=r, quant=quant)[2].requires_grad


def test_what_is_wrong_is_named():
    x = torch.ones(3, 4)
    for change, error, name in (
        ({"quant": "fp4"}, ValueError, "quant"),
        ({"quant": "fp8", "kind": "batch"}, ValueError, "kind"),
        ({"quant": "fp8", "weight": torch.ones(5)}, ValueError, "weight"),
        ({"quant": "fp8", "weight": torch.ones(4).half()}, TypeError, "weight"),
        ({"quant": "int8", "dropout": 1.0}, ValueError, "dropout"),
    ):
        with pytest.raises(error, match=f"^{name}: "):
            warplap.norm(x, change.pop("weight", None), **change)
    with pytest.raises(TypeError, match="^x: .*quant"):
        warplap.norm(np.ones((3, 4), np.float32), quant="int8")


@pytest.mark.parametrize("quant", FORMATS)
def test_it_compiles_whole_and_keeps_torchs_rules(quant, device):
    def block(x, r, w):
        codes, scale, total = warplap.norm(x * 2, w, residual=r, quant=quant)
        more, factor = warplap.norm(total, quant=quant)
        return codes.float() * scale + more.float() * factor

    x, r, w, b = drawn((5, 2, 16), True, True, True, device=device)
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 9):
        x, r, w, _ = drawn((rows, 2, 16), True, True, False, device=device)
        torch.testing.assert_close(compiled(x, r, w), block(x, r, w), rtol=0.1, atol=0.1)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    alone = torch.ops.warplap.norm_quant.default
    torch.library.opcheck(alone, (x, w, b, True, 1e-5, quant), test_utils=tests)
    fronted = torch.ops.warplap.norm_front_quant.default
    torch.library.opcheck(fronted, (x, r, None, None, w, b, True, 1e-5, 0.0, quant), test_utils=tests)


def test_torch_races_and_doubles_are_torchs(device):
    x, r, w, _ = drawn((16, 128), True, True, False, torch.bfloat16, device)
    tuned = warplap.tune([(warplap.norm, x, w, {"residual": r, "quant": "fp8"})])[0]
    assert tuned.problem == "norm:rows=16,n=128,dtype=bf16,kind=rms,residual=true,quant=f8e4m3"
    explanation = warplap.explain(warplap.norm, x, w, residual=r, quant="int8")
    fits = {v["variant"]: v["fits"] for v in explanation.variants}
    assert fits["torch_norm_quant"] and fits["reference"] and not fits["torch_norm"]
    table = str(warplap.benchmark(warplap.norm, x, w, quant="int8"))
    assert "torch_norm_quant" in table
    codes, scale = warplap.norm(x.double(), w.double(), quant="int8")
    judged(codes, scale, right(x, None, w, None, "rms")[0], "int8")


@pytest.mark.parametrize("quant", FORMATS)
@pytest.mark.parametrize("kind", ("rms", "layer"))
def test_torch_s_steps_are_a_right_answer(quant, kind, device):
    x, r, w, b = drawn((9, 300), True, True, True, torch.bfloat16, device)
    codes, total, scale = norm_quantized.by_torch(x, r, w, b, layer=kind == "layer", eps=1e-5, quant=quant)
    y, s = right(x, r, w, b, kind)
    judged(codes, scale[:, None], y, quant)
    assert torch.equal(total, s.to(x.dtype))
