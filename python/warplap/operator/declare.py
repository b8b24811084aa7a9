"""``Operator``: what torch needs to know of an operator, declared once.

From a declaration follow its schema, its kernels on CPUs and CUDA devices, its shapes under tracing, its node of
torch's graph, the call that goes past the dispatcher, the name that Inductor writes, and autocast. Choosing happens
inside the operator when it runs, so nothing is measured while a program is traced, and dynamic shapes recompile
nothing.
"""

from __future__ import annotations

from typing import Any, Callable

from . import autocast as autocasting
from .call.eager import bypass
from .compile import alias, register_shape
from .optional_torch import Tensor, torch

if torch is not None:
    lib = torch.library.Library("warplap", "FRAGMENT")
    op: Any = torch.ops.warplap


def like(i: int = 0) -> Callable[..., Tensor]:
    """An output of the shape of an input, without gaps."""
    return lambda *args: args[i].new_empty(args[i].shape)


class Operator:
    """A registered operator, ``torch.ops.warplap.<name>``. Without torch it is nothing.

    ``run`` computes it on a CPU or a GPU; ``shape`` is its answer under tracing. ``save`` and ``backward`` are what
    ``torch.library.register_autograd`` takes. In their place ``autograd`` may say what a call is where gradients could
    be wanted: it gets torch's dispatch keys and the call's arguments.
    """

    call: Callable[..., Any]
    """As the caller's tensors and torch's state want it."""
    node: Callable[..., Any]
    """As a node of torch's graph, for those who have looked at both."""

    def __init__(
        self,
        schema: str,
        run: Callable[..., Any],
        shape: Callable[..., Any],
        *,
        save: Callable[..., None] | None = None,
        backward: Callable[..., tuple[Any, ...]] | None = None,
        autograd: Callable[..., Any] | None = None,
        autocast: bool = False,
    ) -> None:
        self.name, self.run = schema.partition("(")[0], run
        if torch is None:
            return
        name = self.name
        lib.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        for device in ("CPU", "CUDA"):
            lib.impl(name, run, device)
        register_shape(lib, name, shape)
        self.dispatched = getattr(op, name).default
        if "!" not in schema:  # what is written in place stays an operator
            alias(op, name, run)
        node = None
        if save is not None and backward is not None:
            torch.library.register_autograd(f"warplap::{name}", backward, setup_context=save, lib=lib)
            node = self.node = _node(name, run, save, backward)
        if autograd is not None:
            lib.impl(name, autograd, "Autograd", with_keyset=True)
        if autocast:
            autocasting.register(lib, name, getattr(op, name))
        self.call = bypass(self.dispatched, run, node)

    def below_autograd(self, keys: Any, *args: Any) -> Any:
        """The rest of the dispatcher's way, for an ``autograd`` of which no gradient is wanted."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.dispatched.redispatch(keys & torch._C._after_autograd_keyset, *args)


def _node(name: str, run: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]) -> Any:
    def forward(ctx: Any, *args: Any) -> Any:
        out = run(*args)
        save(ctx, args, out)
        return out

    return make_node(name, forward, backward)


def make_node(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """The call of a node of torch's graph."""
    if torch is None:
        return None
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__doc__": f"warplap::{name}"}
    made: Any = type(name, (torch.autograd.Function,), members)
    return made.apply
