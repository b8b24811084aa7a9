"""Automatic mixed precision: floats are cast to the type of the region, as torch does for its own products."""

from __future__ import annotations

from typing import Any, Callable

from .optional_torch import Tensor, torch


def region(device: str) -> Any:
    """The type that a region casts to on a kind of device, or None; others than these may have no autocast to ask."""
    covered = device in ("cpu", "cuda") and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if covered else None


def is_on(t: Tensor) -> bool:
    """Whether a region covers the tensor's device."""
    return region(t.device.type) is not None


def _is_cast(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64


def cast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The tensors in the type of a region, as torch casts them for its own products."""
    first = next(t for t in tensors if t is not None)
    to = region(first.device.type)
    if to is None:
        return tensors
    return tuple(t.to(to) if _is_cast(t) else t for t in tensors)  # type: ignore[union-attr]


def like_first(first: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """The others in the type of the first where a region covers it: arithmetic is in float32 anyway."""
    return tuple(t if t is None else t.to(first.dtype) for t in others) if is_on(first) else others


def promoted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider type in a region, as torch has it for sums and products."""
    if a.dtype == b.dtype or not is_on(a):
        return a, b
    to = torch.promote_types(a.dtype, b.dtype)
    return a.to(to), b.to(to)


def register(lib: Any, name: str, call: Callable[..., Any]) -> None:
    """Lets torch's dispatcher cast the floats of a registered operator in a region."""
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        lib.impl(name, _caster(call, device, key), key)


def _caster(call: Callable[..., Any], device: str, key: str) -> Callable[..., Any]:
    excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def run(*args: Any) -> Any:
        to = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call(*(value.to(to) if _is_cast(value) else value for value in args))

    return run
