"""The entry points never crash: whatever comes in, a right answer or a Python exception goes out."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from conftest import near

import warplap

EXPECTED = (TypeError, ValueError, NotImplementedError)


def odd_tensor(rng: random.Random, like=None):
    """A tensor with anything about it that can be odd."""
    dtype = rng.choice(
        [torch.float32] * 4 + [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64]
    )
    ndim = rng.choice([0, 1, 2, 2, 2, 2, 3, 4, 5])
    shape = [rng.choice([0, 1, 2, 3, 8, 8, 16]) for _ in range(ndim)]
    t = torch.randn(shape).to(dtype) if dtype != torch.complex64 else torch.randn(shape, dtype=dtype)
    for _ in range(rng.choice([0, 0, 1, 2])):
        turn = rng.choice(["t", "step", "expand", "narrow", "flip", "grad", "neg", "sparse", "meta", "numpy", "conj"])
        if turn == "t" and t.ndim >= 2:
            t = t.transpose(-1, -2)
        elif turn == "step" and t.ndim:
            t = t[..., ::2]
        elif turn == "expand" and t.ndim:
            t = t.unsqueeze(0).expand(4, *t.shape)
        elif turn == "narrow" and t.ndim and t.shape[0] > 1:
            t = t[1:]
        elif turn == "flip" and t.ndim:
            t = t.flip(0)
        elif turn == "grad" and t.is_floating_point():
            t = t.detach().requires_grad_()
        elif turn == "conj" and t.is_complex():
            t = t.conj().imag
    final = rng.choice(["", "", "", "", "numpy", "meta", "sparse", "none", "list", "bsr"])
    if final == "numpy" and t.dtype != torch.bfloat16:
        return t.detach().resolve_conj().resolve_neg().numpy()
    if final == "meta":
        return t.to("meta")
    if final == "sparse" and t.ndim:
        return t.detach().to_sparse()
    if (
        final == "bsr"
        and t.ndim == 2
        and t.shape[0] % 8 == 0
        and t.shape[1] % 8 == 0
        and t.numel()
        and t.dtype != torch.bool
    ):
        return t.detach().to_sparse_bsr((8, 8))
    return {"none": None, "list": [1.0, 2.0]}.get(final, t)


def fitting(rng: random.Random):
    """Three square tensors of one type that fit each other in every operator, each lying in its own way."""
    size, dtype = rng.choice([1, 3, 8, 16]), rng.choice([torch.float32, torch.float16, torch.bfloat16])
    lead = rng.choice([(), (), (), (2,), (1, 3)])

    def one():
        wide = torch.randn(*lead, 2 * size, 3 * size).to(dtype)
        ways = [
            wide[..., :size, :size].contiguous(),
            wide[..., :size, :size],
            wide[..., ::2, :size],
            wide[..., :size, ::3],
        ]
        ways += [wide[..., :size, :1].expand(*lead, size, size), wide[..., :size, :size].transpose(-1, -2)]
        ways += [wide[..., :size, :size].contiguous().requires_grad_()]
        return rng.choice(ways)

    first = one()
    if not lead and size % 8 == 0 and rng.random() < 0.3:
        first = first.detach().contiguous().to_sparse_bsr((8, 8))
    return [first, one(), one()]


def normed(rows):
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-5)


def kind(value):
    """The name of a tensor's type."""
    return str(getattr(value, "dtype", ""))


def dense(value):
    t = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    return (t.to_dense() if t.layout != torch.strided else t).detach().double()


# Right answers of each operator over all seeds: a fuzz that only ever meets exceptions proves little.
RIGHT = {"matmul": 0, "attention": 0, "bsr": 0, "linear": 0, "biased": 0, "out": 0, "norm": 0, "norm_add": 0}


