"""Users' CUDA kernels on a real GPU: references in CUDA, inout, constant memory, and what must be refused.

    python3 lab/kernels/cuda_specs.py --warplap target/release/warplap

Writes small spec files into a folder of its own, runs `warplap tune` on each and holds what it says against what must come
out. Right answers come from files where they can, so that a wrong reference shows. Needs Python alone, no NumPy. Ends with 1
where anything was not as expected.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

N = 100_000
HERE = pathlib.Path(__file__).resolve().parents[2]
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


def npy(values, code="<f4"):
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': ({len(values)},), }}\n".encode()
    kind = {"<f4": "f", "<f8": "d", "<i4": "i"}[code]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{kind}", *values)


def argument(name, dtype, **more):
    more = {"shape": "N", **more} if "value" not in more and "file" not in more else more
    fields = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {"name": name, "dtype": dtype, **more}.items())
    return f"[[arguments]]\n{fields}\n"


def spec(kinds, arguments, rest=""):
    count = argument("n", "i32", value="N")
    return (
        f'source = "k.cu"\nentry = "k"\nbudget = 20\n[constants]\nN = {N}\n[axes]\nKIND = {list(kinds)}\nBLOCK = [128, 256]\n'
        f'[launch]\ngrid = "ceil(N / BLOCK)"\nblock = "BLOCK"\n{"".join(arguments)}{count}{rest}'
    )


def kernel(parameters, body, globals=""):
    return f'{globals}\nextern "C" __global__ void k({parameters}, int n) {{ {INDEX} {body} }}\n'


def cases():
    """Name, spec, files, what KIND gives which outcome; or the words a refusal must have."""
    wild = "if (KIND == 1) { ((float*)(size_t)8)[i] = 1; return; }"
    both = "const float* a, float* c"
    random = [argument("a", "f32"), argument("c", "f32", role="out")]
    plain = '[reference]\nsource = "plain.cu"\nentry = "plain"\n[reference.launch]\ngrid = "ceil(N / 64)"\nblock = 64\n'
    right = f'extern "C" __global__ void plain({both}, int n) {{ {INDEX} c[i] = 3 * a[i]; }}'
    triple = kernel(both, f"{wild} c[i] = (KIND == 2 ? 2 : 3) * a[i];")
    judged = {0: "right", 1: "crashed", 2: "wrong_answer"}
    yield "reference in CUDA", spec([0, 1, 2], random, plain), {"k.cu": triple, "plain.cu": right}, judged
    yield "default config", spec([0, 1, 2], random), {"k.cu": triple}, judged
    for dtype, c in [("f64", "double"), ("i32", "int")]:
        own = [argument("a", dtype), argument("c", dtype, role="out")]
        code = kernel(f"const {c}* a, {c}* c", "if (KIND == 3 && i == n - 1) return; c[i] = a[i] + (KIND == 2 && i == 77);")
        yield f"default config, {dtype}", spec([0, 2, 3], own), {"k.cu": code}, {0: "right", 2: "wrong_answer", 3: "wrong_answer"}
    counted = [argument("a", "f32", fill="range"), argument("c", "f32", role="inout", fill="range")]
    adds = kernel(both, "if (KIND == 2) c[i] = a[i]; else c[i] += a[i];")
    answer = '[reference]\nfile = "answer.npy"\n'
    twice = npy([2.0 * i for i in range(N)])
    yield "inout, answer file", spec([0, 2], counted, answer), {"k.cu": adds, "answer.npy": twice}, {0: "right", 2: "wrong_answer"}
    changed = [argument("a", "f32"), argument("c", "f32", role="inout")]
    yield "inout, default config", spec([0, 2], changed), {"k.cu": adds}, {0: "right", 2: "wrong_answer"}
    weights = [argument("a", "f32", fill="range"), argument("c", "f32", role="out"),
               argument("w", "f32", role="constant", file="w.npy")]
    weighs = kernel(both, "c[i] = KIND == 2 ? w[0] * a[i] : w[0] * a[i] + w[1];", "__constant__ float w[2];")
    weighed = {"k.cu": weighs, "w.npy": npy([0.5, -4.0]), "answer.npy": npy([0.5 * i - 4.0 for i in range(N)])}
    yield "constant, answer file", spec([0, 2], weights, answer), weighed, {0: "right", 2: "wrong_answer"}
    yield "constant, default config", spec([0, 2], weights), weighed, {0: "right", 2: "wrong_answer"}
    missing = {**weighed, "k.cu": kernel(both, "c[i] = a[i];")}
    yield "constant that is missing", spec([0], weights), missing, ["does not build", "no global 'w'", "[reference]"]
    yield "default config that faults", spec([1, 0], random), {"k.cu": triple}, ["KIND=1", "crashed", "[reference]"]
    faults = right.replace("c[i] = 3 * a[i];", "((float*)(size_t)8)[i] = 1;")
    files = {"k.cu": triple, "plain.cu": faults}
    yield "reference that faults", spec([0], random, plain), files, ["plain.cu cannot be used", "crashed"]
    files = {"k.cu": triple, "plain.cu": right.replace("c[i] =", "if (i < n - 1) c[i] =")}
    yield "reference with a hole", spec([0], random, plain), files, [f"element {N - 1} of 'c' is NaN or was never written"]
    halved = "c[i] = __half2float(__float2half(HALF)) * a[i] + (KIND == 2);"
    including = f'#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n#include "half.h"\n__global__ void k({both}, int n) {{ {INDEX} {halved} }}\n'
    files = {"k.cu": including, "half.h": "#define HALF 0.5f\n"}
    yield "headers", 'headers = ["half.h"]\n' + spec([0, 2], random), files, {0: "right", 2: "wrong_answer"}
    files = {"k.cu": triple, "plain.cu": right.replace("3 *", "3 &")}
    yield "reference that does not compile", spec([0], random, plain), files, ["plain.cu cannot be used", "does not build"]


def outcomes(line):
    """What became of each value of KIND, in words."""
    verdicts = {}
    for trial in line["trials"]:
        word = trial.get("rejection") or "right"
        kind = trial["config"].get("KIND", trial["variant"])
        verdicts.setdefault(kind, set()).add("right" if word == "outpaced" else word)
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warplap", default=str(HERE / "target/release/warplap"))
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        room = pathlib.Path(folder)

        def tune(path, *more):
            command = [options.warplap, "--store", str(room / "store"), "tune", str(path), "--device", "cuda", "--json", *more]
            started = time.monotonic()
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            return ended, time.monotonic() - started

        for number, (name, text, files, expected) in enumerate(cases()):
            place = room / str(number)
            place.mkdir()
            (place / f"case{number}.toml").write_text(text)
            for file, content in files.items():
                (place / file).write_bytes(content if isinstance(content, bytes) else content.encode())
            ended, seconds = tune(place / f"case{number}.toml")
            if isinstance(expected, list):
                good = ended.returncode == 2 and all(words in ended.stderr for words in expected)
                said = ended.stderr.strip()
            else:
                verdicts = outcomes(json.loads(ended.stdout.splitlines()[0])) if ended.returncode == 0 else {}
                good = all(verdicts.get(kind) == {word} for kind, word in expected.items())
                said = str(verdicts) if ended.returncode == 0 else ended.stderr.strip()
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {seconds:5.1f} s  {name}\n       {said[:400]}", flush=True)
        ended, seconds = tune(HERE / "examples/blur-cuda/blur.toml", "--budget", "10")
        line = json.loads(ended.stdout.splitlines()[0]) if ended.returncode == 0 else {}
        verdicts = outcomes(line) if line else {}
        good = bool(line) and all(words == {"right"} for words in verdicts.values())
        failed += not good
        said = {key: line.get(key) for key in ("winner", "median_us", "speedup_reference")} if line else ended.stderr
        print(f"{'ok  ' if good else 'FAIL'} {seconds:5.1f} s  examples/blur-cuda\n       {said} {verdicts}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
