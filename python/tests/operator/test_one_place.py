"""What every operator shares stands once, in ``operator/`` and ``arrays/``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warplap
from warplap.operator.public import declared

PACKAGE = Path(warplap.__file__).parent
ELSEWHERE = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in ("operator", "arrays")]
OPERATORS = [p for p in ELSEWHERE if p.relative_to(PACKAGE).parts[0] in ("ops", "training", "nn.py")]


@pytest.mark.parametrize(
    "what, files",
    [
        (r"\blib\.(define|impl)|\bregister_(fake|autograd|kernel)\b|torch\.library|autograd\.Function,\)", ELSEWHERE),
        (r"autocast_(enabled|dtype)|AutocastC", ELSEWHERE),
        (r"\blru_cache\b|\bfunctools\.cache\b|_warplap\.(lie|Prepared)\(", OPERATORS),
        (r"__dlpack_device__|__cuda_array_interface__|from_dlpack", OPERATORS),
    ],
)
def test_nobody_else_registers_caches_casts_or_borrows(what, files):
    assert len(files) > 20, files
    lines = [f"{p.relative_to(PACKAGE)}: {line.strip()}" for p in files for line in p.read_text().splitlines()]
    assert [line for line in lines if re.search(what, line)] == []


def test_every_function_over_tensors_is_declared():
    own = {name for name in warplap.ops.functions.__all__ if name not in ("forget_folded", "run")}
    assert own == set(declared) and set(warplap.ops.functions.__all__) == warplap._OPERATORS
    assert all(getattr(warplap, name) is declared[name].function for name in own)