@pytest.mark.parametrize("seed", range(6))
def test_any_arguments_give_a_right_answer_or_an_exception(seed, device):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    warplap.set_mode("off")
    for _ in range(250 if device == "cpu" else 15):  # on a GPU most calls compile a kernel
        args = [odd_tensor(rng) for _ in range(3)]
        if rng.random() < 0.5:
            args = fitting(rng)
        if device != "cpu":
            moves = lambda a: isinstance(a, torch.Tensor) and not a.is_meta and rng.random() < 0.95
            args = [a.to(device) if moves(a) else a for a in args]
        plain = lambda t: getattr(t, "ndim", 0) == 2 and getattr(t, "layout", torch.strided) == torch.strided
        row = lambda t: t[0] if plain(t) and len(t) else t
        flip = lambda t: t.T if plain(t) and rng.random() < 0.5 else t
        calls = {
            "matmul": (lambda a, b, c: warplap.matmul(a, b), lambda a, b, c: dense(a) @ dense(b)),
            "linear": (lambda a, b, c: warplap.linear(a, b, None), lambda a, b, c: dense(a) @ dense(b).T),
            "biased": (
                lambda a, b, c: warplap.linear(a, b, row(c), "relu"),
                lambda a, b, c: (dense(a) @ dense(b).T + dense(row(c))).relu(),
            ),
            "attention": (
                lambda a, b, c: warplap.attention(a, b, c, is_causal=bool(seed % 2)),
                lambda a, b, c: torch.nn.functional.scaled_dot_product_attention(
                    dense(a), dense(b), dense(c), is_causal=bool(seed % 2)
                ),
            ),
            "bsr": (lambda a, b, c: warplap.bsr_matmul(a, b), lambda a, b, c: dense(a) @ dense(b)),
            "out": (lambda a, b, c: warplap.matmul(a, b, out=c), lambda a, b, c: dense(a) @ dense(b)),
            "norm": (lambda a, b, c: warplap.norm(a), lambda a, b, c: normed(dense(a))),
            "norm_add": (
                lambda a, b, c: None if b is None else warplap.norm(a, residual=b)[0],
                lambda a, b, c: normed(dense(a) + dense(b)),
            ),
        }
        name = rng.choice(list(calls))
        args = [flip(a) for a in args]
        before = [None if name == "out" or not isinstance(a, torch.Tensor) or a.is_meta else dense(a) for a in args]
        try:
            got = calls[name][0](*args)
        except EXPECTED:
            continue
        except RuntimeError:  # torch's own refusal, of types that are torch's own to multiply
            assert any("float64" in t or "int64" in t or "bool" in t or "complex" in t for t in map(kind, args)), args
            continue
        if any("complex" in kind(a) for a in args):
            continue
        if isinstance(got, torch.Tensor) and got.is_meta or got is None:
            continue
        near(torch.as_tensor(got), calls[name][1](*args), 1e-4)
        RIGHT[name] += 1
        for a, was in zip(args, before):
            assert was is None or torch.equal(dense(a).nan_to_num(), was.nan_to_num()), "an input was written"


def test_the_fuzz_has_met_right_answers_of_every_operator():
    assert min(RIGHT.values()) > 0, RIGHT


def test_native_entry_points_take_anything():
    native = warplap._warplap
    odd = [
        None,
        1,
        -1,
        2**70,
        "x",
        b"y",
        [],
        {},
        (),
        object(),
        torch.zeros(2, 2),
        np.zeros((2, 2), np.float32),
        float("nan"),
        True,
    ]
    rng = random.Random(5)
    names = [n for n in dir(native) if callable(getattr(native, n)) and not n.startswith("__")]
    # Those that change the process or the disk are not for throwing dice at.
    names = [
        n
        for n in names
        if n not in ("program", "use_torch", "configure", "set_mode", "store_export", "store_prune", "add_variant")
    ]
    assert len(names) > 15
    for _ in range(1500):
        call = getattr(native, rng.choice(names))
        try:
            call(*(rng.choice(odd) for _ in range(rng.randrange(8))))
        except Exception:
            pass


def test_objects_with_lying_interfaces_are_exceptions():
    class Liar:
        def __init__(self, **interface):
            self.__array_interface__ = interface

    class Thrower:
        def __dlpack__(self, **_):
            raise RuntimeError("no")

        def __dlpack_device__(self):
            return (1, 0)

    class Giver(Thrower):
        def __dlpack__(self, **_):
            return object()

    b = np.zeros((2, 2), np.float32)
    for a in (
        Liar(),
        Liar(data=(0, False)),
        Liar(data=(0, False), shape=(2, 2), typestr=""),
        Thrower(),
        Giver(),
        Liar(data=(8, False), shape=(2,) * 9, typestr="<f4"),
        Liar(data=(8, False), shape=(2, 2), typestr=">f4"),
        Liar(data=(8, False), shape=(2, 2), typestr="<f4", strides=(3, 1)),
    ):
        with pytest.raises(Exception):
            warplap._warplap.matmul_into(a, b, b.copy())
