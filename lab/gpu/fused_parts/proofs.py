"""Random problems of pairs and of rope on a GPU: a race of each proves its settings on fresh inputs, poisoned outputs
and guard bands; winner and reference (mode "off") then run on tensors with gaps and outputs of NaN, held to float64.
"""

import math
import random
import time

import torch
import torch.nn.functional as F
import warplap
from rivals.rope import llama

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
ROUND = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
ACTS = {
    "none": lambda x: x, "relu": torch.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
}  # fmt: skip
ROPES = [
    "rows=4096,h=32,hk=8,d=128,dtype=bf16,pairs=halves",
    "rows=4096,h=32,hk=8,d=128,dtype=bf16,wide=true,pairs=halves,back=true",
    "rows=16,h=32,hk=8,d=128,n=8192,dtype=bf16,table=f32,positions=i64,pairs=halves",
    "rows=4096,h=48,d=128,dtype=bf16,plain=8,bias=true,inplace=true,pairs=halves",
    "rows=4096,h=40,d=128,dtype=bf16,inplace=true,ld=6144,pairs=halves",
    "rows=1,h=1,d=2,dtype=f32,pairs=interleaved",
    "rows=2048,h=16,hk=16,d=64,dtype=f16,pairs=interleaved",
]


def fields(text):
    return dict(part.split("=") for part in text.split(","))


def strided(rows, inner, ld, dtype):
    """Rows with gaps that are not numbers."""
    width = math.prod(inner)
    memory = torch.full((rows, ld), math.nan, device="cuda", dtype=dtype)
    memory[:, :width] = torch.randn(rows, width, device="cuda").to(dtype)
    steps = [ld] + [math.prod(inner[i + 1 :]) for i in range(len(inner))]
    return memory.as_strided((rows, *inner), steps)


def share(got, want, allowed):
    """The largest share of what is allowed; infinite where something is not a number."""
    return ((got.double() - want).abs() / allowed).nan_to_num(nan=math.inf).max().item()


def proved(op, texts, prove, args):
    """Proves problems until the time is over; how many were wrong."""
    begun, count, raced, wrong, worst = time.perf_counter(), 0, 0, 0, 0.0
    warplap.configure(budget=1.5)
    for number, text in enumerate(texts):
        if number and time.perf_counter() - begun > args.seconds:
            break
        for mode in ("tune", "off"):
            with warplap.set_mode(mode):
                most, why = prove(fields(text))
            count, worst = count + 1, max(worst, most)
            if why or not most <= 1.0:
                wrong += 1
                print(f"WRONG, mode {mode}: {op}:{text}: {why or f'{most:.2f} of what is allowed'}", flush=True)
        try:
            table = list(warplap.benchmark(f"{op}:{text}", device="cuda", budget=1.5, every_config=True))
        except RuntimeError as why:  # no time for a proof, among others
            print(f"NOT RACED: {op}:{text}: {why}", flush=True)
            continue
        bad = [row for row in table if "wrong" in str(row).lower()]
        raced, wrong = raced + len(table), wrong + len(bad)
        for row in bad:
            print(f"WRONG in the race: {op}:{text}: {row}", flush=True)
    warplap.configure(budget=args.budget)
    print(f"{op}: {count} answers, {raced} settings raced, {wrong} wrong, worst share {worst:.2f}", flush=True)
    return wrong


def pair_texts():
    """Pairs of all forms."""
    pick = random.choice
    while True:
        dtype = pick(["bf16", "bf16", "f16", "f32"])
        m, n = pick([1, 2, 16, 33, 64, 100, 256, 300, 700]), pick([8, 72, 131, 264, 1000, 2056])
        k, a, b = pick([8, 35, 72, 264, 1000]), pick(["row", "row", "col"]), pick(["row", "col", "col"])
        pad, size = pick([0, 0, 0, 8, 1]), TYPES[dtype].itemsize
        lds = (m if a == "col" else k) + pad, (k if b == "col" else n) + pad, n + pad
        align = 64 if pad == 0 and all(ld * size % 16 == 0 for ld in lds) else size
        layout = f"a={a},b={b},lda={lds[0]},ldb={lds[1]},ldc={lds[2]},align={align}"
        tf32 = ",tf32=true" if dtype == "f32" and pick([True, False]) else ""
        yield f"m={m},n={n},k={k},dtype={dtype},{layout},act={pick(list(ACTS))},pair=true{tf32}"


