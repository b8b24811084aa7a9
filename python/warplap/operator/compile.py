"""Programs that torch.compile makes call our kernels as functions: torch's dispatcher, which costs a quarter of a small
compiled call, is for those who watch.

Inductor writes ``torch.ops.warplap.run_matmul(...)`` where it would write ``torch.ops.warplap.matmul.default(...)``. It
is told so when an operator's shape is asked for, which it does before it writes: loading it takes seconds, and most
programs do without.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from .optional_torch import torch

# Where Inductor looks up who writes a call himself; a torch that has it elsewhere goes through the dispatcher.
_REGISTRY = "torch._inductor.codegen.custom_extern_kernel_codegen"

# Operators by the names that Inductor has for them, and what it is to write in their place. Its caches on disk hold
# these names too: a later version must know them still.
_names: dict[str, str] = {}
_is_announced = False


def alias(op: Any, name: str, run: Callable[..., Any]) -> None:
    """Lets compiled programs call what computes an operator: their inputs are plain, and gradients are not kept."""
    dispatched = getattr(op, name).default
    modes, keeps = torch._C._len_torch_dispatch_stack, torch.is_grad_enabled
    profiles = torch.autograd._profiler_enabled

    def call(*args: Any) -> Any:
        return dispatched(*args) if modes() or keeps() or profiles() else run(*args)

    setattr(op, f"run_{name}", call)
    _names[f"torch.ops.warplap.{name}.default"] = f"torch.ops.warplap.run_{name}"


def register_shape(lib: Any, name: str, shape: Callable[..., Any]) -> None:
    """Registers an operator's answer under tracing, of which only the shape is looked at."""

    def answer(*args: Any) -> Any:
        _announce_to_inductor()
        return shape(*args)

    torch.library.register_fake(f"warplap::{name}", answer, lib=lib)


def _announce_to_inductor() -> None:
    global _is_announced
    registry_of = None if _is_announced else sys.modules.get(_REGISTRY)
    if registry_of is None:
        return
    _is_announced = True
    try:
        registry, entry = registry_of.CUSTOM_EXTERN_KERNEL_CODEGEN, registry_of.CustomCodegen
        registry.update({name: entry(python=_write) for name in _names})
    except (AttributeError, TypeError):  # another torch: the dispatcher does as well
        pass
    _declare_fallbacks()


def _declare_fallbacks() -> None:
    """Says that Inductor calls our operators as they are. It would find out by itself, and write a line for its log
    with all that the first call of each reads: in a model of sixteen layers that text is longer than any memory."""
    lowering = sys.modules.get("torch._inductor.lowering")
    for name in _names:
        op = getattr(torch.ops.warplap, name.split(".")[-2]).default
        try:
            if lowering is None or op in lowering.lowerings or op._schema.is_mutable:
                continue
            tag = lowering.get_layout_constraint_tag(op, with_default=True)
            lowering.make_fallback(op, lowering.tag_to_layout_constraint(tag), warn=False)
        except (AttributeError, TypeError, AssertionError):  # another torch finds out by itself
            continue


def _write(node: Any, writeline: Callable[..., None]) -> None:
    """The usual line, with another name."""
    node.python_kernel_name = _names[node.python_kernel_name]
    writeline.__self__.generate_fallback_kernel(node)  # type: ignore[attr-defined]
