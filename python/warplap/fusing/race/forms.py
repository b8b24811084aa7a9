"""The forms in which a graph may run: a partition of it, and who runs the rest."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Sequence

import torch
from torch.fx import GraphModule

from ... import _warplap
from ..plan import Partition, Plan

Run = Callable[..., Any]


class Inductor:
    """Who compiles what is not covered."""

    def __init__(self, mode: str | None, options: dict[str, Any] | None) -> None:
        from torch._inductor import list_mode_options

        named = list_mode_options()
        if mode is not None and mode not in named:
            raise ValueError(f"mode: is {mode!r}, expected one of {', '.join(sorted(named))}")
        self._patches = {**(named[mode] if mode else {}), **(options or {})}

    @property
    def name(self) -> str:
        """What tells one compiler from another in a key: nothing where it is as torch has it."""
        said = ",".join(f"{name}={value!r}" for name, value in sorted(self._patches.items()))
        return f",by={hashlib.sha256(said.encode()).hexdigest()[:8]}" if said else ""

    @property
    def records(self) -> bool:
        """Whether it records CUDA graphs."""
        return bool(self._patches.get("triton.cudagraphs", torch._inductor.config.triton.cudagraphs))

    def here(self, module: GraphModule, inputs: Sequence[Any]) -> Run:
        """The graph compiled as torch would, with all that the tracer knows of it."""
        from torch._inductor.compile_fx import compile_fx

        run: Any = compile_fx(module, list(inputs), config_patches=self._patches or None)
        return run  # type: ignore[no-any-return]

    def later(self, module: GraphModule, inputs: Sequence[Any]) -> Run:
        """The same after tracing. Sizes that may change are asked for anew."""
        if any(isinstance(i, (int, torch.SymInt)) for i in inputs):
            return torch.compile(module, dynamic=True, options=self._patches or None)
        return self.here(module, inputs)


class Form:
    """A partition, and who runs the rest of the graph."""

    def __init__(self, plan: Plan, partition: Partition | None, compiled: bool, inductor: Inductor) -> None:
        self.plan, self.partition, self.compiled, self._inductor = plan, partition, compiled, inductor
        self.kinds = () if partition is None else partition.kinds
        self.name = "inductor" if compiled else "eager"
        if self.kinds:
            self.name = " + ".join(self.kinds)

    @property
    def candidate(self) -> tuple[str, dict[str, Any], str]:
        """How the store calls it."""
        version = f"warplap {_warplap.__version__} torch {torch.__version__}"
        if not self.kinds:
            return self.name, {}, version
        return "fused", {"covers": " ".join(self.kinds), "rest": "inductor" if self.compiled else "eager"}, version

    def module(self, calm: bool = False) -> GraphModule:
        """The graph in this form; a copy, since compilers change what they are given."""
        return self.plan.rewritten(() if self.partition is None else self.partition.covers, calm)

    def built(self, inputs: Sequence[Any]) -> Run:
        return self._inductor.later(self.module(), inputs) if self.compiled else self.module().forward
