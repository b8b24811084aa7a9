"""What a user asks about: a problem's text, or an operator with its arguments, and where it is to be solved."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .. import _warplap
from ..operator.public import problem_of


class Asked(NamedTuple):
    """A problem, and the GPU it is on (None for the CPU)."""

    text: str
    gpu: int | None = None


def asked(op: str | Callable[..., Any], *args: Any, device: str | None = None, **kwargs: Any) -> Asked:
    """What a user asks about: a problem's text, or an operator with its arguments."""
    if isinstance(op, str) and ":" in op:
        return Asked(_warplap.read_problem(op), _ordinal(device))
    tensors = [t for t in (*args, *kwargs.values()) if getattr(t, "is_cuda", False)]
    if not tensors:
        return Asked(problem_of(op, *args, **kwargs), _ordinal(device))
    return Asked(problem_of(op, *args, **kwargs), tensors[0].device.index or 0)


def _ordinal(device: str | None) -> int | None:
    if device is None or device == "cpu":
        return None
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise ValueError(f"device: is {device!r}, expected cpu, cuda or cuda:N")
    return int(number or 0)
