"""What a call takes on the device that is here, at full size: ours beside `jax.jit` and, of some, `torch.compile`.

    python -m bench.measured                                     # loops, contractions, windows and the rest
    python -m bench.measured windows lenet                       # what belongs to that group, or begins so
    python -m bench.measured --markdown bench/results/measured   # measured-loops.md and so on

Processes compile side by side, each its share of the programs, and then measure one after the other. A time is that of
one call among many that are not waited for; beside it stand the kernels that the profiler saw for a call, and how long
the device was busy with them, where a call is so short that the host could be what takes its time. Products are made
as JAX makes them by default (`jax_default_matmul_precision`), in f32 with ten bits; errors, of the whole result, are
against `jax.jit` at the highest precision. `ours` decides by itself what XLA's library multiplies; `all ours` leaves
it nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import glob
import importlib
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from bench import contractions, windows
from bench.loops import markdown_rows
from jaxpr2triton.report.table import table
from tests import contraction_programs, loop_programs, programs
from tests.works import both

HEADER = ["program", "pass", "jit µs", "ours µs", "jit / ours", "all ours µs", "torch µs"]
HEADER += ["busy µs: jit, ours, all", "kernels: jit, ours, all", "errors: jit, ours, all", "left"]
GROUPS = ("rest", "loops", "contractions", "windows")
SHORT = 3e-4  # seconds; what takes longer is not profiled
SECONDS = 0.05  # for each round
ROUNDS = 3
MISSING = "-"
ENDLESS = ("logistic_map", "nuts")  # millions of launches by XLA, which is not asked to run them
WITHOUT_TORCH = "BENCH_WITHOUT_TORCH"
GRACE = 60  # seconds for what is being compiled when there is no more time


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    kind: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def title(self) -> str:
        return f"{self.name}: {self.kind}"


def cases() -> Iterator[Case]:
    for program in programs.PROGRAMS:
        if program.bench_args is not None:
            yield from _of(program, "rest")
    for loop in loop_programs.PROGRAMS:
        if loop.bench_args is not None:
            yield from _of(replace(loop, fn=loop.bench_fn), "loops")
    for contraction in map(contractions.at_full_size, contraction_programs.PROGRAMS):
        kind = "forward" if contraction.grad is None else "with gradients"
        yield Case("contractions", contraction.name, kind, contraction.whole(), contraction.args)
    for title, fn, sizes in windows.everything():
        yield Case("windows", *title.split(": "), fn, lambda sizes=sizes: jax.tree.map(_drawn, sizes))


def _of(program: programs.Program, group: str) -> Iterator[Case]:
    def arguments() -> tuple[Any, ...]:
        assert program.bench_args is not None
        return jax.tree.map(jnp.asarray, program.bench_args(np.random.default_rng(0)))

    yield Case(group, program.name, "forward", program.fn, arguments, program.precision)
    if program.grad is not None:
        yield Case(group, program.name, "with gradients", both(program.fn, program.grad), arguments, program.precision)


def _drawn(size: jax.ShapeDtypeStruct) -> jax.Array:
    """Positive, as variances are."""
    return jnp.asarray(np.random.default_rng(0).uniform(0.1, 0.5, size.shape), size.dtype)


def chosen(words: Sequence[str]) -> list[Case]:
    found = list(cases())
    return [case for case in found if not words or case.group in words or case.name.startswith(tuple(words))]


# one process


@dataclass
class Prepared:
    case: Case
    calls: dict[str, Callable[..., Any]]
    errors: dict[str, float]
    left: int | None = None
    problem: str = ""


def prepared(case: Case) -> Prepared:
    """Compiled and compared."""
    found = Prepared(case, {}, {})
    try:
        with case.context(), warnings.catch_warnings():
            warnings.simplefilter("ignore", j2t.KernelFallback)
            args = case.arguments()
            exact = None
            if case.name not in ENDLESS:
                with jax.default_matmul_precision("highest"):
                    exact = jax.block_until_ready(jax.jit(case.function)(*args))
            for name, function in ways(case).items():
                found.calls[name] = jax.jit(function).lower(*args).compile()
                if exact is not None:
                    found.errors[name] = error(found.calls[name](*args), exact)
            found.calls |= torch_call(case)
            found.left = len(j2t.transpile(case.function, *args).leftovers)
    except Exception as problem:  # the others are measured all the same, and this one is named
        found.problem = _told(problem)
    return found


def _told(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


def ways(case: Case) -> dict[str, Callable[..., Any]]:
    found = {"ours": j2t.fuse(case.function, backend="triton")}
    if case.name not in ENDLESS:
        found = {"jit": case.function, **found}
    if case.group in ("contractions", "windows"):
        found["all"] = j2t.fuse(case.function, backend="triton", contractions="triton")
    return found


def torch_call(case: Case) -> dict[str, Callable[..., Any]]:
    """What `torch.compile` makes of the same, written for it; it takes no arguments."""
    if os.environ.get(WITHOUT_TORCH):
        return {}
    try:
        importlib.import_module("torch")
    except ImportError:
        return {}
    of_torch = importlib.import_module("bench.of_torch")
    made = of_torch.compiled(case.title, case.group, case.arguments)
    return {} if made is None else {"torch": made}


def error(found: Any, exact: Any) -> float:
    """The largest of all results' distances from what is right, each relative to its size."""
    distances = [0.0]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        if other.dtype == jax.dtypes.float0 or not other.size:
            continue
        if jax.dtypes.issubdtype(other.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        distances.append(float(_distance(one, other)))
    return float(np.max(distances))


@jax.jit
def _distance(one: jax.Array, other: jax.Array) -> jax.Array:
    wide = jnp.promote_types(other.dtype, jnp.float32)
    one, other = one.astype(wide), other.astype(wide)
    same = (one == other) | (jnp.isnan(one) & jnp.isnan(other))
    size = jnp.linalg.norm(jnp.where(jnp.isfinite(other), other, 0))
    return jnp.linalg.norm(jnp.where(same, 0, one - other)) / jnp.maximum(size, 1e-30)


def measured(each: Prepared) -> dict[str, Any]:
    row: dict[str, Any] = {"group": each.case.group, "name": each.case.name, "kind": each.case.kind}
    row |= {"problem": each.problem, "errors": each.errors, "left": each.left, "µs": {}, "busy": {}, "kernels": {}}
    try:
        with each.case.context():
            args = each.case.arguments()
            for name, call in each.calls.items():
                run = call if name == "torch" else functools.partial(call, *args)
                seconds = seconds_of(run, waiting(name))
                row["µs"][name] = seconds * 1e6
                if name != "torch" and seconds < SHORT:
                    row["busy"][name], row["kernels"][name] = busy(run)
    except Exception as problem:  # named, and the others are measured all the same
        row["problem"] = _told(problem)
    return row


def waiting(name: str) -> Callable[[Any], Any]:
    if name != "torch":
        return jax.block_until_ready
    torch = importlib.import_module("torch")
    return lambda result: torch.cuda.synchronize()


def seconds_of(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """One call among many that are not waited for; the best of several rounds."""
    wait(call())
    start = time.perf_counter()
    wait(call())
    once = time.perf_counter() - start
    count = int(np.clip(SECONDS / max(once, 1e-6), 1, 1000))
    best = once
    for _ in range(ROUNDS if once < 1 else 1):
        start = time.perf_counter()
        for _ in range(count):
            result = call()
        wait(result)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def busy(call: Callable[[], Any], calls: int = 5) -> tuple[float, float]:
    """Microseconds of the device, and what ran on it, for a call."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(calls):
                result = call()
            jax.block_until_ready(result)
        (file,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        planes = jax.profiler.ProfileData.from_file(file).planes
        lines = [line for plane in planes if "/device:GPU" in plane.name for line in plane.lines]
        events = [event for line in lines if line.name.startswith("Stream") for event in line.events]
    return sum(event.duration_ns for event in events) / calls / 1e3, len(events) / calls


def worker(words: Sequence[str], place: int, places: int, end: float) -> None:
    mine = chosen(words)[place::places]
    ready = []
    for case in mine:
        start = time.time()
        if start < end:
            ready.append(prepared(case))
            print(f"{case.title}: {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    print("ready", flush=True)
    sys.stdin.readline()
    for each in ready:
        print(json.dumps(measured(each)), flush=True)
    for case in mine[len(ready) :]:
        print(json.dumps(unmeasured(case, "not compiled in time")), flush=True)
    print("done", flush=True)


def unmeasured(case: Case, why: str) -> dict[str, Any]:
    return {"group": case.group, "name": case.name, "kind": case.kind, "problem": why}


# all of them


def rows(words: Sequence[str], processes: int, minutes: float, note: Callable[[str], None]) -> list[dict[str, Any]]:
    """Compiled by so many processes for so many minutes at most, and then measured one by one."""
    end = time.time() + minutes * 60
    command = [sys.executable, "-m", "bench.measured", *words, "--end", str(end)]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
    running = [
        subprocess.Popen(
            [*command, "--place", str(place), str(processes)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(processes)
    ]
    found = []
    for place, process in enumerate(running):
        assert process.stdout is not None
        if select.select([process.stdout], [], [], max(0.0, end + GRACE - time.time()))[0]:
            process.stdout.readline()
            continue
        process.kill()
        process.wait()
        for case in chosen(words)[place::processes]:
            found.append(unmeasured(case, "one of the programs beside it was not compiled in time"))
    for process in running:
        assert process.stdin is not None and process.stdout is not None
        if process.poll() is not None:
            continue
        process.stdin.write("go\n")
        process.stdin.flush()
        for line in process.stdout:
            if line == "done\n":
                break
            note(line)
            found.append(json.loads(line))
        process.wait()
    order = {(case.group, case.name, case.kind): place for place, case in enumerate(chosen(words))}
    return sorted(found, key=lambda row: order[row["group"], row["name"], row["kind"]])


def shown(row: dict[str, Any]) -> list[object]:
    times = row.get("µs", {})
    if row["problem"]:
        return [row["name"], row["kind"], row["problem"].replace("|", "/"), *[MISSING] * (len(HEADER) - 3)]
    ratio = f"{times['jit'] / times['ours']:.2f}" if "jit" in times else MISSING
    several = [_several(row[what], form) for what, form in (("busy", "{:.0f}"), ("kernels", "{:.0f}"))]
    errors = _several(row["errors"], "{:.0e}")
    each = [f"{times[name]:,.0f}" if name in times else MISSING for name in ("jit", "ours", "all", "torch")]
    return [row["name"], row["kind"], *each[:2], ratio, *each[2:], *several, errors, row["left"]]


def _several(numbers: dict[str, float], form: str) -> str:
    return ", ".join(form.format(numbers[name]) if name in numbers else MISSING for name in ("jit", "ours", "all"))


def page(group: str, found: Sequence[dict[str, Any]]) -> str:
    today = datetime.date.today().isoformat()
    versions = f"jax {jax.__version__}, triton {version('triton')}, Python {platform.python_version()}"
    lines = [
        f"# Measured: {group}",
        "",
        f"{today}, {jax.devices()[0].device_kind}, {versions}.",
        "One call among many, in microseconds; of calls that take less than 300 µs also how long the device",
        'was busy, and with how many kernels and copies. `all ours` is `contractions="triton"`. Errors are relative,',
        "against `jax.jit` at the highest precision; by default f32 is multiplied with ten bits.",
        f"To make it again: `python -m bench.measured {group} --markdown bench/results/measured`.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(HEADER, [shown(row) for row in found])),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help=f"of {', '.join(GROUPS)}, or how programs' names begin")
    parser.add_argument("--markdown", type=Path, metavar="PREFIX", help="write a page for each group")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found, a line for each program")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--minutes", type=float, default=60, help="for compiling")
    parser.add_argument(
        "--no-torch", action="store_true", help="without what torch.compile takes, and takes to compile"
    )
    parser.add_argument("--place", type=int, nargs=2, help=argparse.SUPPRESS)  # which process of how many this is
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.place:
        worker(options.words, *options.place, options.end)
        return 0
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if jax.default_backend() not in ("gpu", "cuda", "rocm"):
        print("there is no device here; bench.cycles models one", file=sys.stderr)
        return 1
    if options.no_torch:
        os.environ[WITHOUT_TORCH] = "1"
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(options.json.open("w")) if options.json else None
        found = rows(options.words, options.processes, options.minutes, lambda line: _note(line, file))
    print(table(HEADER, [shown(row) for row in found]))
    for group in dict.fromkeys(row["group"] for row in found) if options.markdown else ():
        path = options.markdown.with_name(f"{options.markdown.name}-{group}.md")
        path.write_text(page(group, [row for row in found if row["group"] == group]))
    return 0


def _note(line: str, file: Any) -> None:
    if file is not None:
        file.write(line)
        file.flush()


if __name__ == "__main__":
    sys.exit(main())