def matrix(rows, columns, order, ld, dtype):
    """One whose rows, or columns, are contiguous."""
    return strided(columns, (rows,), ld, dtype).t() if order == "col" else strided(rows, (columns,), ld, dtype)


def prove_pair(f):
    m, n, k, lda, ldb, ldc = (int(f[name]) for name in ("m", "n", "k", "lda", "ldb", "ldc"))
    dtype, tf32 = TYPES[f["dtype"]], "tf32" in f
    a, b, b2 = matrix(m, k, f["a"], lda, dtype), *(matrix(k, n, f["b"], ldb, dtype) for _ in range(2))
    memory = torch.full((m, ldc), math.nan, device="cuda", dtype=dtype)
    text = ",".join(f"{name}={value}" for name, value in f.items())
    warplap.run(f"gemm:{text}", {"a": a, "b": b, "b2": b2, "c": memory[:, :n]})
    gate, up = a.double() @ b.double(), a.double() @ b2.double()
    want = ACTS[f["act"]](gate) * up
    sums = math.sqrt(k) * (2.0**-10 if tf32 else 2.0**-22)
    last = 2.0**-10 if tf32 else {"f32": 2.0**-20, "f16": 2.0**-9, "bf16": 2.0**-6}[f["dtype"]]
    allowed = last * (want.abs() + 0.3 * up.abs()) + 8 * sums * (gate.abs() + up.abs() + 2)
    written = ldc > n and not memory[:, n:].isnan().all()
    return share(memory[:, :n], want, allowed), "wrote between rows" if written else ""


def pairs(args):
    return proved("gemm", pair_texts(), prove_pair, args)


