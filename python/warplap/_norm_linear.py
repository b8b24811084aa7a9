"""norm_linear over torch tensors, an RMSNorm and the layer behind it as one product: x is multiplied as it is, and the
rows of the product are divided by the root mean square of x's. The norm's gain is folded into the weight, once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from . import _callables, _cuda, _norm_torch, _warplap
from ._arrays import unknown_activation
from ._by_torch import cast, has_kernels
from ._compiled import compiled, fake
from ._gated_torch import gated_linear
from ._joined import joined
from ._layers import ACTIVATIONS, check, finish, linear
from ._library import floats, lib, lines, op, ordinary, rows, wants
from ._nodes import PLAIN, is_watched
from ._norm_problem import text
from ._prepared import prepared

lib.define(
    "norm_linear(Tensor x, Tensor w, Tensor? gain, Tensor? up, Tensor? bias, str? activation, Tensor? residual,"
    " Tensor? times, float eps) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)

# Folded weights by where the weight and the gain lie: what they lie in, their versions, and the product.
_Kept = tuple[StorageWeakRef, StorageWeakRef, tuple[int, int], Tensor]
_folded: dict[Any, _Kept] = {}


def folded(w: Tensor, gain: Tensor | None) -> Tensor | None:
    """The weight with a norm's gain folded in; kept as long as both live, made anew when one of them was changed in
    place. None where nobody could tell (tensors made in inference mode)."""
    if gain is None:
        return w
    if w.is_inference() or gain.is_inference():
        return None
    key = w.data_ptr(), gain.data_ptr(), w.shape, w.stride(), w.dtype
    versions, kept = (w._version, gain._version), _folded.get(key)
    if kept is not None and kept[2] == versions and not kept[0].expired() and not kept[1].expired():
        return kept[3]
    made = (w.detach() * gain.detach()).contiguous()
    if not _callables.capturing():  # what is made now would belong to the graph
        for old in [k for k, v in _folded.items() if v[0].expired() or v[1].expired()]:
            del _folded[old]
        _folded[key] = StorageWeakRef(w.untyped_storage()), StorageWeakRef(gain.untyped_storage()), versions, made
    return made


def forget() -> None:
    """Frees all folded weights."""
    _folded.clear()


# Calls by how their tensors lie, and how many are kept at the most: sizes may change all the time.
_ready: dict[Any, _warplap.Prepared | None] = {}
_MOST = 4096


def _call_of(*given: Any) -> _warplap.Prepared | None:
    """The call for matrices, ready; None where no problem says it: weights that do not lie alike."""
    tensors, (activation, eps) = given[:6], given[6:]
    lie = tuple(None if t is None else (t.shape, t.stride(), t.data_ptr() & 63) for t in tensors)
    key = lie, tensors[0].dtype, activation, eps
    if key in _ready:
        return _ready[key]
    if len(_ready) >= _MOST:
        _ready.clear()
    x, w, up, bias, residual, times = (None if t is None else t.detach() for t in tensors)
    asked = text(x, w, up, bias, activation, residual, times, eps)
    _ready[key] = found = None if asked is None else prepared(asked)
    return found


def _run(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, activation: str | None,
    residual: Tensor | None, times: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """Of matrices, by whoever is fastest here and right; what no problem expresses is a norm and a layer."""
    right, second = folded(w, gain), None if up is None else folded(up, gain)
    if right is not None and (up is None) == (second is None) and ordinary(x, w):
        plain = lambda t: t if t is None or (t.is_contiguous() and not t.is_neg()) else t.contiguous().resolve_neg()
        x, bias, residual, times = plain(x), plain(bias), plain(residual), plain(times)
        right, second = lines(right), None if second is None else lines(second)
        ready = _call_of(x, right, second, bias, residual, times, activation, eps)
        if ready is not None:
            other, turned = times if residual is None else residual, None if second is None else second.t()
            try:
                return ready(x, right.t(), None, bias, other, turned, None)  # type: ignore[no-any-return]
            except NotImplementedError as why:
                _cuda.tell("torch", why)
    return _apart(x, w, gain, up, bias, activation, residual, times, eps)


for _device in ("CPU", "CUDA"):
    lib.impl("norm_linear", _run, _device)


@fake("norm_linear")
def _fake(x: Tensor, w: Tensor, *more: Any) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


compiled("norm_linear", _run)


def _apart(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, activation: str | None,
    residual: Tensor | None, times: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """A norm and a layer, each with gradients of its own."""
    y: Tensor = _norm_torch.norm(x, None, gain, None, "rms", eps)
    if up is not None:
        return gated_linear(y, w, up, activation, None)
    if residual is not None or times is not None:
        return joined(y, w, bias, residual, times, activation)
    return linear(y, w, bias, activation, None)


def _autograd(keys: Any, *given: Any) -> Tensor:
    """One node of a graph, unless gradients are wanted: then a norm and a layer, so that nothing is computed twice. Only
    torch's dispatcher knows for sure which it is, under every tracer and transform."""
    if wants(*(t for t in given if isinstance(t, Tensor))):
        return _apart(*given)
    with torch._C._AutoDispatchBelowAutograd():
        below = keys & torch._C._after_autograd_keyset
        return op.norm_linear.default.redispatch(below, *given)  # type: ignore[no-any-return]


lib.impl("norm_linear", _autograd, "Autograd", with_keyset=True)


def norm_linear(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    times: Tensor | None, activation: str | None, eps: float,
) -> Tensor:  # fmt: skip
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    x, w, gain, up, bias = cast(x, w, gain, up, bias)
    others = {"residual": residual, "times": times}
    ours = has_kernels(x, w, gain, up, bias, *others.values())
    if ours:
        floats(x=x, w=w, weight=gain, up=up, bias=bias, **others)
    check(x, w, bias)
    if gain is not None and tuple(gain.shape) != (w.shape[1],):
        raise ValueError(f"weight: has shape {list(gain.shape)}, expected {[w.shape[1]]} as x has columns")
    if up is not None and tuple(up.shape) != tuple(w.shape):
        raise ValueError(f"up: has shape {list(up.shape)}, expected {list(w.shape)} as w has")
    shape = (*x.shape[:-1], w.shape[0])
    for name, other in others.items():
        if other is not None and tuple(other.shape) != shape:
            raise ValueError(f"{name}: has shape {list(other.shape)}, expected {list(shape)}")
    if not ours:
        y = F.rms_norm(x, (x.shape[-1],), gain, eps)
        if up is not None:
            return finish(F.linear(y, w), activation) * F.linear(y, up)
        return finish(F.linear(y, w, bias), activation, residual, times)
    flat = [None if t is None else rows(t) for t in (residual, times)]
    given: Any = rows(x), w, gain, up, bias, activation, *flat, eps
    tensors = [t for t in given if isinstance(t, Tensor)]
    watched = torch.compiler.is_compiling() or is_watched() or wants(*tensors) or any(type(t) not in PLAIN for t in tensors)
    y = op.norm_linear.default(*given) if watched else _run(*given)
    return y if x.ndim == 2 else y.reshape(shape)
