"""warplap inside vLLM: the entry point that vLLM calls in each of its processes (group ``vllm.general_plugins``).

What it brings, each in a file of its own: tables of fused experts (``tables``). ``warplap vllm`` is the program for it
(``program``). Nothing here is loaded without vLLM, but for the entry point itself.
"""

from __future__ import annotations

from .plugin import register
from .tables import folder

__all__ = ["folder", "register"]
