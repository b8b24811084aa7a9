"""Kernels in C and CUDA in Kernel Tuner's calling form."""
