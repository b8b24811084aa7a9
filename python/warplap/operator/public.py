"""What a user calls: an operator's forms over torch's tensors and over arrays, and the problem that a call is."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

from .. import _warplap
from ..arrays import dlpack
from .optional_torch import torch

if torch is None:

    def compiling() -> bool:
        return False

else:
    # The other tracers bring tensors of their own or a mode, which the native half sees.
    from torch.compiler import is_dynamo_compiling as compiling  # noqa: F401

Call = TypeVar("Call", bound=Callable[..., Any])

# Operators by the name of the function that users call, and by that of the operation.
declared: dict[str, Public] = {}
_by_operation: dict[str, Public] = {}


class Public:
    """An operator as users call it.

    ``torch`` and ``arrays`` compute it over torch's tensors and over NumPy's arrays; both take the tensors and whatever
    else decides by name. ``problem`` takes what the call takes and gives its text. ``optional`` tensors may be None.
    ``operation`` is what the operation is called, where that is not the function's name.
    """

    def __init__(
        self,
        *,
        torch: Callable[..., Any],
        problem: Callable[..., str],
        arrays: Callable[..., Any] | None = None,
        optional: tuple[str, ...] = (),
        operation: str | None = None,
    ) -> None:
        self._torch, self._arrays, self._problem, self._optional = torch, arrays, problem, optional
        self._operation = operation

    def __call__(self, function: Call) -> Call:
        """Makes a function the one that users call."""
        self.function: Callable[..., Any] = function
        declared[function.__name__] = _by_operation[self._operation or function.__name__] = self
        return function

    def of(self, tensors: dict[str, Any], **rest: Any) -> Any:
        """The answer, by whose tensors these are."""
        has_torchs, other = False, ""
        for name, value in tensors.items():
            if is_tensor(value):
                has_torchs = True
            elif value is not None or name not in self._optional:
                other = other or name
        if has_torchs:
            if other:
                raise _mixture(other, tensors[other])
            return self._torch(**tensors, **rest)
        if any(dlpack.is_on_cuda(t) for t in tensors.values() if t is not None):
            return dlpack.call(self._torch, tensors, rest)
        if self._arrays is None:
            name, first = next((n, t) for n, t in tensors.items() if not is_tensor(t))
            raise TypeError(f"{name}: is a {type(first).__name__}, expected tensors of torch")
        return self._arrays(**tensors, **rest)

    def problem(self, *args: Any, **kwargs: Any) -> str:
        """The problem that a call is, in its one text form; it takes what the call takes."""
        import inspect  # slow to load, and for those who explain and tune

        signature = inspect.signature(self.function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as why:
            known = ", ".join(signature.parameters)
            raise TypeError(f"{self.function.__name__}: {why}; it takes {known}") from None
        return self._problem(**bound.arguments)


def is_tensor(value: Any) -> bool:
    return torch is not None and isinstance(value, torch.Tensor)


def is_torch(optional: tuple[str, ...] = (), /, **tensors: Any) -> bool:
    """Whether these are torch's; a mixture is an error. What may be left out may be None."""
    inputs = {n: t for n, t in tensors.items() if t is not None or n not in optional}
    if not any(map(is_tensor, inputs.values())):
        return False
    for name, tensor in inputs.items():
        if not is_tensor(tensor):
            raise _mixture(name, tensor)
    return True


def _mixture(name: str, value: Any) -> TypeError:
    return TypeError(f"{name}: is a {type(value).__name__}, expected tensors of one library")


def problem_of(op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The problem that a call of an operator is, in its one text form."""
    from ..ops import functions  # noqa: F401  declares them

    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    result = declared.get(name)
    if result is None and isinstance(op, str):
        result = _by_operation.get(_read(name))
    if result is None:
        *most, last = sorted(declared)
        raise ValueError(f"op: is {name or op!r}, expected {', '.join(most)} or {last}")
    return result.problem(*args, **kwargs)


def _read(name: str) -> str:
    try:
        return _warplap.read_operation(name)
    except ValueError:
        return name
