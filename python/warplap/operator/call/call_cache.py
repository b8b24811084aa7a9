"""Problems that are ready to be called: read once, and called with tensors by slot after that."""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping

from ... import _warplap

# Problems that are kept for each kind at the most: sizes may change all the time.
_MOST = 4096


def prepared_call(problem: Callable[..., str]) -> Callable[..., _warplap.Prepared]:
    """The calls of what a function says as texts, ready, by its arguments."""
    make = lambda *facts: _warplap.Prepared(problem(*facts))
    return functools.lru_cache(maxsize=_MOST)(functools.update_wrapper(make, problem))


@prepared_call
def prepared(problem: str) -> str:
    """A problem, ready to be called with one tensor a slot."""
    return problem


def layout_call(find: Callable[..., _warplap.Prepared | None]) -> Callable[..., _warplap.Prepared | None]:
    """The calls of what a function finds for tensors and other facts, by how the tensors lie."""
    known = _warplap.CallCache("all")

    def call(tensors: tuple[Any, ...], *facts: Any) -> _warplap.Prepared | None:
        ready = known.get(tensors, facts)
        if ready is None:
            ready = find(*(None if t is None else t.detach() for t in tensors), *facts) or False
            known.keep(tensors, facts, ready)
        return ready or None

    return call


def run(problem: str, tensors: Mapping[str, Any]) -> Any:
    """Runs any operation that ``warplap ops`` names, by its problem's text and tensors by the names of its slots.

    >>> y = warplap.run("norm:rows=64,n=4096,dtype=bf16", {"x": x, "weight": w})

    What is given for an output is written; outputs that are left out are new torch tensors, and returned: one, or a
    tuple. Tensors have the shapes and strides that the problem says. There are no gradients on this way.
    """
    call = prepared(problem)
    names = [name for name, _ in call.slots]
    for name in tensors:
        if name not in names:
            raise ValueError(f"tensors: has {name!r}, expected some of {', '.join(names)}")
    return call(*(tensors.get(name) for name in names))
