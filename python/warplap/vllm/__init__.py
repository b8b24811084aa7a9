"""warplap inside vLLM: the entry point that vLLM calls in each of its processes (group ``vllm.general_plugins``).

What it brings, each in a file of its own: tables of fused experts (``tables``), linears (``linears``), the kernels that
vLLM tunes by Triton (``takeover``), norms (``ir``), attention (``attention``). ``warplap vllm`` is the program for what
is done ahead (``program``). Nothing here loads vLLM but where vLLM is there and asks.
"""

from __future__ import annotations

from .experts.tables import folder
from .plugin import register

__all__ = ["folder", "register"]