def rope_texts():
    """Those that models have, then ropes of all forms."""
    yield from ROPES
    pick = random.choice
    while True:
        d = pick([2, 6, 8, 34, 64, 80, 96, 128, 256])
        h, hk, dtype = pick([1, 3, 8, 32, 40]), pick([0, 0, 1, 2, 8]), pick(list(TYPES))
        rows, rot = pick([1, 2, 13, 64, 257, 1000]), min(d, pick([d, d, 2 * max(1, d // 4), 2]))
        text = f"rows={rows},h={h},d={d},rot={rot},n={pick([1, 7, rows, 300])},dtype={dtype}"
        text += f",table={pick(['f32', dtype])},pairs={pick(['halves', 'interleaved'])}"
        if hk:
            text += f",hk={hk}" + pick(["", f",ldk={hk * d + pick([1, 8, 64])}"])
        text += pick(["", f",ld={h * d + pick([1, 8, 64])}"]) + pick(["", ",wide=true"])
        text += pick(["", ",positions=i32", ",positions=i64"]) + pick(["", ",inplace=true"])
        text += pick(["", ",back=true", ",bias=true", ",bias=true"])
        if h + hk > 2:
            text += pick(["", f",plain={random.randrange(1, h + hk - 1)}"])
        yield text + pick(["", "", f",ldt={(rot if 'wide' in text else rot // 2) + 3}"])


def whole(f):
    """The numbers of a problem of rope."""
    sizes = {name: int(value) for name, value in f.items() if value.isdigit()}
    return {"hk": 0, "plain": 0, "rot": sizes["d"], "n": sizes["rows"], **sizes}


def rope_inputs(f):
    w, dtype, angle = whole(f), TYPES[f["dtype"]], TYPES[f.get("table", f["dtype"])]
    columns = w["rot"] if "wide" in f else w["rot"] // 2
    tensors = {"x": strided(w["rows"], (w["h"], w["d"]), w.get("ld", w["h"] * w["d"]), dtype)}
    if w["hk"]:
        tensors["k"] = strided(w["rows"], (w["hk"], w["d"]), w.get("ldk", w["hk"] * w["d"]), dtype)
    tensors |= {name: strided(w["n"], (columns,), w.get("ldt", columns), angle) for name in ("cos", "sin")}
    if "positions" in f:
        kind = {"i32": torch.int32, "i64": torch.int64}[f["positions"]]
        tensors["positions"] = torch.randint(0, w["n"], (w["rows"],), device="cuda", dtype=kind)
    if "bias" in f:
        tensors["bias"] = torch.randn((w["h"] + w["hk"]) * w["d"], device="cuda").to(dtype)
    return tensors


def rope_answer(f, tensors):
    """In float64, by a matrix for each row."""
    w, wide, neighbours = whole(f), "wide" in f, f["pairs"] == "interleaved"
    rot, d, heads = w["rot"], w["d"], w["h"] + w["hk"]
    y = torch.cat([tensors[name].double() for name in ("x", "k") if name in tensors], 1)
    if "bias" in tensors:
        y = y + tensors["bias"].double().view(heads, d)
    at = tensors["positions"].long() if "positions" in tensors else torch.arange(w["rows"], device="cuda") % w["n"]
    j = torch.arange(rot, device="cuda")
    other = j ^ 1 if neighbours else (j + rot // 2) % rot
    column = j if wide else j // 2 if neighbours else j % (rot // 2)
    cos, sin = (tensors[name].double()[at][:, column] for name in ("cos", "sin"))
    turn = torch.zeros(w["rows"], rot, rot, device="cuda", dtype=torch.float64)
    turn[:, j, j] = cos
    turn[:, j, other] = torch.where(j < other, -sin, sin)
    turned = heads - w["plain"]
    out = y.clone()
    out[:, :turned, :rot] = torch.einsum("rij,rhj->rhi", turn.mT if "back" in f else turn, y[:, :turned, :rot])
    return out, 2 * y.abs().amax()


def prove_rope(f):
    w, tensors = whole(f), rope_inputs(f)
    want, reach = rope_answer(f, tensors)
    text = ",".join(f"{name}={value}" for name, value in f.items())
    if "inplace" in f:
        warplap.run(f"rope:{text}", tensors)
        outs = [tensors[name] for name in ("x", "k") if name in tensors]
    else:
        empty = lambda heads: torch.full((w["rows"], heads, w["d"]), math.nan, device="cuda", dtype=tensors["x"].dtype)
        slots = {name: empty(heads) for name, heads in (("y", w["h"]), ("yk", w["hk"])) if heads}
        warplap.run(f"rope:{text}", tensors | slots)
        outs = list(slots.values())
    allowed = 1.001 * ROUND[f["dtype"]] * want.abs() + 4 * ROUND["f32"] * reach + 3e-8
    written = any(name in tensors and not padding_is_untouched(tensors[name]) for name in ("x", "k"))
    return share(torch.cat(outs, 1), want, allowed), "wrote between rows" if written else ""


def padding_is_untouched(t):
    """Whether what lies between rows is as it was."""
    rows, width = t.shape[0], t.shape[1] * t.shape[2]
    gap = t.stride(0) - width
    between = t.as_strided((rows - 1, gap), (t.stride(0), 1), t.storage_offset() + width)
    return rows == 1 or bool(between.isnan().all())


def rope_gradients(dtype):
    """How far warplap.rope and its gradients are off."""
    b, s, d = 2, 77, 64
    q, k = (torch.randn(b, s, h, d, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_() for h in (8, 2))
    angles = torch.rand(b, s, d // 2, device="cuda").repeat(1, 1, 2) * math.tau
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    along = [torch.randn_like(t) for t in (q, k)]
    mine = (*warplap.rope(q, k, cos, sin, wide=True, heads_dim=1),)
    mine += torch.autograd.grad(mine, (q, k), along)
    wide = [t.detach().double().requires_grad_() for t in (q, k)]
    right = (*llama(*wide, cos.double(), sin.double()),)
    right += torch.autograd.grad(right, wide, [t.double() for t in along])
    return max(((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(mine, right))


def rope(args):
    wrong = proved("rope", rope_texts(), prove_rope, args)
    for dtype in TYPES.values():
        off = rope_gradients(dtype)
        print(f"rope and its gradients, {dtype}: off by {off:.1e}", flush=True)
        wrong += off > 2 * torch.finfo(dtype).eps
    return wrong
