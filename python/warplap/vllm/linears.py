"""Quantisation names for vLLM: ``warplap`` runs the linears of a 16-bit model by what was measured here,
``warplap_bsr`` those of a checkpoint with zero blocks as block-sparse ones, where that is faster.

Neither changes what a model computes but by rounding. A layer of which nothing is known is vLLM's own. What is left to
vLLM anyway: embeddings and heads, routers of experts, what MLA takes apart (``kv_b_proj``), layers that every rank of a
tensor-parallel group computes for itself (they must agree to the last bit), and everything where the user asks for
results that do not depend on the batch (``VLLM_BATCH_INVARIANT``).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor, nn
from vllm import envs
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.distributed import get_tensor_model_parallel_world_size, get_tp_group
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import (
    LinearBase,
    ReplicatedLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.utils import is_layer_moe_router_gate

try:
    from vllm.model_executor.model_loader.reload.layerwise import initialize_online_processing as layerwise
except ImportError:  # a version that has it elsewhere, or not at all
    layerwise = None

from ..ops import functions  # noqa: F401  registers the operators
from . import blocks, known, modes, served

_log = init_logger("vllm.plugins.warplap")

# Suffixes of layers that are taken apart by others.
_TAKEN_APART = ("kv_b_proj",)


class Dense(QuantizationConfig):  # type: ignore[misc]
    """``--quantization warplap``: a plain checkpoint, its linears by the choices of the store."""

    def __init__(self, ignore: list[str] | None = None) -> None:
        super().__init__()
        self.ignore = list(ignore or [])
        # What became of each layer: it decides what a compiled graph looks like.
        self.decisions: dict[str, str] = {}

    def get_name(self) -> str:
        return "warplap"

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 70  # where we have no kernels torch's win

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Dense:
        return cls(ignore=cls.get_from_keys_or(config, ["ignore"], None))

    def get_quant_method(self, layer: nn.Module, prefix: str) -> QuantizeMethodBase | None:
        if not isinstance(layer, LinearBase):
            return None
        last = prefix.rsplit(".", 1)[-1]
        aside = last in _TAKEN_APART or is_layer_moe_router_gate(prefix) or envs.VLLM_BATCH_INVARIANT
        if aside or any(prefix == name or prefix.endswith(f".{name}") for name in self.ignore):
            return UnquantizedLinearMethod()
        return self._method()

    def _method(self) -> QuantizeMethodBase:
        return Method(self)

    def tell(self, config: VllmConfig, prefix: str, what: str) -> None:
        """Makes what became of a layer part of what vLLM keeps compiled graphs by."""
        self.decisions[prefix] = what
        if isinstance(config.additional_config, dict):
            text = json.dumps([self.get_name(), sorted(self.decisions.items())])
            config.additional_config["warplap"] = hashlib.sha256(text.encode()).hexdigest()[:16]


class Sparse(Dense):
    """``warplap_bsr``: a dense checkpoint with zero blocks. ``block`` is found out where it is not given."""

    def __init__(self, block: int | None = None, ignore: list[str] | None = None) -> None:
        super().__init__(ignore)
        if block is not None and block not in blocks.BLOCKS:
            raise ValueError(f"quantization_config: block is {block}, expected one of {sorted(blocks.BLOCKS)}")
        self.block = block

    def get_name(self) -> str:
        return "warplap_bsr"

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Sparse:
        inputs = {name: cls.get_from_keys_or(config, [name], None) for name in ("block", "ignore")}
        return cls(**inputs)

    def _method(self) -> QuantizeMethodBase:
        return SparseMethod(self)


@register_weight_loader_v2_supported_method
class Method(UnquantizedLinearMethod):  # type: ignore[misc]
    """A dense linear: vLLM's own weights and loading, our choice of who multiplies."""

    def __init__(self, config: Dense) -> None:
        modes.begin()
        modes.weights_are_cold()
        self.config, self.vllm = config, get_current_vllm_config()

    def process_weights_after_loading(self, layer: Any) -> None:
        # A layer that is done as it is loaded is called on once more, and again when its weights are loaded anew: vLLM
        # takes this mark away then.
        if getattr(layer, "_already_called_process_weights_after_loading", False):
            return
        layer._already_called_process_weights_after_loading = True
        layer.warplap_serves = layer.warplap_sparse = False
        if _is_for_everybody(layer) or layer.weight.is_meta or layer.weight.ndim != 2:
            return super().process_weights_after_loading(layer)
        with _one_tunes(modes.may_race()) as race:  # once a layer, whatever becomes of it on which rank
            taken = self._take(layer, race)
        if not taken:
            super().process_weights_after_loading(layer)

    def _take(self, layer: Any, race: bool) -> bool:
        """Decides who runs a layer, and makes it ready; whether it is us."""
        won: set[int] = set()
        for bias in _biases(layer):
            won |= served.decide(layer.weight, bias, _sizes(self.vllm), race)
        self.config.tell(self.vllm, layer.prefix, f"dense {sorted(won)}")
        if not won:
            return False
        layer.warplap_serves = True
        for bias in _biases(layer):
            served.prime(layer.weight, bias, _captured(self.vllm))
        _log.info_once(
            "linears of %dx%d: by warplap's choice at up to %s tokens",
            *layer.weight.shape, ", ".join(map(str, sorted(won))),
        )  # fmt: skip
        return True

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if not layer.warplap_serves:
            return super().apply(layer, x, bias)
        y = torch.ops.warplap.served_linear(x.reshape(-1, x.shape[-1]), layer.weight, bias)
        return y.reshape(*x.shape[:-1], y.shape[-1])


