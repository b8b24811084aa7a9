"""The first prompt of a Mamba2 layer in a fresh process: Triton's own tuning beside a signed bundle of winners.

    python lab/vllm/mamba.py [--turns 3]

Needs a GPU, vLLM and the package. A start is a process of its own with an empty folder of compiled kernels; what counts
is from the first call of vLLM's chunked scan to the end of the last of three prompts (one sequence, several, and one
that goes on from a state), importing not counted. Three kinds: Triton tunes; the kernels are taken over and replay a
bundle that another store signed; everything is compiled and known already, which is the least that a start can take.
Before that one process races and proves, and says which configs it found wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# A layer of Mamba2 in the sizes of the 2.7B and of Codestral's 7B.
HEADS, DIM, STATE, GROUPS, CHUNK = 128, 64, 128, 8, 256
PROMPTS = ((2048,), (300, 700, 24, 1024), (512,))


def child() -> None:
    import torch
    import warplap.vllm

    warplap.vllm.register()
    from vllm.model_executor.layers.mamba.ops import ssd_bmm, ssd_chunk_scan, ssd_chunk_state, ssd_state_passing
    from vllm.model_executor.layers.mamba.ops.ssd_combined import mamba_chunk_scan_combined_varlen

    torch.manual_seed(0)
    calls = [_prompt(torch, lengths, at == 2) for at, lengths in enumerate(PROMPTS)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    outs = []
    for args, named in calls:
        out = torch.full_like(args[0], float("nan"))
        mamba_chunk_scan_combined_varlen(*args, out=out, **named)
        outs.append(out)
    torch.cuda.synchronize()
    report = {"seconds": time.perf_counter() - began, "wrong": {}}
    report["finite"] = all(bool(o.isfinite().all()) for o in outs)
    report["sum"] = [float(o.double().abs().mean()) for o in outs]
    for module in (ssd_bmm, ssd_chunk_scan, ssd_chunk_state, ssd_state_passing):
        for name, kernel in vars(module).items():
            last = getattr(kernel, "last", None)
            if isinstance(last, dict) and last.get("edition"):
                trials = last["edition"]["trials"]
                bad = [t["config"] for t in trials if (t.get("rejected") or {}).get("why") == "wrong_answer"]
                report["wrong"][name] = [len(trials), bad, last.get("how")]
    print("\n" + json.dumps(report))


def _prompt(torch, lengths, goes_on):
    """What vLLM's mixer hands on for sequences of these lengths: each is cut into chunks by itself."""
    total, device = sum(lengths), "cuda"
    x = torch.randn(total, HEADS, DIM, device=device, dtype=torch.bfloat16)
    dt = torch.randn(total, HEADS, device=device, dtype=torch.bfloat16)
    a = -torch.rand(HEADS, device=device) - 0.1
    b, c = (torch.randn(total, GROUPS, STATE, device=device, dtype=torch.bfloat16) for _ in range(2))
    ends, chunks, last, whose = [0], [0], [], []
    for at, length in enumerate(lengths):
        for start in range(0, length, CHUNK):
            chunks.append(ends[-1] + min(start + CHUNK, length))
            whose.append(at)
        last.append(len(whose) - 1)
        ends.append(ends[-1] + length)
    whole = lambda values: torch.tensor(values, dtype=torch.int32, device=device)
    named = dict(
        chunk_size=CHUNK, cu_seqlens=whole(ends), cu_chunk_seqlens=whole(chunks), last_chunk_indices=whole(last),
        seq_idx=whole(whose), D=torch.ones(HEADS, device=device), dt_bias=torch.rand(HEADS, device=device),
        dt_softplus=True,
    )  # fmt: skip
    if goes_on:
        named["initial_states"] = torch.randn(len(lengths), HEADS, DIM, STATE, device=device, dtype=torch.bfloat16)
    return (x, dt, a, b, c), named


def start(cache: str, **env: str) -> dict:
    whole = {k: v for k, v in os.environ.items() if not k.startswith("WARPLAP_")}
    whole |= {"TRITON_CACHE_DIR": cache, "VLLM_LOGGING_LEVEL": "WARNING", **env}
    done = subprocess.run([sys.executable, __file__, "--child"], env=whole, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        return child()
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder:
        store = f"{folder}/store"
        ours = {"WARPLAP_VLLM_TRITON": "1"}
        raced = start(f"{folder}/raced", **ours, WARPLAP_VLLM_MODE="tune", WARPLAP_STORE=store)
        print(f"raced and proved in {raced['seconds']:.1f} s, finite {raced['finite']}", flush=True)
        for name, (count, bad, how) in raced["wrong"].items():
            print(f"  {name}: {how}, {count} configs, wrong: {json.dumps(bad)}")
        warplap = [sys.executable, "-m", "warplap", "--store", store, "store"]
        key = subprocess.run([*warplap, "keygen", f"{folder}/sign.key"], capture_output=True, text=True, check=True)
        public = next(w for w in key.stdout.split() if w.startswith("warplap-key-ed25519:"))
        subprocess.run([*warplap, "export", f"{folder}/all.bundle", "--sign", f"{folder}/sign.key"], check=True,
                       capture_output=True)  # fmt: skip
        bundle = f"bundle:{folder}/all.bundle?key={public}&trust=signed"
        seconds: dict[str, list[float]] = {"Triton tunes": [], "a signed bundle": [], "all is known": []}
        for turn in range(options.turns):
            for name in seconds:
                cache = f"{folder}/{turn}{name}"
                if name == "all is known":
                    cache = f"{folder}/{turn}a signed bundle"
                with_us = {**ours, "WARPLAP_STORE": bundle} if name != "Triton tunes" else {}
                one = start(cache, **with_us)
                seconds[name].append(one["seconds"])
                if not one["finite"]:
                    print(f"  {name}: the answer holds values that are not finite", flush=True)
            shutil.rmtree(f"{folder}/{turn}Triton tunes")
        print("| start | s, median (all) | Triton's tuning takes so many times as long |")
        print("|---|---|---|")
        usual = statistics.median(seconds["Triton tunes"])
        for name, every in seconds.items():
            middle = statistics.median(every)
            print(f"| {name} | {middle:.2f} ({', '.join(f'{s:.2f}' for s in every)}) | {usual / middle:.1f}× |")


if __name__ == "__main__":
    main()
