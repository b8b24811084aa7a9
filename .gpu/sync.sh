#!/bin/sh
# copies the harness and the kernels to where the device tool takes them from
mkdir -p /work/main/.gpu/src && cp /work/h-cuda/.gpu/*.py /work/main/.gpu/ && cp /work/h-cuda/crates/warplap-ops/src/gemm/cuda/*.cu /work/h-cuda/crates/warplap-cuda/cuh/*.cuh /work/main/.gpu/src/
