"""An operator called in a plain program goes straight to its kernel, and is one node of torch's graph where a gradient
is wanted. Torch's dispatcher, which costs ten times as much on the host, is for those who trace, cast or watch.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .compile import compiled
from .library import lib, op

# What is plainly torch's: no subclass that has its own mind.
PLAIN = frozenset((Tensor, torch.nn.Parameter))
# The innermost of functorch's transforms, and how many modes there are.
transform = torch._C._functorch.peek_interpreter_stack
modes = torch._C._len_torch_dispatch_stack
_traces = torch._C._get_tracing_state


def _casts_somewhere() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


# Torch's own answer in one call, where this version has it.
casts: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", _casts_somewhere)


def is_watched() -> bool:
    """Whether somebody wants to see operators by their names: a mode, a transform, autocast, a tracer."""
    return bool(modes() or casts() or transform() is not None or _traces() is not None)


class Operator(NamedTuple):
    """A registered operator."""

    call: Callable[..., Any]
    """As the caller's tensors and torch's state want it."""
    node: Callable[..., Any]
    """As a node of torch's graph, for those who have looked at both."""


def operator(
    name: str, run: Callable[..., Any], save: Callable[..., None], backward: Callable[..., tuple[Any, ...]]
) -> Operator:
    """A registered operator, whose gradients are told to the dispatcher too.

    ``run`` computes it on a CPU or a GPU; ``save`` and ``backward`` are what ``torch.library.register_autograd`` takes.
    """
    torch.library.register_autograd(f"warplap::{name}", backward, setup_context=save, lib=lib)
    dispatched = getattr(op, name).default
    compiled(name, run)

    def forward(ctx: Any, *args: Any) -> Any:
        out = run(*args)
        save(ctx, args, out)
        return out

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__doc__": f"warplap::{name}"}
    node: Any = type(name, (torch.autograd.Function,), members)

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
        return node.apply(*args) if wanted and torch.is_grad_enabled() else run(*args)

    return Operator(call, node.apply)
