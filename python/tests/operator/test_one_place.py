"""What every operator shares stands once, in ``operator/`` and ``arrays/``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import warplap
from warplap.operator.public import declared

PACKAGE = Path(warplap.__file__).parent
ELSEWHERE = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in ("operator", "arrays")]
OPERATORS = [p for p in ELSEWHERE if p.relative_to(PACKAGE).parts[0] in ("ops", "training", "nn.py")]


# Words that say nothing to who was never here; what is said instead stands in CONTRIBUTING.md.
NOT_NAMES = {"told", "given", "found", "lent", "heat", "heats", "lane", "lanes", "bent", "lies", "lie", "stir", "card",
             "road", "desk", "twin", "shelf"}  # fmt: skip


@pytest.mark.parametrize(
    "what, files",
    [
        (r"\blib\.(define|impl)|\bregister_(fake|autograd|kernel)\b|torch\.library|autograd\.Function,\)", ELSEWHERE),
        (r"autocast_(enabled|dtype)|AutocastC", ELSEWHERE),
        (r"\blru_cache\b|\bfunctools\.cache\b|_warplap\.Prepared\(", OPERATORS),
        (r"__dlpack_device__|__cuda_array_interface__|from_dlpack", OPERATORS),
    ],
)
def test_nobody_else_registers_caches_casts_or_borrows(what, files):
    assert len(files) > 20, files
    lines = [f"{p.relative_to(PACKAGE)}: {line.strip()}" for p in files for line in p.read_text().splitlines()]
    assert [line for line in lines if re.search(what, line)] == []


def test_every_function_over_tensors_is_declared():
    own = {name for name in vars(warplap.ops.functions) if not name.startswith("_")} - {"forget_folded", "run"}
    assert own == set(declared) and own < set(warplap.__all__)
    assert all(getattr(warplap, name) is declared[name].function for name in own)


def named(tree):
    """The names that a file gives: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def test_no_word_of_our_own_is_a_name():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100 and [*named(ast.parse("def told(lies): self.heat = 1"))] == ["told", "lies", "heat"]
    names = [(p.relative_to(PACKAGE), name) for p in files for name in named(ast.parse(p.read_text()))]
    wrong = [f"{p}: {name}" for p, name in names if name.strip("_").lower() in NOT_NAMES]
    assert wrong == [] and not [p for p in files if p.stem.strip("_") in NOT_NAMES]
