"""Tuning a model's linears ahead: vLLM loads the model as it would to serve it, and each layer's problems are raced
before it serves anybody. Shapes, shards and biases are those of vLLM's own layers, whatever the architecture."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import store


def tune(model: str, *, quantization: str = "warplap", tp: int = 1, **asked: Any) -> list[dict[str, Any]]:
    """Races the linears of a model and gives the records that were written.

    ``asked`` goes to vLLM's engine (``dtype``, ``max_num_batched_tokens``, ``load_format="dummy"`` for a model whose
    weights need not be read: not for block-sparse ones, whose weights decide).
    """
    from vllm import LLM  # type: ignore[import-not-found]

    began = int(time.time())
    before = os.environ.get("WARPLAP_VLLM_MODE")
    os.environ["WARPLAP_VLLM_MODE"] = "tune"
    try:
        LLM(
            model=model, quantization=quantization, tensor_parallel_size=tp,
            **{"enforce_eager": True, "skip_tokenizer_init": True, **asked},
        )  # fmt: skip
    finally:
        if before is None:
            del os.environ["WARPLAP_VLLM_MODE"]
        else:
            os.environ["WARPLAP_VLLM_MODE"] = before
    return [row for op in ("gemm", "bsr") for row in store.ls(op) if row["modified"] >= began]
