"""``rms_norm`` and ``fused_add_rms_norm`` of vLLM's IR, by ``warplap.norm``: ``--ir-op-priority.rms_norm=warplap``.

Nobody gets them who does not ask: vLLM keeps a list of who answers, the platform's own by default, and ours is on none
until the user puts it there. Then a record of the store decides at each number of rows: where a kernel of ours has won
it runs, everywhere else vLLM's own does. Either is one operator of a compiled graph: what is known may change without
the graph being another one.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from ..operator.checks import FLOATS
from ..operator.declare import Operator, like
from ..ops.norm import dense as norm_dense, problem as norm_problem
from . import known, modes

_log = logging.getLogger("warplap")
PROVIDER = "warplap"

# By problem, whether a kernel of ours has won it.
_won: dict[Any, bool] = {}


def forget() -> None:
    """Forgets every decision: what is known has changed."""
    _won.clear()


def is_won(x: Tensor, residual: bool, weight: bool, eps: float) -> bool:
    """Whether a record says that a kernel of ours is the fastest here; raced first where that is let happen."""
    n = x.shape[-1]
    asked = (known.shared(x.numel() // n), n, x.dtype, x.device, residual, weight, eps)
    won = _won.get(asked)
    if won is None:
        try:
            modes.begin()
            won = _find(x, residual, weight, eps)
        except Exception as error:  # a store that cannot be read ends nobody's server
            _log.warning("norm: left to vLLM: %s: %s", type(error).__name__, error)
            won = False
        _won[asked] = won
    return won


def _find(x: Tensor, residual: bool, weight: bool, eps: float) -> bool:
    text = norm_problem.prepared(tuple(x.shape), x.dtype, residual, weight, False, "rms", eps).problem
    gpu = x.device.index if x.is_cuda else None
    if modes.may_race():
        known.raced([text], gpu)
    best = known.lookup(text, gpu)
    return best is not None and best.is_worth_it


def _theirs(name: str, *args: Any) -> Any:
    """By vLLM's own: its kernel where the platform has one for these, else its formula."""
    from vllm import ir  # type: ignore[import-not-found]

    impls = getattr(ir.ops, name).impls
    kernel = impls.get("vllm_c")
    fits = kernel is not None and kernel.supported and kernel.supports_args(*args)
    return (kernel if fits else impls["native"]).func_impl_fn(*args)


def _run(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    if x.numel() and is_won(x, False, weight is not None, eps):
        return norm_dense.run_alone(x, weight, None, False, eps)
    return _theirs("rms_norm", x, weight, eps)  # type: ignore[no-any-return]


def _run_added(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    if x.numel() and is_won(x, True, weight is not None, eps):
        return norm_dense.run(x, residual, weight, None, False, eps)  # type: ignore[no-any-return]
    return _theirs("fused_add_rms_norm", x, residual, weight, eps)  # type: ignore[no-any-return]


NORM = Operator("served_norm(Tensor x, Tensor? weight, float eps) -> Tensor", _run, like())
NORM_ADD = Operator(
    "served_norm_add(Tensor x, Tensor residual, Tensor? weight, float eps) -> (Tensor, Tensor)",
    _run_added, norm_dense.two_shapes,
)  # fmt: skip


# What vLLM is given. It looks at names and defaults of arguments: they are those of its own operators.
def fits_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    """Rows of one type, normalised as a whole."""
    plain = variance_size is None and x.dtype in FLOATS and 1e-20 <= epsilon <= 1.0
    return plain and (weight is None or (weight.dtype == x.dtype and weight.shape == x.shape[-1:]))


def fits_added(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    """Rows and what is added to them, of one type."""
    same = x_residual.dtype == x.dtype and x_residual.shape == x.shape
    return same and fits_norm(x, weight, epsilon, variance_size)


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """A norm of each row."""
    result: Tensor = NORM.dispatched(x, weight, epsilon)
    return result


def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """A sum, and a norm of each of its rows."""
    result: tuple[Tensor, Tensor] = NORM_ADD.dispatched(x, x_residual, weight, epsilon)
    return result


def offer() -> None:
    """Tells vLLM of them, where it has these operators and the platform is one of ours."""
    try:
        from vllm import ir
    except ImportError:  # a version without an IR
        return
    from vllm.platforms import current_platform  # type: ignore[import-not-found]

    supported = current_platform.is_cpu() or current_platform.is_cuda()
    both: list[tuple[str, Any, Any]] = [
        ("rms_norm", rms_norm, fits_norm),
        ("fused_add_rms_norm", fused_add_rms_norm, fits_added),
    ]
    for name, call, fits in both:
        operation = getattr(ir.ops, name, None)
        if operation is not None and PROVIDER not in operation.impls:
            operation.register_impl(PROVIDER, supported=supported, supports_args=fits)(call)
