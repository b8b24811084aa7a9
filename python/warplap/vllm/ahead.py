"""Tuning a model's linears ahead: vLLM loads the model as it would to serve it, and each layer's problems are raced
before it serves anybody. Shapes, shards and biases are those of vLLM's own layers, whatever the architecture."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import _warplap, store


def tune(
    model: str, *, sparse: bool = False, tp: int = 1, budget: float | None = None, **asked: Any
) -> list[dict[str, Any]]:
    """Races the linears of a model and gives the records that were written.

    ``budget`` is in seconds for each race. ``asked`` goes to vLLM's engine: ``dtype``, ``max_num_batched_tokens``,
    ``load_format="dummy"`` for a model whose weights need not be read (block-sparse ones do: their weights decide).
    """
    place, why = _warplap.store_place()
    if place == "memory" or why is not None:
        raise RuntimeError(f"store: {why or 'is in memory'}: expected one that lasts, or what is found is lost")
    from vllm import LLM  # type: ignore[import-not-found]

    began = int(time.time())
    report = {"WARPLAP_VLLM_MODE": "tune", **({} if budget is None else {"WARPLAP_VLLM_BUDGET": str(budget)})}
    before = {name: os.environ.get(name) for name in report}
    os.environ.update(report)  # for the engine's own processes too
    try:
        LLM(
            model=model, quantization="warplap_bsr" if sparse else "warplap", tensor_parallel_size=tp,
            **{"enforce_eager": True, "skip_tokenizer_init": True, **asked},
        )  # fmt: skip
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return [row for op in ("gemm", "bsr") for row in store.ls(op) if row["modified"] >= began]
