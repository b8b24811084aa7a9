"""Any operation by its problem's text: read once, and called with tensors by slot after that."""

from __future__ import annotations

import functools
from typing import Any, Mapping

from .. import _warplap


@functools.lru_cache(maxsize=4096)
def prepared(problem: str) -> _warplap.Prepared:
    """A problem, ready to be called with one tensor a slot."""
    return _warplap.Prepared(problem)


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
