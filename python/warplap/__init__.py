"""warplap: races explicit kernel variants on your machine, proves them right, and dispatches to the winner.

>>> import warplap
>>> c = warplap.matmul(a, b)                        # torch tensors or NumPy arrays
>>> o = warplap.attention(q, k, v, is_causal=True)
>>> print(warplap.benchmark(warplap.matmul, a, b))  # everyone, side by side
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from . import _warplap

if os.environ.get("WARPLAP_SERVE"):  # started to prove GPU kernels for another process: nothing else is loaded
    _warplap.serve_if_asked()
if os.environ.get("WARPLAP_ONCE"):  # started to run one GPU kernel once
    from . import _once

    _once.serve()
from . import _program

if _program.asked():  # the program warplap: neither torch nor the rest of the package is needed
    raise SystemExit(_program.main())

_warplap.connect_logs()
atexit.register(_warplap.end_background)

from . import _child, store
from ._modes import configure, mode, off, record, replay, set_mode, tuning
from ._ops import attention, bsr_matmul, cross_entropy, linear_cross_entropy, norm, rope, softmax
from ._ops_products import (
    forget_folded, gated, gated_linear, int_mm, linear, matmul, norm_linear, scaled_mm,
)  # fmt: skip
from ._prepared import run
from ._run_kernel import run_kernel
from ._search import Search, register_search
from ._tiles import Tiles, tiles
from ._tunable import Tunable, tunable
from ._tune_kernel import tune_kernel
from ._tuning import Explanation, Tuned, benchmark, explain, tune
from ._warplap import Gpu

__version__: str = _warplap.__version__

__all__ = [
    "Explanation", "Gpu", "Search", "SparseLinear", "Tiles", "Tunable", "Tuned", "add_variant", "attention", "autotune",
    "benchmark", "bsr_matmul", "configure", "cross_entropy", "disable", "enable", "explain", "forget_folded", "fuse",
    "gated", "gated_linear", "graphs", "int_mm", "linear", "linear_cross_entropy", "matmul", "mode", "norm",
    "norm_linear", "off", "record", "register_search", "replay", "report_graphs", "rope", "run", "run_kernel",
    "scaled_mm", "set_mode", "softmax", "store", "tiles", "tunable", "tune", "tune_kernel", "tuning",
]  # fmt: skip


def _start() -> None:
    program, *arguments = _child.command("import warplap")
    _warplap.set_worker(program, arguments)
    if os.environ.get("WARPLAP_MODE"):
        _warplap.set_mode(os.environ["WARPLAP_MODE"])
    try:
        import torch
    except ImportError:
        return
    from . import _variants

    _warplap.use_torch(torch)
    _variants.join()


_start()
del _start


def __getattr__(name: str) -> Any:
    """What needs torch or Triton is loaded when it is asked for."""
    if name == "SparseLinear":
        from .nn import SparseLinear

        return SparseLinear
    if name in ("fuse", "graphs", "report_graphs"):
        from . import _fusing

        return getattr(_fusing, name)
    if name == "add_variant":
        from ._variants import add

        return add
    if name in ("enable", "disable"):
        from . import _enabled

        return getattr(_enabled, name)
    if name == "autotune":
        from .triton import autotune

        return autotune
    raise AttributeError(f"module 'warplap' has no attribute {name!r}")
