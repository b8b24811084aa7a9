"""A rig for callables: copies of the arguments to run candidates on, and what a right run leaves behind.

No candidate ever touches the caller's tensors while it is tried. What the reference overwrites without reading is
filled with NaN before each proof, so that a candidate that writes nothing is not taken for one that is right.
"""

from __future__ import annotations

import copy as copying
import math
import time
from typing import Any, Callable

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

# How far a right answer may be off, as a share of itself and of the largest value beside it.
_TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
_TOLERANCE |= {"float8_e4m3fn": 0.125, "float8_e4m3fnuz": 0.125, "float8_e5m2": 0.25, "float8_e5m2fnuz": 0.25}


def tolerance_of(kind: Any) -> float:
    """How far a right answer of a type may be off; of one that is not listed, as far as the narrowest."""
    return _TOLERANCE.get(str(kind).removeprefix("torch."), max(_TOLERANCE.values()))


def _is_tensor(value: Any) -> bool:
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "ctypes")  # scalars have none


def is_descriptor(value: Any) -> bool:
    """Whether it tells a kernel how a tensor lies: Triton's TensorDescriptor."""
    return hasattr(value, "block_shape") and _is_tensor(getattr(value, "base", None))


def copied(value: Any, seen: dict[int, Any]) -> Any:
    """A copy with its own memory and the same sizes and strides; what was one object stays one object."""
    if id(value) in seen:
        return seen[id(value)]
    if _is_tensor(value) and value.layout == torch.strided:
        steps = [(n - 1) * s for n, s in zip(value.shape, value.stride())]
        flat = value.detach().as_strided((sum(steps) + 1 if value.numel() else 0,), (1,), value.storage_offset())
        copy: Any = flat.clone().as_strided(value.shape, value.stride(), 0)
    elif _is_tensor(value):
        copy = value.detach().clone()
    elif is_descriptor(value):
        copy = copying.copy(value)
        copy.base = copied(value.base, seen)
        copy.block_shape = list(value.block_shape)  # hooks of configs set it
    elif _is_array(value):
        copy = value.copy()
    elif isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        copy = type(value)(copied(v, seen) for v in value)
    elif type(value) is dict:
        copy = {k: copied(v, seen) for k, v in value.items()}
    else:
        return value
    seen[id(value)] = copy
    return copy


def leaves(value: Any) -> list[Any]:
    """The tensors and arrays in a value, in order."""
    if _is_tensor(value) or _is_array(value):
        return [value]
    if is_descriptor(value):
        return [value.base]
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in leaves(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves(v)]
    return []


def _put(to: Any, value: Any) -> None:
    if _is_tensor(to):
        if to.layout == torch.strided and 0 in to.stride():
            return
        to.copy_(value) if _is_tensor(value) or _is_array(value) else to.fill_(value)
    else:
        to[...] = value


def _floating(value: Any) -> bool:
    return value.is_floating_point() if _is_tensor(value) else value.dtype.kind == "f"


def _dense(value: Any) -> Any:
    return value.detach().to_dense() if _is_tensor(value) and value.layout != torch.strided else value


def _wide(value: Any) -> Any:
    value = _dense(value)
    return value.detach().to(torch.float64) if _is_tensor(value) else value.astype("float64")


def share_of_tolerance(got: Any, right: Any, tolerance: float | None) -> float:
    """The largest error as a share of what is allowed; infinite where shapes differ or only one is finite."""
    if tuple(got.shape) != tuple(right.shape):
        return math.inf
    name = str(right.dtype).removeprefix("torch.")
    if name not in _TOLERANCE:
        return 0.0 if bool((_dense(got) == _dense(right)).all()) else math.inf
    a, b = _wide(got), _wide(right)
    if 0 in a.shape:
        return 0.0
    same = (a == b) | ((a != a) & (b != b))
    if bool(same.all()):
        return 0.0
    allowed = tolerance if tolerance is not None else _TOLERANCE[name]
    finite = abs(b[(b - b) == 0])
    largest = float(finite.max()) if len(finite) else 0.0
    error = abs(a - b) / (allowed * (abs(b) + largest) + 1e-300)
    worst = float(error[~same].max())
    return math.inf if worst != worst else worst


