"""A driver for Triton that says it has a GPU. What is compiled for it is real; nothing can be launched."""

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class MadeUp:
    def __init__(self, arch):
        self.arch = arch

    def get_current_target(self):
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return self.arch  # kernels of different ones are kept apart

    def get_current_stream(self, device=0):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")


def use(arch=90):
    driver.set_active(MadeUp(arch))
