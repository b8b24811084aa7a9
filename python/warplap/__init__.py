"""warplap: races explicit kernel variants on your machine, proves them right, and dispatches to the winner.

>>> import warplap
>>> c = warplap.matmul(a, b)                        # torch tensors or NumPy arrays
>>> o = warplap.attention(q, k, v, is_causal=True)
>>> print(warplap.benchmark(warplap.matmul, a, b))  # everyone, side by side
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from . import _warplap

if os.environ.get("WARPLAP_SERVE"):  # started to prove GPU kernels for another process: nothing else is loaded
    _warplap.serve_if_asked()
if os.environ.get("WARPLAP_ONCE"):  # started to run one GPU kernel once
    from .kernel_tuner import run_once

    run_once.serve()
from . import _program

if _program.asked():  # the program warplap: neither torch nor the rest of the package is needed
    raise SystemExit(_program.main())

_warplap.connect_logs()
atexit.register(_warplap.end_background)

from . import store
from ._warplap import Gpu
from .callables import child_process
from .callables.tunable import Tunable, tunable
from .kernel_tuner.api import tune_kernel
from .kernel_tuner.run_kernel import run_kernel
from .ops.attention.block_mask import Tiles, tiles
from .tuner.modes import configure, mode, off, record, replay, set_mode, tuning
from .tuner.search import Search, register_search
from .tuner.tune import Explanation, Tuned, benchmark, explain, tune

if TYPE_CHECKING:
    from .ops.functions import (
        attention, bsr_matmul, cross_entropy, forget_folded, gated, gated_linear, int_mm, linear, linear_cross_entropy,
        matmul, norm, norm_linear, rope, run, scaled_mm, softmax,
    )  # fmt: skip

__version__: str = _warplap.__version__

__all__ = [
    "Explanation", "Gpu", "Search", "SparseLinear", "Tiles", "Tunable", "Tuned", "add_variant", "attention", "autotune",
    "benchmark", "bsr_matmul", "configure", "cross_entropy", "disable", "enable", "explain", "forget_folded", "fuse",
    "gated", "gated_linear", "graphs", "int_mm", "linear", "linear_cross_entropy", "matmul", "mode", "norm",
    "norm_linear", "off", "record", "register_search", "replay", "report_graphs", "rope", "run", "run_kernel",
    "scaled_mm", "set_mode", "softmax", "store", "tiles", "tunable", "tune", "tune_kernel", "tuning",
]  # fmt: skip

# What is loaded when it is first asked for: programs without torch may want none of it.
_OPERATORS = frozenset((
    "attention", "bsr_matmul", "cross_entropy", "forget_folded", "gated", "gated_linear", "int_mm", "linear",
    "linear_cross_entropy", "matmul", "norm", "norm_linear", "rope", "run", "scaled_mm", "softmax",
))  # fmt: skip


def _load_operators() -> None:
    from .ops import functions

    globals().update({name: getattr(functions, name) for name in _OPERATORS})


def _start() -> None:
    program, *arguments = child_process.command("import warplap")
    _warplap.set_worker(program, arguments)
    if os.environ.get("WARPLAP_MODE"):
        _warplap.set_mode(os.environ["WARPLAP_MODE"])
    try:
        import torch
    except ImportError:
        return
    from .candidates import register as candidates_register

    _warplap.use_torch(torch)
    candidates_register.join()
    _load_operators()


_start()
del _start


def __getattr__(name: str) -> Any:
    """What needs torch or Triton is loaded when it is asked for."""
    if name in _OPERATORS:
        _load_operators()
        return globals()[name]
    if name == "SparseLinear":
        from .nn import SparseLinear

        return SparseLinear
    if name in ("fuse", "graphs", "report_graphs"):
        from . import fusing

        return getattr(fusing, name)
    if name == "add_variant":
        from .candidates.register import add

        return add
    if name in ("enable", "disable"):
        from .operator import enable

        return getattr(enable, name)
    if name == "autotune":
        from .triton import autotune

        return autotune
    raise AttributeError(f"module 'warplap' has no attribute {name!r}")
