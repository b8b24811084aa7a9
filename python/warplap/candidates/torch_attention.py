"""torch's attention as candidates: its own choice, and on CUDA devices its backends one by one."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..operator.candidate import Candidate
from ..operator.problem_text import fields, of_attention

Way = Callable[..., Tensor]
Fit = Callable[[str], "str | None"]


def default(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> Tensor:
    """What torch chooses by itself."""
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=gqa)


# Switching a backend on and the others off through torch's context manager takes longer than a small attention.
_SWITCHES: list[tuple[Any, Any, SDPBackend]] = [
    (getattr(torch._C, f"_get_{name}_sdp_enabled", None), getattr(torch._C, f"_set_sdp_use_{name}", None), backend)
    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION),
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ("mem_efficient", SDPBackend.EFFICIENT_ATTENTION),
        ("math", SDPBackend.MATH),
    )
]


def _by(backend: SDPBackend) -> Way:
    def usual(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **facts: Any) -> Tensor:
        with sdpa_kernel(backend):
            return default(q, k, v, mask, **facts)

    if any(get is None or put is None for get, put, _ in _SWITCHES):
        return usual
    switches = [(get, put, own == backend) for get, put, own in _SWITCHES]

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **facts: Any) -> Tensor:
        before = [get() for get, _, _ in switches]
        try:
            for (_, put, wanted), now in zip(switches, before):
                if now != wanted:
                    put(wanted)
            return default(q, k, v, mask, **facts)
        finally:
            for (_, put, wanted), now in zip(switches, before):
                if now != wanted:
                    put(now)

    return run


@functools.lru_cache(maxsize=4096)
def _own(problem: str) -> int | None:
    """The backend that torch would choose by itself; nothing where it does not say."""
    inputs = fields(problem)
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[inputs["dtype"]]
    b, h, sq, sk, d = (int(inputs[name]) for name in ("b", "h", "sq", "sk", "d"))
    hkv, dv, facts = int(inputs.get("hkv", h)), int(inputs.get("dv", d)), of_attention(problem)

    def tensor(heads: int, positions: int, size: int) -> Tensor:
        if inputs.get("layout") == "bshd":
            return torch.empty(b, positions, heads, size, dtype=dtype, device="cuda").transpose(1, 2)
        return torch.empty(b, heads, positions, size, dtype=dtype, device="cuda")

    try:
        q, k, v = tensor(h, sq, d), tensor(hkv, sk, d), tensor(hkv, sk, dv)
        over = {"heads": (1, h), "batches": (b, 1), "each": (b, h)}.get(inputs.get("over", "all"), ())
        mask = torch.empty(*over, sq, sk, dtype=dtype, device="cuda") if "mask" in inputs else None
        scale, gqa = facts["scale"], facts["gqa"]
        return torch._fused_sdp_choice(q, k, v, mask, 0.0, facts["causal"], scale=scale, enable_gqa=gqa)
    except Exception:  # a torch that no longer says, or a device that is full
        return None


def _flash_fits(problem: str) -> str | None:
    inputs = fields(problem)
    if inputs["dtype"] == "f32":
        return "half types only"
    if "mask" in inputs:
        return "it takes no mask"
    if "dv" in inputs:
        return "heads of keys and values must be of one size"
    if inputs["causal"] == "true" and inputs["sq"] != inputs["sk"]:
        return "causal with as many queries as keys only"
    return None if torch.backends.cuda.is_flash_attention_available() else "this torch has none"


def _cudnn_fits(problem: str) -> str | None:
    if fields(problem)["dtype"] == "f32":
        return "half types only"
    return None if torch.backends.cudnn.is_available() else "this torch has no cuDNN"


def _cudnn_once(problem: str) -> str | None:
    """The native variant ``cudnn`` calls the library that torch has open, with less work on the host: both would double
    the race for nothing. torch's call is for what the native one refuses, and for a library it does not open."""
    inputs = fields(problem)
    refused = "mask" in inputs or float(inputs.get("scale", 1)) <= 0
    result = _cudnn_fits(problem)
    if result or refused or (torch.backends.cudnn.version() or 0) // 10000 != 9:
        return result
    return "the native cudnn calls the same library"


def _efficient_fits(problem: str) -> str | None:
    return "every head of q needs its own of k and v" if "hkv" in fields(problem) else None


def gives_sums(problem: str) -> str | None:
    """Why a function that gives no log-sum-exps stands aside, if so."""
    return "it gives no log-sum-exps" if "lse" in fields(problem) else unknown_fields(problem)


def unknown_fields(problem: str) -> str | None:
    """Why what knows no windows and the like stands aside, if so."""
    variants = {"window", "corner", "softcap", "alibi", "dropout", "lengths", "page", "tq", "tile"}
    known = fields(problem).keys() & variants
    return f"it knows nothing of {min(known)}" if known else None


def _one(name: str, backend: SDPBackend, fits: Fit) -> Candidate:
    def fit(problem: str) -> str | None:
        result = gives_sums(problem) or fits(problem)
        return result or ("it is torch's own choice" if _own(problem) == backend.value else None)

    return Candidate("attention", name, _by(backend), fit, devices=("cuda",), facts=of_attention, returns=True)


ON_CPU = Candidate("attention", "torch_sdpa", default, gives_sums, devices=("cpu",), facts=of_attention, returns=True)

# torch's own choice is the first: where nothing was measured it answers, and its backend is not raced a second time
# under its own name.
BACKENDS = [
    ON_CPU._replace(name="torch_default", devices=("cuda",)),
    _one("torch_flash", SDPBackend.FLASH_ATTENTION, _flash_fits),
    _one("torch_cudnn", SDPBackend.CUDNN_ATTENTION, _cudnn_once),
    _one("torch_efficient", SDPBackend.EFFICIENT_ATTENTION, _efficient_fits),
]
