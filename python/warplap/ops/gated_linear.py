"""gated_linear over torch tensors, activation(x @ w_gate.T) * (x @ w_up.T): one product with two weights where no gradient
is wanted, else two layers of which each has gradients of its own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _warplap
from ..operator import cuda
from ..arrays.numpy import unknown_activation
from ..operator.torch_fallback import cast, has_kernels
from ..operator.compile import compiled, fake
from .gated_linear_problem import check, pair
from .linear_joined import layer
from .linear import ACTIVATIONS, finish, finished, finished_run
from ..operator.library import check_out, floats, lib, lines, lying, op, ordinary, rows, wants
from ..operator.eager import PLAIN, is_watched

# Calls by how their tensors lie, and how many are kept at the most: sizes may change all the time.
_ready: dict[Any, _warplap.Prepared | None] = {}
_MOST = 4096


def _call_of(
    x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None, out: Tensor | None = None
) -> _warplap.Prepared | None:
    """The call for matrices, ready; None where it is none: weights that do not lie alike, or sizes that are torch's."""
    x, w_gate, w_up, out = x.detach(), w_gate.detach(), w_up.detach(), None if out is None else out.detach()
    key = lying(x, w_gate, w_up, out), activation
    if key in _ready:
        return _ready[key]
    if len(_ready) >= _MOST:
        _ready.clear()
    one_problem = w_up.shape == w_gate.shape and ordinary(x, w_gate)
    _ready[key] = found = pair(x, w_gate, w_up, activation, out) if one_problem else None
    return found


def at_once(x: Any, w_gate: Any, w_up: Any, activation: str | None) -> Any:
    """Over plain tensors of which nobody wants a gradient; None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape = x.shape
    try:
        flat = x if len(shape) == 2 else x.view(-1, shape[-1])
        told = _warplap.lie(flat, w_gate, w_up, None)
        if told is None:
            return None
        ready = _ready.get((told, activation)) or _call_of(flat, w_gate, w_up, activation)
    except (RuntimeError, ValueError, TypeError, IndexError):  # the general way copies, or says what is wrong
        return None
    found = None if ready is None else ready.direct(flat, w_gate.t(), None, None, None, w_up.t())
    return found if found is None or len(shape) == 2 else found.view(*shape[:-1], -1)


def _run(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None) -> Tensor:
    """Of matrices, by whoever is fastest here and right; what no problem expresses is two products."""
    found = at_once(x, w_gate, w_up, activation)
    if found is not None:
        return found  # type: ignore[no-any-return]
    x, w_gate, w_up = lines(x), lines(w_gate), lines(w_up)
    ready = _call_of(x, w_gate, w_up, activation)
    if ready is not None:
        try:
            return ready(x, w_gate.t(), None, None, None, w_up.t())  # type: ignore[no-any-return]
        except NotImplementedError as why:
            cuda.tell("torch", why)
    up = finished_run(x, w_up, None)
    return finished_run(x, w_gate, None, activation, None, up)


for _device in ("CPU", "CUDA"):
    lib.impl("gated_linear", _run, _device)


@fake("gated_linear")
def _fake(x: Tensor, w_gate: Tensor, *more: Any) -> Tensor:
    return x.new_empty((x.shape[0], w_gate.shape[0]))


compiled("gated_linear", _run)


def _autograd(keys: Any, x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None) -> Tensor:
    """One node of a graph, unless gradients are wanted: then two layers and their product, so that nothing is computed
    twice. Only torch's dispatcher knows for sure which it is, under every tracer and transform."""
    if wants(x, w_gate, w_up):
        return finished(x, w_gate, None, activation) * finished(x, w_up, None, None)
    with torch._C._AutoDispatchBelowAutograd():
        below = keys & torch._C._after_autograd_keyset
        return op.gated_linear.default.redispatch(below, x, w_gate, w_up, activation)  # type: ignore[no-any-return]


lib.impl("gated_linear", _autograd, "Autograd", with_keyset=True)


def gated_linear(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None, out: Tensor | None) -> Tensor:
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown_activation(activation)
    x, w_gate, w_up = cast(x, w_gate, w_up)
    ours = has_kernels(x, w_gate, w_up)
    if ours:
        floats(x=x, w_gate=w_gate, w_up=w_up, out=out)
    check(x, w_gate, w_up)
    shape = (*x.shape[:-1], w_gate.shape[0])
    if out is not None:
        check_out(out, shape, x=x, w_gate=w_gate, w_up=w_up)
        if ours and _written(x, w_gate, w_up, activation, out):
            return out
    if not ours:
        y = finish(F.linear(x, w_gate), activation) * F.linear(x, w_up)
    elif wants(x, w_gate, w_up):
        y = layer(x, w_gate, None, activation) * layer(x, w_up, None, None)
    else:
        y = op.gated_linear.default(rows(x), w_gate, w_up, activation)
        y = y if x.ndim == 2 else y.reshape(shape)
    return y if out is None else out.copy_(y)


def _written(x: Tensor, w_gate: Tensor, w_up: Tensor, activation: str | None, out: Tensor) -> bool:
    """Whether a plain call could write into the caller's memory."""
    plain = all(type(t) in PLAIN for t in (x, w_gate, w_up, out))
    if torch.compiler.is_compiling() or not plain or is_watched():
        return False
    flat, to = lines(rows(x)), rows(out)
    if to.stride(1) != 1 or to.data_ptr() != out.data_ptr() or out.is_neg():
        return False
    try:
        ready = _call_of(flat, w_gate, w_up, activation, to)
        if ready is not None:
            ready(flat, w_gate.t(), to, None, None, w_up.t())
    except (ValueError, NotImplementedError):  # lines with gaps between their elements, among others
        return False
    return ready is not None
