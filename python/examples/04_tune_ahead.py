"""Tune ahead, ship the bundle, serve without measuring."""

import tempfile

import torch

import warplap

with tempfile.TemporaryDirectory() as folder:
    for tuned in warplap.tune(["gemm:m=64,n=64,k=64,dtype=f32", "gemm:m=1,n=512,k=512,dtype=bf16"], budget=2.0):
        print(tuned)
    print(warplap.store.export(f"{folder}/bundle.jsonl"), "records")

    warplap.configure(store=f"{folder}/production")
    warplap.store.import_(f"{folder}/bundle.jsonl")
    with warplap.replay():
        warplap.matmul(torch.randn(64, 64), torch.randn(64, 64))
    print([row["winner"] for row in warplap.store.ls()])
    warplap.configure(in_memory=True)
