"""Kernel Tuner's calling form with the import changed: a kernel in CUDA, or in C where there is no GPU."""

import numpy

from warplap import run_kernel, tune_kernel

CUDA = """
__global__ void vector_add(float *c, float *a, float *b, int n) {
    int i = blockIdx.x * block_size_x * tile + threadIdx.x;
    for (int j = 0; j < tile; j++, i += block_size_x)
        if (i < n) c[i] = a[i] + b[i];
}
"""
C = """
void vector_add(float *c, const float *a, const float *b, int n) {
    for (int i = 0; i < n; i += block_size_x * tile)
        for (int j = i; j < i + block_size_x * tile && j < n; j++) c[j] = a[j] + b[j];
}
"""

size = 1_000_000
a, b = (numpy.random.randn(size).astype(numpy.float32) for _ in range(2))
args = [numpy.zeros_like(a), a, b, numpy.int32(size)]
setting = {"block_size_x": 128, "tile": 1}
try:
    kernel, grid = CUDA, {"grid_div_x": ["block_size_x", "tile"]}
    c = run_kernel("vector_add", kernel, size, args, setting, **grid)[0]
except NotImplementedError as why:  # there is no GPU
    print(why)
    kernel, grid = C, {}
    c = run_kernel("vector_add", kernel, size, args, setting)[0]
assert numpy.allclose(c, a + b)

tune_params = {"block_size_x": [32, 64, 128, 256], "tile": [1, 2, 4]}
results, env = tune_kernel(
    "vector_add", kernel, size, args, tune_params, restrictions=lambda p: p["block_size_x"] * p["tile"] >= 64,
    metrics={"GB/s": lambda p: 12e-6 * size / p["time"]}, budget=2.0, **grid,
)  # fmt: skip
print(f"{env['best']}: {results[0]['time']:.4f} ms, {results[0]['GB/s']:.0f} GB/s")
