"""norm_linear over torch tensors, an RMSNorm and the layer behind it as one product: x is multiplied as it is, and the
rows of the product are divided by the root mean square of x's. The norm's gain is folded into the weight, once."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from .. import _warplap
from ..callables import race
from ..operator import cuda as operator_cuda
from .norm import dense as norm_dense
from ..arrays.numpy import unknown_activation
from ..operator.torch_fallback import cast, has_kernels
from ..operator.compile import compiled, fake
from .gated_linear import gated_linear
from .linear_joined import joined
from .linear import ACTIVATIONS, finish, linear
from ..operator.library import floats, lib, lines, lying, op, ordinary, rows, wants
from ..operator.eager import PLAIN, is_watched
from .norm_linear_problem import check, text
from ..operator.prepared import prepared

lib.define(
    "norm_linear(Tensor x, Tensor w, Tensor? gain, Tensor? up, Tensor? bias, str? activation, Tensor? residual,"
    " Tensor? times, float eps) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


class _Kept(NamedTuple):
    """A folded weight: of which gain, in which state of both, and the stream that made it."""

    gain: weakref.ref[Tensor]
    state: tuple[Any, ...]
    made: Tensor
    stream: Any


# By the weight, as long as that lives. What a captured graph has seen lives for ever: it may be replayed at any time.
_folded: Any = WeakIdKeyDictionary()
_captured: dict[int, Tensor] = {}
_lock = threading.Lock()


def folded(w: Tensor, gain: Tensor | None, make: bool = False) -> Tensor | None:
    """The weight with a norm's gain folded in, where it is known; with ``make`` it is made, where both are parameters:
    those stay where they are, and say when they were changed in place. What a program computes does neither."""
    if gain is None:
        return w
    if type(w) is not torch.nn.Parameter or type(gain) is not torch.nn.Parameter or w.is_inference() or gain.is_inference():
        return None
    state = w._version, gain._version, w.data_ptr(), gain.data_ptr(), w.dtype
    kept = _folded.get(w)
    is_known = kept is not None and kept.gain() is gain and kept.state == state
    if not is_known and (not make or race.capturing()):
        return None
    stream = torch.cuda.current_stream(w.device) if w.is_cuda else None
    if not is_known:
        made = (w.detach() * gain.detach()).contiguous()
        if stream is not None:
            stream.synchronize()  # once a weight: other streams may read it at once
        kept = _Kept(weakref.ref(gain), state, made, stream)
        with _lock:
            _folded[w] = kept
    elif stream is not None and stream != kept.stream:
        kept.made.record_stream(stream)
    if stream is not None and race.capturing():
        _captured[kept.made.data_ptr()] = kept.made
    found: Tensor = kept.made
    return found


def forget() -> None:
    """Frees all folded weights but those of captured graphs."""
    with _lock:
        _folded.clear()


# Calls by how their tensors lie, and how many are kept at the most: sizes may change all the time.
_ready: dict[Any, _warplap.Prepared | None] = {}
_MOST = 4096


def _call_of(tensors: tuple[Tensor | None, ...], activation: str | None, eps: float) -> _warplap.Prepared | None:
    """The call for matrices, ready; None where no problem says it: weights that do not lie alike."""
    own = [t if t is None else t.detach() for t in tensors]
    key = lying(*own), activation, eps
    if key in _ready:
        return _ready[key]
    if len(_ready) >= _MOST:
        _ready.clear()
    x, w, up, bias, residual, times = own
    asked = text(x, w, up, bias, activation, residual, times, eps)
    _ready[key] = found = None if asked is None else prepared(asked)
    return found


# The same by how a caller's tensors lie, before the gain is folded into the weights.
_quick: dict[Any, _warplap.Prepared] = {}


def at_once(
    x: Any, w: Any, gain: Any, up: Any, bias: Any, activation: str | None, residual: Any, times: Any, eps: float
) -> Any:
    """Over plain tensors of which nobody wants a gradient, whose gain is folded already, and that were called so before;
    None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape = x.shape
    try:
        if len(shape) != 2:
            n = w.shape[0]
            x, residual, times = x.view(-1, shape[-1]), *(t if t is None else t.view(-1, n) for t in (residual, times))
        told = _warplap.lie(x, w, gain, up, bias, residual, times)
        ready = None if told is None else _quick.get((told, activation, eps))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # the general way says what is wrong
        return None
    if ready is None:
        return None
    right = folded(w, gain)
    second = None if up is None else folded(up, gain)
    if right is None or (up is not None and second is None):
        return None
    other = times if residual is None else residual
    found = ready.direct(x, right.t(), None, bias, other, None if second is None else second.t(), None)
    return found if found is None or len(shape) == 2 else found.view(*shape[:-1], -1)


