"""Registration with torch.library, and what every operator asks of its tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from .cuda import NAMES

FLOATS = tuple(NAMES)

lib = torch.library.Library("warplap", "FRAGMENT")
_tags = (torch.Tag.pt2_compliant_tag,)
for _schema in (
    "matmul(Tensor a, Tensor b) -> Tensor",
    "matmul_out(Tensor a, Tensor b, Tensor(a!) out) -> ()",
    "linear(Tensor x, Tensor w, Tensor? bias) -> Tensor",
    "linear_finished(Tensor x, Tensor w, Tensor? bias, str? activation, Tensor? residual, Tensor? times) -> Tensor",
    "gated_linear(Tensor x, Tensor w_gate, Tensor w_up, str? activation) -> Tensor",
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool is_causal, float scale) -> Tensor",
    "attention_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, bool is_causal, float scale)"
    " -> (Tensor, Tensor, Tensor)",
    "bsr_matmul(Tensor crow, Tensor col, Tensor values, SymInt m, SymInt k, Tensor b) -> Tensor",
    "bsr_matmul_out(Tensor crow, Tensor col, Tensor values, SymInt m, SymInt k, Tensor b, Tensor(a!) out) -> ()",
    "bsr_linear(Tensor crow, Tensor col, Tensor values, Tensor? bias, SymInt n, Tensor x, bool turned)"
    " -> Tensor",
    "bsr_sampled(Tensor crow, Tensor col, Tensor grad, Tensor b, int bs, int bc) -> Tensor",
):
    lib.define(_schema, tags=_tags)
op = torch.ops.warplap


def floats(**tensors: Tensor | None) -> None:
    """One of the float types, and the same for all."""
    first: tuple[str, Tensor] | None = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.layout != torch.strided:
            raise TypeError(f"{name}: has layout {tensor.layout}, expected a dense tensor")
        if first is None:
            first = (name, tensor)
            if tensor.dtype not in FLOATS:
                raise TypeError(f"{name}: holds {tensor.dtype}, expected float32, float16 or bfloat16")
        elif tensor.dtype != first[1].dtype:
            raise TypeError(f"{name}: holds {tensor.dtype}, expected {first[1].dtype} like {first[0]}")
        elif tensor.device != first[1].device:
            raise ValueError(f"{name}: is on {tensor.device}, expected {first[1].device} like {first[0]}")


def dims(name: str, tensor: Tensor, *expected: int) -> None:
    if tensor.ndim not in expected:
        words = " or ".join(map(str, expected))
        raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected {words}")


def whole_numbers(name: str, t: Tensor | None, q: Tensor, shape: tuple[int, ...], of: str) -> Tensor | None:
    """Whole numbers of 32 bits beside q."""
    if t is None:
        return None
    if t.dtype != torch.int32:
        raise TypeError(f"{name}: holds {t.dtype}, expected torch.int32: {name}.int()")
    if t.device != q.device:
        raise ValueError(f"{name}: is on {t.device}, expected {q.device} like q: {name}.to(q.device)")
    if t.ndim != len(shape) or any(want >= 0 and want != found for want, found in zip(shape, t.shape)):
        raise ValueError(f"{name}: has shape {list(t.shape)}, expected {of}")
    return t.contiguous()


def rows(t: Tensor) -> Tensor:
    """All but the last dimension as one."""
    return t if t.ndim == 2 else t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def check_out(out: Tensor, shape: tuple[int, ...], **inputs: Tensor | None) -> None:
    """Whether an output can be written: nobody wants its gradient, it has the shape, and shares no memory."""
    given = {name: t for name, t in inputs.items() if t is not None}
    if wants(out, *given.values()):
        raise NotImplementedError(
            "out: is given for tensors that require a gradient; leave out= away, or use no_grad()"
        )
    if tuple(out.shape) != shape:
        raise ValueError(f"out: has shape {list(out.shape)}, expected {list(shape)}")
    if any(n > 1 and s == 0 for n, s in zip(out.shape, out.stride())):
        raise ValueError(f"out: has strides {list(out.stride())}, expected memory of its own for every element")
    for name, tensor in given.items():
        if shares(out, tensor):
            raise ValueError(f"out: shares memory with {name}")


def wants(*tensors: Tensor | None) -> bool:
    """Whether a gradient of one of these is wanted."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def lines(t: Tensor) -> Tensor:
    """The matrix itself where its rows or columns are contiguous, a copy where they are not."""
    (rows, columns), (down, right) = t.shape, t.stride()
    followed = (right == 1 and down >= columns) or (down == 1 and right >= rows)
    t = t if followed else t.contiguous()
    return t.resolve_neg() if t.is_neg() else t


_LARGEST = 1 << 20


def ordinary(*tensors: Tensor) -> bool:
    """Whether sizes are those that are raced; nothing and very much are left to torch."""
    return all(0 < s <= _LARGEST for t in tensors for s in t.shape)


def shares(out: Tensor, other: Tensor) -> bool:
    """Whether two tensors may share memory; tensors under tracing have none."""
    if torch.compiler.is_compiling() or out.numel() == 0 or other.numel() == 0:
        return False
    try:
        if out.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            return False
        span = lambda t: (
            t.storage_offset(),
            t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride())),
        )
        (low, high), (start, end) = span(out), span(other)
        return low <= end and start <= high
    except (RuntimeError, NotImplementedError):
        return False


def lying(*tensors: Tensor | None) -> Any:
    """How tensors lie, to keep a call by: as the native half tells it, or, where somebody watches, in Python."""
    found = _warplap.lie(*tensors)
    if found is not None:
        return found
    return tuple(None if t is None else (t.shape, t.stride(), t.dtype, t.data_ptr() & 63) for t in tensors)


# Automatic mixed precision: floats are cast to the type of the region, as torch does for its own products.


def autocast(name: str, device: str, key: str) -> None:
    call, excluded = getattr(op, name), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(torch.get_autocast_dtype(device)) if floating else value

    def run(*args: Any) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call(*map(cast, args))

    lib.impl(name, run, key)
