"""Kernel Tuner's own CUDA examples with the import changed: each runs as it is, with our tune_kernel and run_kernel
under its module's name.

    python3 lab/kernels/kernel_tuner_examples.py FOLDER/examples/cuda [NAME …] --budget 5

FOLDER is a clone of Kernel Tuner, which need not be installed. Prints a line for each example: how many calls there
were, how many settings of the last one were measured, the best of them, or what was said instead. Ends with 1 where an
example ended with an error that is not a clear refusal (NotImplementedError).
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

# Those that need neither other packages (pycuda, CuPy, jinja2) nor a host program around the kernel.
USUAL = (
    "vector_add", "vector_add_metric", "vector_add_codegen", "vector_add_nvcuda",
    "test_vector_add_parameterized", "matmul", "stencil", "zeromeanfilter", "spmv", "convolution_correct",
    "convolution", "sepconv", "reduction", "texture",
)  # fmt: skip

RUN = r"""
import json, runpy, sys, types
import warplap

path, budget = sys.argv[1], float(sys.argv[2])
calls = []

def tune_kernel(*args, **kwargs):
    results, env = warplap.tune_kernel(*args, **{"budget": budget, **kwargs})
    calls.append((results, env))
    return results, env

def run_kernel(*args, **kwargs):
    calls.append(None)
    return warplap.run_kernel(*args, **kwargs)

nothing = lambda *args, **kwargs: None
names = {
    "kernel_tuner": {"tune_kernel": tune_kernel, "run_kernel": run_kernel},
    "kernel_tuner.file_utils": {"store_output_file": nothing, "store_metadata_file": nothing},
    "kernel_tuner.util": {"get_config_string": str, "get_best_config": lambda results, objective: results[0]},
}
for name, members in names.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
failed = None
try:
    scope = runpy.run_path(path, run_name="__main__")
    if "test_vector_add" in scope:
        fixture = scope["vector_add"]
        made = getattr(fixture, "__wrapped__", None) or getattr(fixture, "_get_wrapped_function", lambda: fixture)()
        for size in (32, 256, 1024):
            scope["test_vector_add"](made(), size)
except BaseException as error:
    failed = [type(error).__name__, str(error)[:300]]
last = next((t for t in reversed(calls) if t is not None), None)
out = {"calls": len(calls), "failed": failed}
if last is not None:
    rows = last[0]
    measured = [r for r in rows if isinstance(r["time"], float)]
    words = {}
    for r in rows:
        if not isinstance(r["time"], float):
            words[r["time"].split(":")[0]] = words.get(r["time"].split(":")[0], 0) + 1
    out |= {"settings": len(rows), "measured": len(measured), "others": words, "roles": last[1].get("roles")}
    out |= {"best": last[1]["best"], "ms": measured[0]["time"] if measured else None}
print("\n" + json.dumps(out))
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=USUAL)
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--timeout", type=float, default=300.0)
    options = parser.parse_args()
    bad = 0
    for name in options.names:
        start = time.monotonic()
        order = [sys.executable, "-c", RUN, f"{name}.py", str(options.budget)]
        try:
            done = subprocess.run(order, cwd=options.folder, capture_output=True, text=True, timeout=options.timeout)
            report = json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            report = {"failed": ["Timeout", f"more than {options.timeout:g} s"]}
        except (IndexError, ValueError):
            report = {"failed": ["Died", done.stderr[-300:]]}
        failed = report.pop("failed")
        refused = failed is not None and failed[0] == "NotImplementedError"
        bad += failed is not None and not refused
        word = "ran" if failed is None else "refused" if refused else "FAILED"
        said = json.dumps(report) if failed is None else ": ".join(failed)
        print(f"{name:30} {word:8} {time.monotonic() - start:6.1f} s  {said}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
