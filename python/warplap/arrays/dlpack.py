"""Arrays of other libraries on a CUDA device (CuPy, Numba, JAX): borrowed as torch tensors over the same memory, in the
order of their streams, and the answer given back as what the caller's library calls an array."""

from __future__ import annotations

from typing import Any, Callable

from ..operator.optional_torch import torch

# DLPack's number of CUDA devices.
_CUDA = 2


def is_on_cuda(value: Any) -> bool:
    """Whether an array that is not torch's shows memory of a CUDA device."""
    if hasattr(value, "__cuda_array_interface__"):
        return True
    device = getattr(value, "__dlpack_device__", None)
    return callable(device) and tuple(device())[0] == _CUDA


def call(operator: Callable[..., Any], arrays: dict[str, Any], rest: dict[str, Any]) -> Any:
    """What an operator over torch's tensors gives for the arrays, and whatever else it takes by name."""
    if torch is None:
        name = next(name for name, value in arrays.items() if is_on_cuda(value))
        raise NotImplementedError(f"{name}: is on a CUDA device, where torch does the work; install torch")
    tensors = {name: _tensor(value, name) for name, value in arrays.items()}
    result, out = operator(**tensors, **rest), tensors.get("out")
    if out is not None:
        _order(arrays["out"], first=torch.cuda.current_stream(out.device))
        return arrays["out"]
    first = next(value for value in arrays.values() if value is not None)
    return tuple(_as_array(f, first) for f in result) if isinstance(result, tuple) else _as_array(result, first)


def _tensor(value: Any, name: str) -> Any:
    if value is None:
        return None
    if not is_on_cuda(value):
        raise ValueError(f"{name}: is not on a CUDA device, expected all arrays on one")
    try:
        if hasattr(value, "__dlpack__"):  # the two libraries put their streams in order
            return torch.from_dlpack(value)
        _order(value)
        return torch.as_tensor(value, device="cuda")
    except (RuntimeError, ValueError, BufferError, TypeError, KeyError, AttributeError) as why:
        raise TypeError(f"{name}: {type(value).__name__} cannot be borrowed: {why}") from None


def _order(value: Any, first: Any = None) -> None:
    """Lets torch's stream wait for the array's, or the array's for ``first``, where the array names one."""
    stream = getattr(value, "__cuda_array_interface__", {}).get("stream")
    if not isinstance(stream, int) or stream <= 0:
        return
    if stream == 2:  # one per thread, which torch cannot name
        torch.cuda.synchronize()
        return
    theirs = torch.cuda.default_stream() if stream == 1 else torch.cuda.ExternalStream(stream)
    theirs.wait_stream(first) if first is not None else torch.cuda.current_stream().wait_stream(theirs)


def _as_array(result: Any, like: Any) -> Any:
    """The answer as an array of the caller's library where it says how, else as a torch tensor."""
    namespace = getattr(like, "__array_namespace__", None)
    make = getattr(namespace(), "from_dlpack", None) if callable(namespace) else None
    return result if make is None else make(result)
