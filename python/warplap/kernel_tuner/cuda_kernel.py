"""A CUDA kernel in Kernel Tuner's calling form, handed over as a spec file: building, proving, racing and keeping are
those of every operation. A setting of it can also be run by itself."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Mapping, Sequence

from .. import _warplap
from . import arguments as kernel_tuner_arguments, run_once
from .launch import Launch

_DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "int32": "i32", "uint32": "i32"}

# Settings that are listed one by one at the most.
LISTED = 100_000

# What callables say about a setting stands beside it, under these names: the grid, shared memory, which text is meant.
_GRID, _SHARED, _TEXT = ("grid_size_x", "grid_size_y", "grid_size_z"), "warplap_shared", "warplap_source"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _toml(value: Any) -> str:
    plain = _plain(value)
    return repr(plain) if isinstance(plain, float) else json.dumps(plain)


class Kernel:
    """A source, its settings, how it is launched and what lies in constant memory."""

    def __init__(
        self,
        name: str,
        source: Any,
        options: Sequence[str],
        params: Mapping[str, Sequence[Any]],
        launch: Launch,
        constants: Mapping[str, Any] | None = None,
        gpu: int = 0,
    ) -> None:
        self._name, self._source, self._launch, self._gpu = name, source, launch, gpu
        self._params = {axis: [_plain(v) for v in values] for axis, values in params.items()}
        taken = [name for name in _GRID if name in params and launch.calls()]
        if taken:
            raise ValueError(f"tune_params: holds {taken[0]}, expected another name: it is the size of the grid")
        self._options = [*options, *launch.defines()]
        constants = constants or {}
        self._constants = dict(zip(constants, kernel_tuner_arguments.host(list(constants.values()), "cmem_args")))

    def run(
        self, config: Mapping[str, Any], arguments: Sequence[Any], patience: float = run_once.PATIENCE,
        loud: bool = True,
    ) -> list[Any]:
        """The arguments as one setting leaves them."""
        sizes = self._launch.at(config)
        made = self._source(dict(config)) if callable(self._source) else self._source
        options = [*self._options, *kernel_tuner_arguments.defines({**dict(zip(_GRID, sizes.grid)), **config})]
        return run_once.run(made, self._name, options, sizes, arguments, self._constants, self._gpu, patience, loud)

    def tune(
        self,
        arguments: Sequence[Any],
        roles: Sequence[str],
        answer: Sequence[Any] | None,
        first: Mapping[str, Any],
        rules: list[str] | None,
        configs: list[dict[str, Any]],
        atol: float | None,
        budget: float | None,
    ) -> dict[str, Any]:
        """Writes everything down and tunes it; what is known about the key. Where there are no ``rules``, the
        ``configs`` are all there are."""
        with tempfile.TemporaryDirectory(prefix="warplap-") as folder:
            path = self.write(folder, arguments, roles, answer, first, rules, configs, atol)
            result: dict[str, Any] = json.loads(_warplap.tune_spec(path, gpu=self._gpu, budget=budget))
        return result

    def write(
        self,
        folder: str,
        arguments: Sequence[Any],
        roles: Sequence[str],
        answer: Sequence[Any] | None,
        first: Mapping[str, Any],
        rules: list[str] | None,
        configs: list[dict[str, Any]],
        atol: float | None,
    ) -> str:
        """Writes the spec file and what belongs to it; its path. ``first`` becomes the default of every axis."""
        start = {name: _plain(value) for name, value in first.items()}
        axes, text = dict(self._params), self._source
        lines = [f"name = {_toml(self._name)}", 'language = "cuda"', 'source = "kernel.cu"']
        lines += [f"entry = {_toml(self._name)}", f"flags = {_toml(self._options)}"]
        if rules is None:
            columns, text = self._said_by_callables(configs)
            axes |= {name: list(dict.fromkeys(values)) for name, values in columns.items()}
            at = configs.index(dict(first))
            start |= {name: values[at] for name, values in columns.items()}
            rows = zip(*([_plain(c[name]) for c in configs] for name in self._params), *columns.values())
            with open(os.path.join(folder, "configs.csv"), "w") as file:
                file.write("\n".join([",".join(axes), *(",".join(map(_cell, row)) for row in rows)]) + "\n")
            lines.append('configs = "configs.csv"')
        else:
            lines.append(f"rules = {_toml(rules)}")
        with open(os.path.join(folder, "kernel.cu"), "w") as file:
            file.write(text)
        lines += ["[axes]"]
        lines += [f"{n} = {_toml([start[n], *(v for v in values if v != start[n])])}" for n, values in axes.items()]
        lines += self._sizes(text)
        for i, (value, role) in enumerate(zip(arguments, roles)):
            lines += _argument(folder, f"a{i}", value, role)
        for name, value in self._constants.items():
            lines += _argument(folder, name, value, "constant")
        if answer is not None:
            outputs = [i for i, role in enumerate(roles) if role in ("out", "inout")]
            files = [_right(folder, i, arguments[i], answer[i]) for i in outputs]
            lines += ["[reference]", f"file = {_toml(files[0] if len(files) == 1 else files)}"]
        if atol is not None:
            lines += ["[tolerance]", f"relative = {atol}"]
        path = os.path.join(folder, f"{self._name}.toml")
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        return path

    def is_called(self) -> bool:
        """Whether callables decide about more than the settings: these are listed one by one then."""
        return self._launch.calls() or callable(self._source)

    def _said_by_callables(self, configs: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], str]:
        """What callables say about each setting, as columns beside it, and the source."""
        columns: dict[str, list[Any]] = {}
        if self._launch.calls():
            sizes = [self._launch.at(config) for config in configs]
            columns = {name: [s.grid[axis] for s in sizes] for axis, name in enumerate(_GRID)}
            columns[_SHARED] = [s.shared for s in sizes]
        if not callable(self._source):
            return columns, self._source
        texts: dict[str, int] = {}
        columns[_TEXT] = [texts.setdefault(self._source(dict(config)), len(texts)) for config in configs]
        return columns, "\n".join(f"#if {_TEXT} == {i}\n#line 1\n{text}\n#endif" for text, i in texts.items())

    def _sizes(self, text: str) -> list[str]:
        """The launch and, where the source reads it, the size of the grid."""
        calls = self._launch.calls()
        grid, shared = (list(_GRID), _SHARED) if calls else self._launch.expressions()
        block = self._launch.block()
        lines = ["[launch]", f"grid = {_toml(grid)}", f"block = {_toml(block)}", f"shared = {_toml(shared)}"]
        named = [(name, size) for name, size in zip(_GRID, [*grid, "1", "1"]) if name not in self._params]
        if "grid_size_" in text and not calls:
            lines += ["[derived]", *(f"{name} = {_toml(size)}" for name, size in named)]
        return lines


def _cell(value: Any) -> str:
    """A value as a list of settings has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _argument(folder: str, name: str, value: Any, role: str) -> list[str]:
    """The lines of one argument; its contents are in a file."""
    import numpy

    lines = ["[[arguments]]", f"name = {_toml(name)}"]
    if not isinstance(value, numpy.ndarray) and role != "constant":
        dtype, value = _number(value)
        return [*lines, f'dtype = "{dtype}"', f"value = {_toml(value)}"]
    dtype = _DTYPES.get(str(value.dtype), "")
    if not dtype:
        expected = "NumPy arrays of float64, float32, float16, int32 or uint32 and NumPy scalars"
        raise TypeError(
            f"{'cmem_args' if role == 'constant' else 'arguments'}: holds {value.dtype}, expected {expected}"
        )
    lines += [f'dtype = "{dtype}"', f"shape = {_toml(list(value.shape) or [1])}", f'role = "{role}"']
    if role == "out":
        return lines
    _save(os.path.join(folder, f"{name}.npy"), value)
    return [*lines, f'file = "{name}.npy"']


