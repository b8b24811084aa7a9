"""Products of 8-bit tensors beside torch's: f8e4m3 with factors of tensors and of blocks, and signed bytes.

    python lab/gpu/quant.py [--kinds tensor,block,i8,fast] [--rounds 20] [--budget 4] [--only TEXT] [--json FILE]
    python lab/gpu/quant.py --cpu [--rounds 15]                        signed bytes on the CPU

On a GPU calls are captured in graphs and replayed in alternating rounds by the clock of use (lab/gpu/products.py).
torch's own product is cuBLASLt's first choice behind torch's checks; "best own" is the fastest own kernel of warplap's
race, and the library's times are those of the same race. Needs the package warplap and torch. Every lane is proved
right on a poisoned output before it is timed.
"""

import argparse
import json
import math
import platform
import statistics
import sys
import time

import torch
import warplap

SHAPES = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2048, 2048, 2048),
    (1024, 8192, 4096),
    (4096, 14336, 4096),
    (4096, 7168, 2048),
    (256, 28672, 8192),
    (128, 8192, 8192),
    (64, 8192, 8192),
    (16, 8192, 8192),
]
"""m, n, k: squares, and weights of common models for prompts and for batches of tokens."""
CPU = [(64, 1024, 1024), (512, 512, 512), (1024, 1024, 1024), (32, 4096, 4096), (256, 4096, 1024), (1024, 4096, 1024)]
E4M3 = torch.float8_e4m3fn


