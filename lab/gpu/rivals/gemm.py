"""Dense products on a GPU: torch, cuBLASLt's first choice, warplap's choice and its best own kernel, on the same memory."""

import re

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FIRST = "choice=0,workspace=32"


class Case:
    def __init__(self, problem):
        f = dict(re.findall(r"(\w+)=([^,]+)", problem))
        self.problem, self.dtype = problem, DTYPES[f["dtype"]]
        self.tf32 = f.get("tf32") == "true"
        self.m, self.n, self.k, self.batch = (int(f.get(x, 1)) for x in ("m", "n", "k", "batch"))

    def bytes(self):
        m, n, k = self.m, self.n, self.k
        return self.batch * (m * k + k * n + m * n) * self.dtype.itemsize

    def flops(self):
        return 2.0 * self.batch * self.m * self.n * self.k

    def make(self, sets):
        def drawn(*shape):
            return torch.rand(self.batch, *shape, device="cuda").mul_(2).sub_(1).to(self.dtype)

        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        m, n, k = self.m, self.n, self.k
        self.sets = [(drawn(m, k), drawn(k, n), torch.empty(self.batch, m, n, device="cuda", dtype=self.dtype)) for _ in range(sets)]

    def lanes(self, gpu, record, cold):
        """The calls by name, warplap's choice, and its best own kernel."""
        winner = gpu.gemm(self.problem, cold=cold)
        first = gpu.gemm(self.problem, variant="cublaslt", config=FIRST)
        name = best_own(record["edition"])
        own = gpu.gemm(self.problem, variant=name[0], config=name[1]) if name else winner

        def launched(kernel):
            def call(i):
                a, b, c = self.sets[i]
                kernel.launch(a.data_ptr(), b.data_ptr(), c.data_ptr(), torch.cuda.current_stream().cuda_stream)

            return call

        def mm(i):
            a, b, c = self.sets[i]
            torch.mm(a[0], b[0], out=c[0]) if self.batch == 1 else torch.bmm(a, b, out=c)

        lanes = {"warplap": launched(winner), "own": launched(own), "torch": mm, "cublaslt": launched(first)}
        return lanes, winner.name, own.name

    def prove(self, name, call):
        """Right on every set, from a poisoned output."""
        for i, (a, b, c) in enumerate(self.sets[:2]):
            c.fill_(float("nan"))
            call(i)
            wide = torch.float64 if self.dtype == torch.float32 else torch.float32
            right = torch.bmm(a.to(wide), b.to(wide))
            worst = (c.to(wide) - right).abs().max().item()
            allowed = 0.02 * self.k**0.5 if self.dtype == torch.bfloat16 else 0.004 * self.k**0.5
            if not worst <= allowed:
                raise SystemExit(f"{self.problem}: {name} is off by {worst}, allowed {allowed}")


def best_own(edition):
    """Variant and config of the fastest right candidate that is no library's and not the reference."""
    own_trials = []
    for trial in edition["trials"]:
        us, variant = median(trial), trial["variant"]
        if us is not None and variant not in ("cublaslt", "reference"):
            values = trial["config"].items()
            config = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in values)
            own_trials.append((us, (variant, config)))
    return min(own_trials)[1] if own_trials else None


def median(trial):
    """The median of a trial that was timed, whether it stayed to the end or was outpaced."""
    timed = trial.get("measured") or trial.get("rejected", {}).get("measurement")
    return timed and timed["median_us"]