class Rig:
    """Candidates are run on its copies of the arguments: ``call(run, args, kwargs)`` for each."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], tolerance: float | None) -> None:
        self._pristine = leaves(copied((args, kwargs), {}))
        self.args, self.kwargs = copied((args, kwargs), {})
        self._work = leaves((self.args, self.kwargs))
        self._tolerance = tolerance
        self._poisoned: list[int] = []
        self._expected: tuple[list[Any], list[Any]] | None = None

    @property
    def device(self) -> Any:
        """The CUDA device the arguments are on, or None."""
        return next((t.device for t in self._work if _is_tensor(t) and t.is_cuda), None)

    def reset(self) -> None:
        """Puts the arguments back to what the caller gave, and poison where a right run writes anyway."""
        for to, value in zip(self._work, self._pristine):
            _put(to, value)
        for i in self._poisoned:
            _put(self._work[i], math.nan)

    def left(self) -> dict[int, Any]:
        """The arguments that are not what the caller gave any more, by their place among all tensors."""
        pairs = enumerate(zip(self._work, self._pristine))
        return {i: now for i, (now, was) in pairs if not bool((_dense(now) == _dense(was)).all())}

    def initial(self, i: int) -> Any:
        """What the caller gave at a place among all tensors."""
        return self._pristine[i]

    def settle(self, run: Callable[..., Any]) -> None:
        """Runs the reference: finds out what it overwrites, and keeps what it leaves behind."""
        self._poisoned = [i for i in range(len(self._work)) if self._is_output(run, i)]
        self.reset()
        result = run(*self.args, **self.kwargs)
        self.wait()
        self._expected = (leaves(copied(result, {})), leaves(copied((self.args, self.kwargs), {})))

    def _is_output(self, run: Callable[..., Any], i: int) -> bool:
        if not _floating(self._work[i]) or (_is_tensor(self._work[i]) and self._work[i].layout != torch.strided):
            return False
        self.reset()
        _put(self._work[i], math.nan)
        run(*self.args, **self.kwargs)
        self.wait()
        left = self._work[i]
        return bool((left == left).all())

    def prove(self, run: Callable[..., Any]) -> tuple[str, str, float, float | None]:
        """Whether a candidate leaves what the reference left: a word, a reason, the share of the allowed error, and the
        seconds it took."""
        assert self._expected is not None
        self.reset()
        self.wait()
        began = time.perf_counter()
        result = run(*self.args, **self.kwargs)
        self.wait()
        seconds = time.perf_counter() - began
        results, arguments = self._expected
        got = leaves(result)
        if len(got) != len(results):
            return "wrong_answer", f"gave {len(got)} tensors, the reference {len(results)}", math.inf, None
        pairs = [(f"result {i}", g, r) for i, (g, r) in enumerate(zip(got, results))]
        pairs += [(f"argument {i}", g, r) for i, (g, r) in enumerate(zip(self._work, arguments))]
        worst = 0.0
        for name, value, right in pairs:
            share = share_of_tolerance(value, right, self._tolerance)
            if not share <= 1.0:
                return "wrong_answer", f"{name} differs from the reference's", share, None
            worst = max(worst, share)
        return "right", "", worst, seconds

    def wait(self) -> None:
        """Until the device has finished."""
        if self.device is not None:
            torch.cuda.synchronize(self.device)


def word_for(error: BaseException) -> tuple[str, str, float]:
    """What an exception of a candidate counts as."""
    name, text = type(error).__name__, f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if name in ("OutOfResources", "OutOfMemoryError"):
        return "over_limits", text, 0.0
    if name in ("CompilationError", "CompileTimeAssertionFailure", "PTXASError", "SyntaxError"):
        return "does_not_build", text, 0.0
    return "launch_failed", text, 0.0
