"""What every operator asks of its tensors before it computes anything."""

from __future__ import annotations

from typing import Any

from .optional_torch import Tensor, torch
from .problem_text import ACTIVATIONS, DTYPES

# The types that kernels have, and what problems call them.
NAMES: dict[Any, str] = {} if torch is None else {getattr(torch, name): word for name, word in DTYPES.items()}
FLOATS = tuple(NAMES)

# What is raced: sizes of a dimension, and elements that a tensor spans. More is left to torch.
_LARGEST, MOST = 1 << 20, 1 << 31


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


def has_kernels(*tensors: Tensor | None) -> bool:
    """Whether the type of these is one that kernels have; a mixture is for others to refuse."""
    types = {t.dtype for t in tensors if t is not None}
    dense = all(t is None or t.layout == torch.strided for t in tensors)
    return not dense or len(types) != 1 or not types.isdisjoint(FLOATS)


def is_double(*tensors: Tensor | None) -> bool:
    """Whether all of these are in double precision, which is torch's to compute in."""
    return all(t is None or t.dtype == torch.float64 for t in tensors)


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
    if t.ndim != len(shape) or any(want >= 0 and want != result for want, result in zip(shape, t.shape)):
        raise ValueError(f"{name}: has shape {list(t.shape)}, expected {of}")
    return t.contiguous()


def check_out(out: Tensor, shape: tuple[int, ...], **inputs: Tensor | None) -> None:
    """Whether an output can be written: nobody wants its gradient, it has the shape, and shares no memory."""
    others = {name: t for name, t in inputs.items() if t is not None}
    if wants(out, *others.values()):
        raise NotImplementedError(
            "out: is given for tensors that require a gradient; leave out= away, or use no_grad()"
        )
    if tuple(out.shape) != shape:
        raise ValueError(f"out: has shape {list(out.shape)}, expected {list(shape)}")
    if any(n > 1 and s == 0 for n, s in zip(out.shape, out.stride())):
        raise ValueError(f"out: has strides {list(out.stride())}, expected memory of its own for every element")
    for name, tensor in others.items():
        if shares(out, tensor):
            raise ValueError(f"out: shares memory with {name}")


def check_activation(activation: str | None) -> None:
    """Whether an activation is one that a product may end in."""
    if activation is not None and activation not in ACTIVATIONS:
        known = "None, relu, gelu, gelu_tanh, silu, tanh or sigmoid"
        raise ValueError(f"activation: is {activation!r}, expected {known}")


def wants(*tensors: Tensor | None) -> bool:
    """Whether a gradient of one of these is wanted."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def ordinary(*tensors: Tensor) -> bool:
    """Whether sizes are those that are raced; nothing and very much are left to torch."""
    return all(0 < s <= _LARGEST for t in tensors for s in t.shape)


def are_raced(count: int, n: int) -> bool:
    """Whether so many rows of so many elements are sizes that are raced."""
    return 0 < count <= _LARGEST and 0 < n <= _LARGEST and count * n <= MOST


def is_raced(rows: Tensor) -> bool:
    """Whether rows of a tensor without gaps are of sizes that are raced."""
    return ordinary(rows) and rows.numel() <= MOST


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