def _run(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, activation: str | None,
    residual: Tensor | None, times: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """Of matrices, by whoever is fastest here and right; what no problem expresses is a norm and a layer."""
    found = at_once(x, w, gain, up, bias, activation, residual, times, eps)
    if found is not None:
        return found  # type: ignore[no-any-return]
    told = _warplap.lie(x, w, gain, up, bias, residual, times)
    right, second = folded(w, gain), None if up is None else folded(up, gain)
    if right is not None and (up is None) == (second is None) and ordinary(x, w):
        plain = lambda t: t if t is None or (t.is_contiguous() and not t.is_neg()) else t.contiguous().resolve_neg()
        given = x, bias, residual, times
        x, bias, residual, times = map(plain, given)
        level, also = lines(right), None if second is None else lines(second)
        is_as_given = level is right and also is second and all(a is b for a, b in zip(given, (x, bias, residual, times)))
        right, second = level, also
        ready = _call_of((x, right, second, bias, residual, times), activation, eps)
        if ready is not None:
            if told is not None and is_as_given:
                if len(_quick) >= _MOST:
                    _quick.clear()
                _quick[told, activation, eps] = ready
            other, turned = times if residual is None else residual, None if second is None else second.t()
            try:
                return ready(x, right.t(), None, bias, other, turned, None)  # type: ignore[no-any-return]
            except NotImplementedError as why:
                operator_cuda.tell("torch", why)
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
    y: Tensor = norm_dense.norm(x, None, gain, None, "rms", eps)
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
    cast_to = cast(x, w, gain, up, bias)
    other = times if residual is None else residual
    if other is not None and cast_to[0] is not x and other.dtype != cast_to[0].dtype:
        # Where torch casts, what is joined stays as it is and the sum has the wider type, as with torch's own product.
        return finish(norm_linear(x, w, gain, up, bias, None, None, activation, eps), None, residual, times)
    x, w, gain, up, bias = cast_to
    others = {"residual": residual, "times": times}
    ours = has_kernels(x, w, gain, up, bias, *others.values())
    if ours:
        floats(x=x, w=w, weight=gain, up=up, bias=bias, **others)
    shape = check(x, w, gain, up, bias, **others)
    if not ours:
        y = F.rms_norm(x, (x.shape[-1],), gain, eps)
        if up is not None:
            return finish(F.linear(y, w), activation) * F.linear(y, up)
        return finish(F.linear(y, w, bias), activation, residual, times)
    if not torch.compiler.is_compiling():
        for weight in (w, up):
            if weight is not None and gain is not None and not wants(x, weight, gain):
                folded(weight, gain, make=True)
    flat = [None if t is None else rows(t) for t in (residual, times)]
    given: Any = rows(x), w, gain, up, bias, activation, *flat, eps
    tensors = [t for t in given if isinstance(t, Tensor)]
    watched = torch.compiler.is_compiling() or is_watched() or wants(*tensors) or any(type(t) not in PLAIN for t in tensors)
    y = op.norm_linear.default(*given) if watched else _run(*given)
    return y if x.ndim == 2 else y.reshape(shape)
