"""An operator called in a plain program goes straight to its kernel, and is one node of torch's graph where a gradient
is wanted. Torch's dispatcher, which costs ten times as much on the host, is for those who trace, cast or watch.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from ..optional_torch import Tensor, torch


def _nothing() -> Any:
    return None


# What is plainly torch's: no subclass that has its own mind.
PLAIN: frozenset[type] = frozenset()
# The innermost of functorch's transforms, how many modes there are, whether somebody traces, casts or compiles.
transform: Callable[[], Any] = _nothing
modes: Callable[[], int] = _nothing
casts: Callable[[], bool] = _nothing
is_compiling: Callable[[], bool] = _nothing
keeps_gradients: Callable[[], bool] = _nothing
_traces: Callable[[], Any] = _nothing

if torch is not None:
    PLAIN = frozenset((Tensor, torch.nn.Parameter))
    transform = torch._C._functorch.peek_interpreter_stack
    modes = torch._C._len_torch_dispatch_stack
    is_compiling = torch.compiler.is_compiling
    keeps_gradients = torch.is_grad_enabled
    _traces = torch._C._get_tracing_state
    # Torch's own answer in one call, where this version has it.
    casts = getattr(
        torch._C, "_is_any_autocast_enabled",
        lambda: torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
    )  # fmt: skip


def is_traced() -> bool:
    """Whether a mode or a tracer sees what is called."""
    return bool(modes() or _traces() is not None)


def is_watched() -> bool:
    """Whether somebody wants to see operators by their names: a mode, a transform, autocast, a tracer."""
    return is_traced() or casts() or transform() is not None


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a call on these is a plain program's: nobody traces or watches, and no tensor has a mind of its own."""
    if is_compiling() or is_watched():
        return False
    return all(t is None or (type(t) in PLAIN and (t.is_cpu or t.is_cuda)) for t in tensors)


@functools.cache
def traced_types() -> frozenset[type]:
    """Plain tensors, and those of who traces: they see one operator where a program runs one."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return PLAIN | {FakeTensor, FunctionalTensor}


def refuse_second_derivative(name: str, kept: Tensor) -> None:
    """Says that a gradient has none, where one of it is wanted; tracers look at every formula as if."""
    if torch.is_grad_enabled() and not is_compiling():
        from torch._subclasses.fake_tensor import FakeTensor

        if not isinstance(kept, FakeTensor):
            raise NotImplementedError(f"{name}: its gradient has none; use torch's for second derivatives")


def bypass(
    dispatched: Callable[..., Any], run: Callable[..., Any], node: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The call of an operator that goes past the dispatcher where it may: to ``run``, or to its ``node`` of torch's
    graph where a gradient is wanted; without a node such a call is the dispatcher's."""
    wanting = dispatched if node is None else node

    def call(*args: Any) -> Any:
        if is_compiling():
            return dispatched(*args)
        wanted = False
        for value in args:
            if isinstance(value, Tensor):
                if type(value) not in PLAIN or not (value.is_cpu or value.is_cuda):
                    return dispatched(*args)
                wanted = wanted or value.requires_grad
        if is_watched():
            return dispatched(*args)
        return wanting(*args) if wanted and keeps_gradients() else run(*args)

    return call