class Case:
    """One product with its tensors, the call of both sides, and its right answer."""

    def __init__(self, kind, shape, device):
        self.kind, (self.m, self.n, self.k) = kind, shape
        m, n, k = shape
        if kind == "i8":
            self.a = torch.randint(-128, 128, (m, k), dtype=torch.int8, device=device)
            self.b = torch.randint(-128, 128, (n, k), dtype=torch.int8, device=device).t()
            self.out = torch.empty(m, n, dtype=torch.int32, device=device)
            return
        drawn = lambda rows: (torch.rand(rows, k, device=device) * 2 - 1).to(E4M3)
        self.a, self.b = drawn(m), drawn(n).t()
        self.out = torch.empty(m, n, dtype=torch.bfloat16, device=device)
        factors = lambda *shape: 0.2 + 0.2 * torch.rand(shape, device=device)
        if kind == "block":
            blocks, pitch = -(-k // 128), -(-(-(-k // 128)) // 4) * 4
            self.scales = factors(blocks, m).t(), factors(-(-n // 128), pitch)[:, :blocks].t()
        else:
            self.scales = factors(1)[0], factors(1)[0]

    def ours(self):
        if self.kind == "i8":
            return warplap.int_mm(self.a, self.b, out=self.out)
        fast = self.kind == "fast"
        return warplap.scaled_mm(self.a, self.b, *self.scales, use_fast_accum=fast, out=self.out)

    def torchs(self):
        if self.kind == "i8":
            return torch._int_mm(self.a, self.b, out=self.out)
        fast = self.kind == "fast"
        return torch._scaled_mm(self.a, self.b, *self.scales, out_dtype=self.out.dtype, use_fast_accum=fast, out=self.out)

    def problem(self):
        """What warplap calls it."""
        if self.kind == "i8":
            return (warplap.int_mm, self.a, self.b)
        return (warplap.scaled_mm, self.a, self.b, *self.scales, {"use_fast_accum": self.kind == "fast"})

    def prove(self, name, call):
        """Right in the first rows, from a poisoned output."""
        rows = min(self.m, 256)
        self.out.fill_(77)
        call()
        if self.kind == "i8":
            right = self.a[:rows].double() @ self.b.double()
            worst, allowed = (self.out[:rows].double() - right).abs().max().item(), 0.0
        else:
            wide = self.a[:rows].double(), self.b.double()
            if self.kind == "block":
                spread = self.scales[1].repeat_interleave(128, 0).repeat_interleave(128, 1)[: self.k, : self.n]
                scaled = wide[0] * self.scales[0][:rows].repeat_interleave(128, 1)[:, : self.k], wide[1] * spread
            else:
                scaled = wide[0] * self.scales[0], wide[1] * self.scales[1]
            right = scaled[0] @ scaled[1]
            worst, allowed = (self.out[:rows].double() - right).abs().max().item(), 0.02 * right.abs().max().item()
        if not worst <= allowed:
            raise SystemExit(f"{self.kind} {self.m}x{self.n}x{self.k}: {name} is off by {worst}, allowed {allowed}")

    def flops(self):
        return 2.0 * self.m * self.n * self.k


def trials(record):
    """The median microseconds of who raced: the best own kernel, cuBLASLt's first choice and its best."""
    times = {}
    for trial in record["trials"]:
        timed = trial.get("measured") or trial.get("rejected", {}).get("measurement")
        if not timed:
            continue
        us, variant = timed["median_us"], trial["variant"]
        if variant == "cublaslt":
            times["library best"] = min(us, times.get("library best", us))
            if trial["config"].get("choice") == 0:
                times["library first"] = us
        elif variant != "reference" and not variant.startswith("torch"):
            times["own"] = min(us, times.get("own", us))
    return times


def on_gpu(args):
    from products import quartiles, race

    print("| kind | m × n × k | winner | warplap µs | TFLOP/s | torch µs | torch / warplap | in the race: own, cuBLASLt first, best µs |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for shape in sorted(SHAPES, key=math.prod):
        for kind in args.kinds.split(","):
            name = "{} × {} × {}".format(*shape)
            if args.only not in f"{kind} {name}" or time.monotonic() - args.begun > args.limit:
                continue
            case = Case(kind, shape, "cuda")
            tuned = warplap.tune([case.problem()], budget=args.budget)[0]
            lanes = {"warplap": case.ours}
            if kind != "i8" or case.m > 16:  # torch refuses fewer rows
                lanes["torch"] = case.torchs
            for lane, call in lanes.items():
                case.prove(lane, call)
            times = race({lane: (lambda i, call=call: call()) for lane, call in lanes.items()}, 1, args.rounds, "use")
            ours = quartiles(times["warplap"])[0] * 1e6
            raced = trials(tuned.record)
            row = {"kind": kind, "shape": shape, "winner": tuned.variant, "us": ours, "raced_us": raced}
            beside = "– | –"
            if "torch" in times:
                row["torch_us"] = quartiles(times["torch"])[0] * 1e6
                row["ratio"] = quartiles([t / w for w, t in zip(times["warplap"], times["torch"])])
                middle, low, high = row["ratio"]
                beside = f"{row['torch_us']:.2f} | **{middle:.2f}** ({low:.2f}–{high:.2f})"
            rows.append(row)
            shown = ", ".join(f"{raced.get(who, math.nan):.2f}" for who in ("own", "library first", "library best"))
            speed = case.flops() / ours * 1e-6
            print(f"| {kind} | {name} | `{tuned.variant}` | {ours:.2f} | {speed:.0f} | {beside} | {shown} |", flush=True)
    return rows


def on_cpu(args):
    from torch.utils.benchmark import Timer

    print("| m × n × k | winner | warplap µs | GOP/s | torch µs | torch / warplap |")
    print("|---|---|---|---|---|---|")
    rows = []
    for shape in CPU:
        case = Case("i8", shape, "cpu")
        tuned = warplap.tune([case.problem()], budget=args.budget)[0]
        for lane, call in {"warplap": case.ours, "torch": case.torchs}.items():
            case.prove(lane, call)
        timers = [Timer("call()", globals={"call": call}) for call in (case.ours, case.torchs)]
        once = lambda timer: timer.blocked_autorange(min_run_time=0.05).median
        turns = [[once(timer) for timer in timers] for _ in range(args.rounds)]
        ours, theirs = (statistics.median(turn[i] for turn in turns) for i in range(2))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        rows.append({"shape": shape, "winner": tuned.variant, "us": ours * 1e6, "torch_us": theirs * 1e6, "ratio": ratio})
        name = "{} × {} × {}".format(*shape)
        print(f"| {name} | `{tuned.variant}` | {ours * 1e6:.1f} | {case.flops() / ours * 1e-9:.0f} | {theirs * 1e6:.1f} | **{ratio:.2f}** |", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="tensor,block,i8", help="of tensor, block, i8, fast")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of tuning a problem")
    parser.add_argument("--only", default="", help="problems that contain this text")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further problem is begun")
    parser.add_argument("--cpu", action="store_true", help="signed bytes on the CPU")
    parser.add_argument("--json", help="also write JSON lines to this file")
    args = parser.parse_args()
    args.begun = time.monotonic()
    warplap.configure(bucket="exact")  # 64 and 128 rows would share a winner
    where = platform.processor() or platform.machine() if args.cpu else torch.cuda.get_device_name()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "warplap": warplap.__version__}
    print(f"{where}, " + ", ".join(f"{k} {v}" for k, v in versions.items()) + f"; {args.rounds} rounds\n")
    rows = on_cpu(args) if args.cpu else on_gpu(args)
    ratios = [row["ratio"] if args.cpu else row["ratio"][0] for row in rows if "ratio" in row]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"\n{len(rows)} rows; torch / warplap: geometric mean {mean:.3f}, lowest {min(ratios):.3f}; {time.monotonic() - args.begun:.0f} s in all")
    if args.json:
        with open(args.json, "w") as out:
            out.writelines(json.dumps({**row, "versions": versions}) + "\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
