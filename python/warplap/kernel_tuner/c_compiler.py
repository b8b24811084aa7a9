"""The workshop of kernels in C: a source and a setting come in; a function of a library compiled with it goes out."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from typing import Any, Callable, Sequence

from . import arguments

_SCALARS = {
    "float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64, "int16": ctypes.c_int16, "uint16": ctypes.c_uint16,
    "int8": ctypes.c_int8, "uint8": ctypes.c_uint8, "bool": ctypes.c_bool,
}  # fmt: skip


def compiler_here() -> str:
    """The C compiler of this machine."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("compiler: there is no C compiler here; install one or name it")
    return compiler


class Workshop:
    """Compiles settings of one source, a text or a callable that makes it; the libraries live as long as it does."""

    def __init__(self, name: str, source: Any, compiler: str, options: Sequence[str]) -> None:
        self._name, self._source, self._compiler, self._options = name, source, compiler, list(options)
        self._folder = tempfile.TemporaryDirectory(prefix="warplap-")
        self._built: dict[str, Callable[..., Any]] = {}

    def build(self, macros: dict[str, Any]) -> Callable[..., Any]:
        """The function compiled with these macros."""
        defines = arguments.defines(macros)
        mark = hashlib.blake2s(" ".join(defines).encode()).hexdigest()[:16]
        if mark not in self._built:
            code, library = (os.path.join(self._folder.name, f"{mark}.{end}") for end in ("c", "so"))
            with open(code, "w") as file:
                file.write(self._source(dict(macros)) if callable(self._source) else self._source)
            order = [self._compiler, "-shared", "-fPIC", "-O3", *self._options, *defines, code, "-o", library, "-lm"]
            done = subprocess.run(order, capture_output=True, text=True)
            if done.returncode != 0:
                said = done.stderr.strip().splitlines()
                first = next((line for line in said if "error" in line), said[0] if said else "no reason was given")
                raise SyntaxError(first)
            try:
                function = getattr(ctypes.CDLL(library), self._name)
            except AttributeError:
                raise SyntaxError(f"the source has no function {self._name}") from None
            function.restype = None
            self._built[mark] = function
        return self._built[mark]


def argument(value: Any) -> Any:
    """An argument as ctypes takes it."""
    if hasattr(value, "ctypes"):
        return value.ctypes.data_as(ctypes.c_void_p)
    kind = _SCALARS.get(str(getattr(value, "dtype", "")))
    if kind is None:
        raise TypeError(f"arguments: holds a {type(value).__name__}, expected NumPy arrays and NumPy scalars")
    return kind(value.item())