def _number(value: Any) -> tuple[str, Any]:
    """The type and the value of a number: whole ones by the bytes that the kernel gets, with their sign."""
    import numpy

    if value.dtype.kind in "iub":
        wide = value.dtype.itemsize > 4
        bits = numpy.array(int(value) & (2**64 - 1 if wide else 2**32 - 1), "u8" if wide else "u4")
        return ("i64", bits.view("i8").item()) if wide else ("i32", bits.view("i4").item())
    if value.dtype.name not in ("float64", "float32"):
        raise TypeError(f"arguments: holds a number of {value.dtype}, expected float64, float32 or whole numbers")
    return _DTYPES[value.dtype.name], value.item()


def _save(path: str, value: Any) -> None:
    import numpy

    plain = numpy.ascontiguousarray(value).reshape(value.shape or (1,))
    numpy.save(path, plain.view("int32") if plain.dtype == "uint32" else plain)


def _right(folder: str, i: int, argument: Any, right: Any) -> str:
    """Writes the right answer of an output down; the name of its file."""
    import numpy

    whole = numpy.ascontiguousarray(kernel_tuner_arguments.host([right], "answer")[0], dtype=argument.dtype)
    if whole.size != argument.size:
        sizes = f"has the shape {whole.shape} for argument {i}, expected {argument.shape}"
        raise ValueError(f"answer: {sizes}")
    _save(os.path.join(folder, f"answer{i}.npy"), whole.reshape(argument.shape))
    return f"answer{i}.npy"
