"""Who is the reference where nobody is known to be right: candidates that give the same answer vouch for each other.

Compilers make wrong code of single settings. If the first one were believed, and were the wrong one, every right one
would be called wrong. So all run once on the same arguments, and those that leave the same behind are of one opinion.
An opinion counts if two candidates with different settings hold it. Of those that count the one with the fewest values
that are no finite numbers is taken: what is miscompiled in one way tends to leave the same rows of NaN, and may be in
the majority. Then the one that most hold, then the earliest. Where no two agree nothing can be proved: an error.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Sequence

import torch

from .harness import Rig, copied, share_of_tolerance

_log = logging.getLogger("warplap")


class _Opinion:
    """What a run left behind, and who else left the same."""

    def __init__(self, first: int, left: dict[int, Any], odd: int) -> None:
        self.first, self.odd = first, odd
        self.left = {i: copied(t, {}) for i, t in left.items()}
        self.held_by: list[Any] = []

    def is_that_of(self, left: dict[int, Any], rig: Rig, tolerance: float | None) -> bool:
        for i in self.left.keys() | left.keys():
            mine, other = self.left.get(i, rig.initial(i)), left.get(i, rig.initial(i))
            # Both ways: what is allowed grows with the largest value of the one that is held for right.
            shares = share_of_tolerance(mine, other, tolerance), share_of_tolerance(other, mine, tolerance)
            if not max(shares) <= 1.0:
                return False
        return True


def _odd(left: dict[int, Any]) -> int:
    """How many values are no finite numbers."""
    return sum(int((~torch.isfinite(t)).sum()) for t in left.values() if t.is_floating_point())


def agreed(
    rig: Rig, runs: Sequence[Callable[..., Any]], settings: Sequence[Any], tolerance: float | None = None
) -> int:
    """The number of the run that is the reference. One that fails, or changes nothing, has no opinion."""
    opinions: list[_Opinion] = []
    errors: list[str] = []
    for i, run in enumerate(runs):
        rig.reset()
        try:
            run(*rig.args, **rig.kwargs)
            rig.wait()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
            continue
        left = rig.left()
        if not left:
            continue
        result = next((o for o in opinions if o.is_that_of(left, rig, tolerance)), None)
        if result is None:
            result = _Opinion(i, left, _odd(left))
            opinions.append(result)
        if settings[i] not in result.held_by:
            result.held_by.append(settings[i])
        if not result.odd and 2 * len(result.held_by) > len(runs):
            break  # nobody can be preferred to it any more
    rig.reset()
    vouched = [o for o in opinions if len(o.held_by) > 1]
    if not vouched:
        failed = f"; {len(errors)} failed, the first with {errors[0][:300]}" if errors else ""
        raise ArithmeticError(f"no two of {len(runs)} configs leave the same answer: {len(opinions)} answers{failed}")
    best = min(vouched, key=lambda o: (o.odd, -len(o.held_by), o.first))
    for other in opinions:
        if other is not best:
            _log.warning(
                "%s: %d of %d configs leave another answer than those that are believed%s",
                settings[other.first], len(other.held_by), len(runs),
                f", with {other.odd} values that are no finite numbers" if other.odd > best.odd else "",
            )  # fmt: skip
    return best.first
