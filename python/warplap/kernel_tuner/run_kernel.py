"""``run_kernel``: one run of a kernel in C or CUDA with one setting, in Kernel Tuner's calling form and in a process of
its own."""

from __future__ import annotations

import mmap
import types
from typing import Any, Mapping, Sequence

from ..callables import isolate
from . import arguments as kernel_tuner_arguments, cuda_kernel, run_once
from .c_compiler import Workshop, argument, compiler_here
from .launch import Launch


def run_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    params: Mapping[str, Any],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    *,
    lang: str | None = None,
    device: int = 0,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    compiler: str | None = None,
    compiler_options: Sequence[str] | None = None,
    block_size_names: Sequence[str] | None = None,
    **others: Any,
) -> list[Any]:
    """Runs a kernel in C or CUDA once, with Kernel Tuner's calling form; gives its arguments as they are afterwards.

    ``params`` is one setting; everything else is as for :func:`tune_kernel`. Arrays are given back as copies, those of
    the caller stay as they are. The kernel runs in a process of its own: one that does not compile, crashes or does not
    end within a minute is a ``RuntimeError`` that says so, and the caller's process and CUDA context live on.
    """
    kernel_tuner_arguments.refuse(others)
    source = kernel_tuner_arguments.source(kernel_source)
    language, inputs = kernel_tuner_arguments.language(lang, source), kernel_tuner_arguments.host(arguments)
    try:
        if language == "CUDA":
            launch = Launch(problem_size, [grid_div_x, grid_div_y, grid_div_z], block_size_names, smem_args, params)
            axes = {name: [value] for name, value in params.items()}
            options = compiler_options or ()
            kernel = cuda_kernel.Kernel(kernel_name, source, options, axes, launch, cmem_args, device)
            return kernel.run(params, inputs)
        kernel_tuner_arguments.only_cuda(cmem_args=cmem_args, smem_args=smem_args)
        workshop = Workshop(kernel_name, source, compiler or compiler_here(), compiler_options or ())
        return _in_c(workshop, inputs, dict(params))
    except (run_once.Failed, SyntaxError) as why:
        raise RuntimeError(f"{kernel_name}: {why}") from why


def _in_c(workshop: Workshop, arguments: list[Any], params: dict[str, Any]) -> list[Any]:
    """Runs a kernel in C on memory that this process shares with the one it runs in."""
    import numpy

    function = workshop.build(params)  # what does not compile is found out here
    after = []
    for value in arguments:
        if isinstance(value, numpy.ndarray):
            shared = numpy.frombuffer(mmap.mmap(-1, max(value.nbytes, 1)), numpy.uint8)[: value.nbytes]
            shared = shared.view(value.dtype).reshape(value.shape)
            shared[...] = value
            value = shared
        after.append(value)
    run = lambda *args: function(*map(argument, args))
    rig: Any = types.SimpleNamespace(device=None, args=tuple(after), kwargs={})
    if isolate.can_fork(rig, native=True):
        refused = isolate.first_run(rig, run, run_once.PATIENCE)
        if refused is not None:
            raise run_once.Failed(refused[0], f"{refused[0].replace('_', ' ')}: {refused[1]}")
    else:
        run(*after)
    return [numpy.array(value) if isinstance(value, numpy.ndarray) else value for value in after]
