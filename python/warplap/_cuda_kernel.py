"""A CUDA kernel in Kernel Tuner's calling form, handed over as a spec file: building, proving, racing and keeping are
those of every operation."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Sequence

from . import _warplap
from ._tunable import of_dictionary

_DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "int32": "i32", "int64": "i64"}


def _toml(value: Any) -> str:
    return json.dumps(value.item() if hasattr(value, "item") else value)


class Kernel:
    """A source, its settings and how it is launched."""

    def __init__(
        self, name: str, source: str, options: list[str], params: dict[str, Sequence[Any]], rules: list[Any]
    ) -> None:
        if any(isinstance(rule, of_dictionary) for rule in rules):
            raise NotImplementedError("restrictions: holds a callable, expected expressions for a kernel in CUDA")
        self._name, self._source, self._options, self._params, self._rules = name, source, options, params, rules
        self._launch: tuple[list[str], list[str]] = ([], [])

    def launched(self, size: Any, divisors: list[Sequence[str] | None], names: Sequence[str] | None) -> None:
        """Blocks and threads as Kernel Tuner works them out."""
        sizes = [size] if isinstance(size, (int, str)) or hasattr(size, "item") else list(size)
        if not 1 <= len(sizes) <= 3:
            raise ValueError(f"problem_size: has {len(sizes)} sizes, expected 1 to 3")
        usual = ["block_size_x", "block_size_y", "block_size_z"]
        threads = [*(names or ()), *usual[len(names or ()) :]][:3]
        grid = []
        for axis, (whole, divisor) in enumerate(zip(sizes, divisors)):
            if divisor is None:
                divisor = [threads[0]] if axis == 0 and threads[0] in self._params else []
            by = " * ".join(f"({part})" for part in divisor)
            grid.append(f"ceil(({whole}) / ({by}))" if by else str(whole))
        block = [name if name in self._params else str(256 if axis == 0 else 1) for axis, name in enumerate(threads)]
        self._launch = (grid, block)

    def tune(
        self, arguments: Sequence[Any], answer: Sequence[Any] | None, atol: float | None, gpu: int, budget: float | None
    ) -> dict[str, Any]:
        """Writes everything down and tunes it; what is known about the key."""
        outputs = [i for i, right in enumerate(answer or ()) if right is not None]
        if len(outputs) != 1:
            raise ValueError(f"answer: holds {len(outputs)} outputs, expected the right one of a kernel in CUDA")
        with tempfile.TemporaryDirectory(prefix="warplap-") as folder:
            path = os.path.join(folder, f"{self._name}.toml")
            with open(os.path.join(folder, "kernel.cu"), "w") as file:
                file.write(self._source if 'extern "C"' in self._source else f'extern "C" {{\n{self._source}\n}}\n')
            with open(path, "w") as file:
                file.write("\n".join(self._lines(folder, arguments, answer or (), outputs[0], atol)) + "\n")
            found: dict[str, Any] = json.loads(_warplap.tune_spec(path, gpu=gpu, budget=budget))
        return found

    def _lines(
        self, folder: str, arguments: Sequence[Any], answer: Sequence[Any], output: int, atol: float | None
    ) -> list[str]:
        import numpy

        lines = [f"name = {_toml(self._name)}", 'language = "cuda"', 'source = "kernel.cu"']
        lines += [f"entry = {_toml(self._name)}", f"flags = {_toml(self._options)}", f"rules = {_toml(self._rules)}"]
        lines += ["[axes]", *(f"{name} = {_toml(list(values))}" for name, values in self._params.items())]
        for i, value in enumerate(arguments):
            dtype = _DTYPES.get(str(getattr(value, "dtype", "")))
            if dtype is None or (dtype == "i64" and hasattr(value, "ctypes")):
                found = getattr(value, "dtype", type(value).__name__)
                expected = "NumPy arrays of float64, float32, float16 or int32 and NumPy scalars"
                raise TypeError(f"arguments: holds {found}, expected {expected}")
            lines += ["[[arguments]]", f'name = "a{i}"', f'dtype = "{dtype}"']
            if not hasattr(value, "ctypes"):
                lines.append(f"value = {_toml(value)}")
                continue
            lines.append(f"shape = {_toml(list(value.shape))}")
            if i == output:
                lines.append('role = "out"')
            else:
                numpy.save(os.path.join(folder, f"a{i}.npy"), numpy.ascontiguousarray(value))
                lines.append(f'file = "a{i}.npy"')
        right = numpy.ascontiguousarray(answer[output], dtype=arguments[output].dtype).reshape(arguments[output].shape)
        numpy.save(os.path.join(folder, "answer.npy"), right)
        grid, block = self._launch
        lines += ["[launch]", f"grid = {_toml(grid)}", f"block = {_toml(block)}"]
        lines += ["[reference]", 'file = "answer.npy"']
        return [*lines, *(["[tolerance]", f"relative = {atol}"] if atol is not None else [])]
