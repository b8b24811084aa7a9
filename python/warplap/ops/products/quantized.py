"""``warplap.scaled_mm`` and ``warplap.int_mm``: products of 8-bit tensors."""

from __future__ import annotations

import functools
from typing import Any

from ...operator.call.call_cache import prepared
from ...operator.candidate import DEVICES, Candidate
from ...operator.checks import NAMES, check_out, dims, ordinary
from ...operator.declare import Operator
from ...operator.layout import aligned
from ...operator.optional_torch import Tensor, torch
from ...operator.problem_text import fields
from ...operator.public import Public

_BLOCK = 128


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _check(a: Tensor, b: Tensor, dtype: Any) -> None:
    """Two matrices of a type that can be multiplied."""
    for name, t in (("a", a), ("b", b)):
        if not isinstance(t, Tensor) or t.layout != torch.strided:
            raise TypeError(f"{name}: expected a dense torch tensor")
        if t.dtype != dtype:
            raise TypeError(f"{name}: holds {t.dtype}, expected {dtype}")
        dims(name, t, 2)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected [{a.shape[1]}, n] behind a of {list(a.shape)}")
    if a.device != b.device:
        raise ValueError(f"b: is on {b.device}, expected {a.device} like a")


def kind_of(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> str:
    """What factors belong to, by their shapes."""
    (m, k), n = a.shape, b.shape[1]
    for name, t in (("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(t, Tensor) or t.dtype != torch.float32:
            raise TypeError(f"{name}: expected a tensor of torch.float32")
        if t.device != a.device:
            raise ValueError(f"{name}: is on {t.device}, expected {a.device} like a")
    shapes = tuple(scale_a.shape), tuple(scale_b.shape)
    if scale_a.numel() == scale_b.numel() == 1:
        return "tensor"
    if shapes == ((m, 1), (1, n)):
        return "row"
    if shapes == ((m, _blocks(k)), (_blocks(k), _blocks(n))):
        return "block"
    raise ValueError(
        f"scale_a, scale_b: have shapes {list(shapes[0])} and {list(shapes[1])}, expected one number each, "
        f"[{m}, 1] and [1, {n}] (rows and columns), or [{m}, {_blocks(k)}] and [{_blocks(k)}, {_blocks(n)}] (blocks)"
    )


def _text(a: Tensor, b: Tensor, rest: str) -> str:
    return f"qgemm:m={a.shape[0]},n={b.shape[1]},k={a.shape[1]},{rest}"


def _scaled_text(a: Tensor, b: Tensor, scale: str, out_dtype: Any, fast: bool) -> str:
    if out_dtype not in NAMES:
        raise TypeError(f"out_dtype: is {out_dtype}, expected torch.bfloat16, torch.float16 or torch.float32")
    # A block's factor is applied to its own sum, so that no sum runs further.
    flag = ",fast=true" if fast and scale != "block" else ""
    return _text(a, b, f"dtype=f8e4m3,out={NAMES[out_dtype]},scale={scale}{flag}")


def _scaled_problem(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, out_dtype: Any = None,
    use_fast_accum: bool = False, out: Tensor | None = None,
) -> str:  # fmt: skip
    if a.dtype == torch.int8 and scale_a is None:
        return _int_problem(a, b)
    _check(a, b, torch.float8_e4m3fn)
    if scale_a is None or scale_b is None:
        raise TypeError("scale_a, scale_b: are missing")
    return _scaled_text(a, b, kind_of(a, b, scale_a, scale_b), out_dtype or torch.bfloat16, use_fast_accum)


def _int_problem(a: Tensor, b: Tensor, out: Tensor | None = None) -> str:
    _check(a, b, torch.int8)
    return _text(a, b, "dtype=i8,out=i32,scale=none")


def _on_vectors(t: Tensor) -> Tensor:
    """The tensor as kernels take it: on addresses that copies may have."""
    return aligned(t) if t.is_cuda else t


def _along_rows(t: Tensor) -> Tensor:
    return _on_vectors(t if t.is_contiguous() else t.contiguous())


def _along_columns(t: Tensor) -> Tensor:
    """Column-major, as it is where it is so already."""
    turned = t.t()
    return _on_vectors(t) if turned.is_contiguous() else turned.contiguous().t()


def _factors(scale: str, scale_a: Tensor, scale_b: Tensor) -> tuple[Tensor, Tensor]:
    """Factors as the slots have them; a copy where they lie otherwise."""
    if scale != "block":
        return scale_a.reshape(-1), scale_b.reshape(-1)
    blocks, columns = scale_b.shape
    pitch = -(-blocks // 4) * 4
    if scale_b.stride() != (1, pitch) or (scale_b.is_cuda and scale_b.data_ptr() % 16):
        padded = scale_b.new_zeros((columns, pitch))
        padded[:, :blocks] = scale_b.t()
        scale_b = padded[:, :blocks].t()
    return _along_columns(scale_a), scale_b


def _run(text: str, tensors: tuple[Tensor | None, ...], out: Tensor) -> Tensor:
    prepared(text)(*tensors, out)
    return out


def _target(a: Tensor, b: Tensor, dtype: Any, out: Tensor | None, **inputs: Tensor) -> Tensor:
    shape = (a.shape[0], b.shape[1])
    if out is None:
        return torch.empty(shape, dtype=dtype, device=a.device)
    if out.dtype != dtype:
        raise TypeError(f"out: holds {out.dtype}, expected {dtype}")
    if out.device != a.device:
        raise ValueError(f"out: is on {out.device}, expected {a.device} like a")
    check_out(out, shape, a=a, b=b, **inputs)
    if not out.is_contiguous():
        raise ValueError(f"out: has strides {list(out.stride())}, expected contiguous rows")
    return out


def scaled(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: Any,
    fast: bool,
    out: Tensor | None = None,
) -> Tensor:
    """scaled_mm by whoever is fastest here and right."""
    _check(a, b, torch.float8_e4m3fn)
    scale = kind_of(a, b, scale_a, scale_b)
    text = _scaled_text(a, b, scale, out_dtype, fast)
    target = _target(a, b, out_dtype, out, scale_a=scale_a, scale_b=scale_b)
    if not ordinary(a, b):
        return target.copy_(_by_hand(a, b, scale, scale_a, scale_b))
    _run(text, (_along_rows(a), _along_columns(b), *_factors(scale, scale_a, scale_b)), target)
    return target


def _by_hand(a: Tensor, b: Tensor, scale: str, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """What no problem expresses: nothing, or very much."""
    left, right = a.to(torch.float32), b.to(torch.float32)
    if scale == "block":
        left = left * scale_a.repeat_interleave(_BLOCK, 1)[:, : a.shape[1]]
        spread = scale_b.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
        return left @ (right * spread[: b.shape[0], : b.shape[1]])
    if scale == "tensor":
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    return (left * scale_a) @ (right * scale_b)


def ints(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """int_mm by whoever is fastest here and right."""
    _check(a, b, torch.int8)
    target = _target(a, b, torch.int32, out)
    if not ordinary(a, b):
        return target.copy_((a.to(torch.int64) @ b.to(torch.int64)).to(torch.int32))
    return _run(_text(a, b, "dtype=i8,out=i32,scale=none"), (_along_rows(a), _along_columns(b), None, None), target)


def _scaled_shape(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: Any, fast: bool) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


def _ints_shape(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]), dtype=torch.int32)


SCALED_MM = Operator(
    "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, ScalarType out_dtype, bool fast) -> Tensor",
    scaled, _scaled_shape,
)  # fmt: skip
INT_MM = Operator("int_mm(Tensor a, Tensor b) -> Tensor", ints, _ints_shape)


def _scaled_of_tensors(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: Tensor | None, out_dtype: Any, use_fast_accum: bool
) -> Tensor:
    args = a, b, scale_a, scale_b, out_dtype or torch.bfloat16, use_fast_accum
    if torch.compiler.is_compiling() and out is None:
        return SCALED_MM.dispatched(*args)  # type: ignore[no-any-return]
    return scaled(*args, out)


def _ints_of_tensors(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    if torch.compiler.is_compiling() and out is None:
        return INT_MM.dispatched(a, b)  # type: ignore[no-any-return]
    return ints(a, b, out)


# By torch's own operators, which race too.


def by_scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, c: Tensor, *, row: bool, fast: bool
) -> None:
    """torch's own, into memory that is there already."""
    if row:
        scale_a, scale_b = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
    torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=c.dtype, use_fast_accum=fast, out=c)


def by_int_mm(a: Tensor, b: Tensor, scale_a: None, scale_b: None, c: Tensor) -> None:
    torch._int_mm(a, b, out=c)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    return {"row": said["scale"] == "row", "fast": said.get("fast") == "true"}


def scaled_fit(device: str, problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    said = fields(problem)
    if said["dtype"] != "f8e4m3" or said["scale"] == "none":
        return "products of f8e4m3 with factors only"
    if device == "cpu" and said["scale"] != "tensor":
        return "torch has one factor a matrix on the CPU"
    if device == "cuda" and (int(said["k"]) % 16 or int(said["n"]) % 16):
        return "n and k must be multiples of 16"
    if device == "cuda" and said["scale"] == "row" and said["out"] != "bf16":
        return "torch's products with factors of rows give bf16"
    return None


def int_fit(device: str, problem: str) -> str | None:
    """The same for signed bytes."""
    said = fields(problem)
    if said["dtype"] != "i8":
        return "products of signed bytes only"
    if device == "cuda" and (int(said["m"]) <= 16 or int(said["k"]) % 8 or int(said["n"]) % 8):
        return "m must be more than 16, n and k multiples of 8"
    return None


CANDIDATES = [
    Candidate("qgemm", name, call, functools.partial(fit, device), devices=(device,), facts=facts_of)
    for device in DEVICES
    for name, call, fit, facts_of in (
        ("torch_scaled_mm", by_scaled_mm, scaled_fit, facts),
        ("torch_int_mm", by_int_mm, int_fit, None),
    )
]


def _refused(*tensors: Any, **rest: Any) -> Any:
    raise NotImplementedError("products of 8-bit tensors are torch's; install torch")


_scaled_public = Public(
    torch=_scaled_of_tensors, problem=_scaled_problem, optional=("out",), operation="qgemm",
    arrays=_refused if torch is None else None,
)  # fmt: skip
_int_public = Public(
    torch=_ints_of_tensors, problem=_int_problem, optional=("out",), arrays=_refused if torch is None else None
)


@_scaled_public
def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    out: Any = None,
) -> Any:
    """``(a * scale_a) @ (b * scale_b)`` of torch.float8_e4m3fn, as ``torch._scaled_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]). The factors
    are float32: one number each, [m, 1] and [1, n], or [m, k/128] and [k/128, n/128] for blocks. ``out_dtype`` is
    torch.bfloat16 (the default), float16 or float32. Sums are in float32; with ``use_fast_accum`` the narrower sums of
    a GPU's tensor cores may run through all of k. Not differentiable.
    """
    return _scaled_public.of(
        {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out": out},
        out_dtype=out_dtype, use_fast_accum=use_fast_accum,
    )  # fmt: skip


@_int_public
def int_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    """``a @ b`` of torch.int8 with exact sums in torch.int32, as ``torch._int_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]).
    """
    return _int_public.of({"a": a, "b": b, "out": out})
