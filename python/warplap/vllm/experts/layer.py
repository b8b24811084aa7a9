"""One layer of experts to race on: weights made once, routings for each number of tokens, and the right answer.

The right answer is plain torch's, expert by expert in float32 (float64 where that is soon done): it has no tile, no
alignment of tokens and no Triton in it.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

from . import fused
from .shapes import Shape
from .space import Config

# Products of the reference below which it is done in float64.
_SMALL = 1 << 24
_FP8 = 448.0


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """While it lasts memory that nobody has written holds NaN: an earlier candidate's right answer is not found in it.
    What is being captured is timed, and is left as it is."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


class Layer:
    """Weights of one rank's experts. They are large: there is one of them for all rows and candidates."""

    def __init__(self, shape: Shape, device: str, seed: int = 0) -> None:
        self.shape, self.device = shape, device
        self.dtype = getattr(torch, shape.dtype)
        self._random = torch.Generator(device=device).manual_seed(seed)
        experts, n, k = shape.experts, shape.shard, shape.hidden
        self.w1, self._s1 = self._weights(experts, 2 * n, k)
        self.w2, self._s2 = self._weights(experts, k, n)
        self._quantised = self._how()
        self._map = None
        if shape.of_all != experts:  # of all experts the first are on this rank
            self._map = torch.full((shape.of_all,), -1, dtype=torch.int32, device=device)
            self._map[:experts] = torch.arange(experts, dtype=torch.int32, device=device)

    def _weights(self, experts: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        size, spread = (experts, rows, columns), columns**-0.5
        shape, device, random = self.shape, self.device, self._random
        if shape.quantised is None:
            return torch.empty(size, dtype=self.dtype, device=device).normal_(0, spread, generator=random), None
        if shape.quantised == "int8_w8a16":
            whole = torch.randint(-127, 128, size, dtype=torch.int8, device=device, generator=random)
            return whole, torch.full((experts, rows), spread / 73, device=device)
        made = torch.empty(size, dtype=torch.float8_e4m3fn, device=device)
        for one in made:  # a whole layer in float32 is not made
            one.copy_(torch.randn((rows, columns), device=device, generator=random).to(made.dtype))
        if shape.block is None:
            return made, torch.full((experts,), spread, device=device)
        n, k = shape.block
        blocks = (experts, -(-rows // n), -(-columns // k))
        return made, spread * (0.5 + torch.rand(blocks, device=device, generator=random))

    def _how(self) -> Any:
        """vLLM's description of how weights are kept."""
        if self.shape.quantised is None:
            return None
        scales = {"w1_scale": self._s1, "w2_scale": self._s2}
        if self.shape.quantised == "int8_w8a16":
            return fused.named("int8_w8a16_moe_quant_config")(**scales, w1_zp=None, w2_zp=None)
        block = list(self.shape.block) if self.shape.block else None
        return fused.named("fp8_w8a8_moe_quant_config")(**scales, block_shape=block)

    def routings(self, tokens: int) -> int:
        """How many routings a run goes through: few tokens meet other experts every time, many always meet all."""
        if self.device == "cpu":
            return 2  # the interpreter takes its time
        return 4 if tokens <= 256 else 2 if tokens <= 2048 else 1

    def arguments(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, and who goes where with what weight, several times; the same for the same number of tokens."""
        random = torch.Generator(device=self.device).manual_seed(tokens)
        x = torch.randn((tokens, self.shape.hidden), device=self.device, generator=random).to(self.dtype)
        count = (self.routings(tokens), tokens, self.shape.of_all)
        scores = torch.rand(count, device=self.device, generator=random)
        chosen, ids = scores.topk(self.shape.top_k, dim=-1)
        return x, torch.softmax(4 * chosen, dim=-1).contiguous(), ids.to(torch.int32).contiguous()

    def run(self, config: Config, x: torch.Tensor, shares: torch.Tensor, ids: torch.Tensor) -> list[torch.Tensor]:
        """vLLM's fused experts under a config, once for each routing."""
        experts, override = fused.named("fused_experts"), fused.named("override_config")
        inputs = {"quant_config": self._quantised}
        if self._map is not None:
            inputs |= {"global_num_experts": self.shape.of_all, "expert_map": self._map}
        done = []
        with poisoned(), override(dict(config)):
            for share, one in zip(shares, ids):
                done.append(experts(x, self.w1, self.w2, share, one, **inputs))
        return done

    def right(self, x: torch.Tensor, shares: torch.Tensor, ids: torch.Tensor) -> list[torch.Tensor]:
        """The right answers. Of what is not a number there is none."""
        if bool(x.isnan().any() | shares.isnan().any()):
            return [torch.full_like(x, torch.nan) for _ in ids]
        work = ids[0].numel() * self.shape.hidden * self.shape.shard
        wide = torch.float64 if work < _SMALL else torch.float32
        sums = [torch.zeros_like(x, dtype=wide) for _ in ids]
        taken = self._as_taken(x).to(wide)
        for expert in torch.unique(ids).tolist():
            if expert >= self.shape.experts:
                continue  # another rank's
            w1, w2 = self._weight(self.w1, self._s1, expert, wide), self._weight(self.w2, self._s2, expert, wide)
            for total, share, one in zip(sums, shares, ids):
                at, slot = (one == expert).nonzero(as_tuple=True)
                if len(at):
                    gate, up = (taken[at] @ w1.T).chunk(2, dim=-1)
                    middle = self._as_taken((torch.nn.functional.silu(gate) * up).to(x.dtype)).to(wide)
                    total.index_add_(0, at, (middle @ w2.T) * share[at, slot, None].to(wide))
        return [total.to(x.dtype) for total in sums]

    def _weight(self, whole: torch.Tensor, scale: torch.Tensor | None, expert: int, wide: torch.dtype) -> torch.Tensor:
        """One expert's weights as numbers."""
        one = whole[expert].to(wide)
        if scale is None:
            return one
        if self.shape.quantised == "int8_w8a16":
            return one * scale[expert, :, None]
        if self.shape.block is None:
            return one * scale[expert]
        n, k = self.shape.block
        spread = scale[expert].repeat_interleave(n, 0)[: one.shape[0]].repeat_interleave(k, 1)[:, : one.shape[1]]
        return one * spread

    def _as_taken(self, x: torch.Tensor) -> torch.Tensor:
        """Activations as the kernel takes them: rounded to 8 bits where it does so. The scale of a whole tensor is
        near enough one for each row: what is rounded differently stays within what 8 bits allow."""
        if self.shape.quantised != "fp8_w8a8":
            return x
        width = self.shape.block[1] if self.shape.block else x.shape[-1]
        parts = x.float().unflatten(-1, (-1, width)) if x.shape[-1] % width == 0 else x.float()[..., None, :]
        scale = parts.abs().amax(-1, keepdim=True).clamp_min(1e-10) / _FP8
        return ((parts / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2)