@register_weight_loader_v2_supported_method
class SparseMethod(Method):
    """A linear whose zero blocks are not stored, where that is faster; a dense one otherwise. Where vLLM can, each
    layer is done as soon as it is loaded, and the dense model is never whole in memory."""

    config: Sparse
    uses_meta_device = layerwise is not None

    def create_weights(self, layer: Any, *sizes: Any, **extra: Any) -> None:
        if layerwise is None:
            return super().create_weights(layer, *sizes, **extra)
        with torch.device("meta"):
            super().create_weights(layer, *sizes, **extra)
        layerwise(layer)

    def _take(self, layer: Any, race: bool) -> bool:
        w, sizes = layer.weight, _sizes(self.vllm)
        of = self._blocks(layer)
        if of is None:
            return super()._take(layer, race)
        bias = _biases(layer)[0]
        decode = [size for size in sizes if size <= known.DECODE]
        faster, why = blocks.is_faster(of, bias, [served.text(w, bias, size) for size in decode], decode, race)
        _log.info_once("linears of %dx%d: %s: %s", *w.shape, "block-sparse" if faster else "dense", why)
        if not faster:
            del of
            return super()._take(layer, race)
        n, k = of.shape
        self.config.tell(self.vllm, layer.prefix, f"sparse {n} {k} {of.block} {of.values.shape[0]}")
        layer.warplap_sparse, layer.warplap_rows = True, n
        for name, part in (("crow", of.crow), ("col", of.col), ("values", of.values)):
            layer.register_parameter(name, nn.Parameter(part, requires_grad=False))
        # Whoever asks the layer where it is and of what type asks its weight.
        layer.weight = nn.Parameter(w.new_empty(0), requires_grad=False)
        for tokens in sorted({*sizes, *_captured(self.vllm)}):
            self.apply(layer, of.values.new_zeros((tokens, k)), bias)
        return True

    def _blocks(self, layer: Any) -> blocks.Parts | None:
        """The blocks of a weight, where it has some and nobody else looks at it."""
        w = layer.weight
        # Classes that a model derives from vLLM's may read the weight themselves.
        if type(layer).__module__ != LinearBase.__module__:
            return None
        block = self.config.block or blocks.size(w)
        if block is None or w.shape[0] % block or w.shape[1] % block:
            return None
        of = blocks.parts(w, block)
        return of if of.density <= blocks.MOST else None

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if not layer.warplap_sparse:
            return super().apply(layer, x, bias)
        flat = x.reshape(-1, x.shape[-1])
        y = torch.ops.warplap.bsr_linear(layer.crow, layer.col, layer.values, bias, layer.warplap_rows, flat, False)
        return y.reshape(*x.shape[:-1], y.shape[-1])


def _sizes(config: VllmConfig) -> list[int]:
    return known.sizes(config.scheduler_config.max_num_batched_tokens)


def _captured(config: VllmConfig) -> list[int]:
    """Numbers of tokens that graphs are captured at: nothing may be met for the first time then."""
    return list(config.compilation_config.cudagraph_capture_sizes or [])


def _biases(layer: Any) -> list[Tensor | None]:
    """With which biases a layer is called: with its own, unless the caller adds it; where ranks add up what they have,
    one adds it for all."""
    bias = None if getattr(layer, "skip_bias_add", False) else getattr(layer, "bias", None)
    if bias is None:
        return [None]
    return [bias, None] if isinstance(layer, RowParallelLinear) and layer.tp_size > 1 else [bias]


def _is_for_everybody(layer: Any) -> bool:
    """Whether every rank of a group computes this layer for itself."""
    alone = isinstance(layer, ReplicatedLinear) or getattr(layer, "disable_tp", False)
    return alone and get_tensor_model_parallel_world_size() > 1


class _one_tunes:
    """The first rank of a group races, the others wait and find what it has kept."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.group = get_tp_group() if wanted and get_tensor_model_parallel_world_size() > 1 else None

    def __enter__(self) -> bool:
        if self.group is not None and self.group.rank_in_group != 0:
            self.group.barrier()
            return False
        return self.wanted

    def __exit__(self, *_: Any) -> None:
        if self.group is not None and self.group.rank_in_group == 0:
            self.group.barrier()


def register() -> None:
    """Makes the names known to vLLM; once a process."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    for name, config in (("warplap", Dense), ("warplap_bsr", Sparse)):
        if name not in QUANTIZATION_METHODS:
            register_quantization_config(name)(config)
