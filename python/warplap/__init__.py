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
    from .ops.functions import *  # noqa: F403

__version__: str = _warplap.__version__

# Operators are in the list of `ops/functions.py`, and join this one when they are loaded.
__all__ = [
    "Explanation", "Gpu", "Search", "SparseLinear", "Tiles", "Tunable", "Tuned", "add_variant", "autotune", "benchmark",
    "configure", "disable", "enable", "explain", "fuse", "graphs", "mode", "off", "record", "register_search", "replay",
    "report_graphs", "run_kernel", "set_mode", "store", "tiles", "tunable", "tune", "tune_kernel", "tuning",
]  # fmt: skip

# Operators are loaded when one is first asked for: programs without torch may want none of it.
_operators_are_loaded = False


def _load_operators() -> None:
    global _operators_are_loaded
    _operators_are_loaded = True  # what is loaded asks for modules of the package, which are none of them
    from .ops import functions

    public = {name: function for name, function in vars(functions).items() if not name.startswith("_")}
    globals().update(public)
    __all__.extend(public)


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
    if not _operators_are_loaded and not name.startswith("_"):
        _load_operators()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'warplap' has no attribute {name!r}")
