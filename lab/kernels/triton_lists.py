"""Seconds from the first call of a Triton kernel with 20 configs to its answer: warplap's tuner beside Triton's own.

    python lab/kernels/triton_lists.py [--turns 3]

Each turn is a process of its own with an empty compiler cache and an empty store, warplap and Triton in alternation;
importing and drawing inputs are not counted, compiling, proving and racing are. The winners' times are by Triton's own
`do_bench`."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def product(autotune, Config, triton, tl):
    """C = A·B in half precision with 20 shapes of tiles."""
    tiles = [(m, n, k) for m in (64, 128) for n in (64, 128, 256) for k in (32, 64)]
    configs = [Config(dict(BM=m, BN=n, BK=k), num_stages=s, num_warps=w) for m, n, k in tiles for s, w in ((3, 4), (4, 8))]
    configs = [c for c in configs if (c.kwargs["BK"], c.num_stages) != (64, 4) or c.kwargs["BN"] < 256][:20]

    @autotune(configs=configs, key=["M", "N", "K"])
    @triton.jit
    def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        across = tl.cdiv(N, BN)
        rows = tl.program_id(0) // across * BM + tl.arange(0, BM)
        columns = tl.program_id(0) % across * BN + tl.arange(0, BN)
        steps = tl.arange(0, BK)
        left, right = a + rows[:, None] * K + steps[None, :], b + steps[:, None] * N + columns[None, :]
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(0, tl.cdiv(K, BK)):
            sums = tl.dot(tl.load(left), tl.load(right), sums)
            left += BK
            right += BK * N
        tl.store(c + rows[:, None] * N + columns[None, :], sums.to(tl.float16))

    return product


def rows(autotune, Config, triton, tl):
    """A softmax over rows with 20 settings."""
    configs = [Config(dict(AT_ONCE=n), num_warps=w, num_stages=s) for n in (1, 2, 4, 8, 16) for w in (4, 8) for s in (1, 2)]

    @autotune(configs=configs, key=["N"])
    @triton.jit
    def rows(x, y, M, N, WIDE: tl.constexpr, AT_ONCE: tl.constexpr):
        at = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
        along = tl.arange(0, WIDE)
        there = (at[:, None] < M) & (along[None, :] < N)
        places = at[:, None] * N + along[None, :]
        v = tl.load(x + places, mask=there, other=-float("inf")).to(tl.float32)
        v = tl.exp(v - tl.max(v, 1)[:, None])
        tl.store(y + places, (v / tl.sum(v, 1)[:, None]).to(tl.float16), mask=there)

    return rows


def turn(who, what):
    """One first call, in this process."""
    import torch
    import triton
    import triton.language as tl

    if who == "warplap":
        import warplap
        from warplap.triton import autotune

        warplap.configure(store=tempfile.mkdtemp(dir=os.path.expanduser("~")))
    else:
        autotune = triton.autotune
    half = dict(device="cuda", dtype=torch.float16)
    if what == "product":
        kernel = product(autotune, triton.Config, triton, tl)
        a, b, c = (torch.randn(4096, 4096, **half) for _ in range(3))
        grid = lambda meta: (triton.cdiv(4096, meta["BM"]) * triton.cdiv(4096, meta["BN"]),)
        call = lambda: kernel[grid](a, b, c, 4096, 4096, 4096)
        right, out = lambda: a @ b, c
    else:
        kernel = rows(autotune, triton.Config, triton, tl)
        x, y = (torch.randn(8192, 4000, **half) for _ in range(2))
        grid = lambda meta: (triton.cdiv(8192, meta["AT_ONCE"]),)
        call = lambda: kernel[grid](x, y, 8192, 4000, WIDE=4096)
        right, out = lambda: torch.softmax(x, 1), y
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    error = ((out.float() - right().float()).norm() / out.float().norm()).item()
    assert error < 1e-2, error
    print(json.dumps([seconds, triton.testing.do_bench(call) * 1e3, str(kernel.best_config)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        return turn(*args.turn)
    print("| kernel | warplap, s | Triton, s | warplap / Triton | winners, µs |\n|---|---|---|---|---|")
    for what in ("product", "rows"):
        runs = {"warplap": [], "triton": []}
        for _ in range(args.turns):
            for who, reports in runs.items():
                with tempfile.TemporaryDirectory() as cache:
                    env = dict(os.environ, TRITON_CACHE_DIR=cache)
                    done = subprocess.run([sys.executable, __file__, "--turn", who, what], env=env, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
                reports.append(json.loads(done.stdout.splitlines()[-1]))
        own, other = (statistics.median(t[0] for t in runs[who]) for who in runs)
        winners = [f"{statistics.median(t[1] for t in runs[who]):.1f}" for who in runs]
        print(f"| {what}, 20 configs | {own:.2f} | {other:.2f} | **{own / other:.2f}** | {' beside '.join(winners)} |")
        print("  ", {who: [t[2] for t in reports] for who, reports in runs.items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
