"""What a worker does: one job after the other, as it is told.

It is told on standard input, and answers on the file that `ANSWERS` names, in lines of JSON:

    job: {…}                       →  {"say": "ready"} first, when all is imported
                                   ←  {"say": "share"}, {"say": "alone"} and, when told "go", {"say": "release"}
                                   ←  {"say": "hash", "hashes": {"ours": …}} and, when told "later", {"say": "done"}
                                   ←  {"say": "found", "line": …} as soon as a row is measured
                                   ←  {"say": "done", "full": false}; if true, another worker is to do the next job
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax

import jaxpr2triton as j2t
from bench.device import ANSWERS, COMPUTED, REHEARSED, compared, timing, ways
from bench.device.cases import Case, small_cases, timed_cases, widest
from bench.device.figures import FIGURES
from bench.device.jobs import MEASURED, Job
from bench.device.modelled import modelled
from bench.device.store import Row, line_of
from jaxpr2triton.launch.call.devices import planned_for

REHEARSAL = bool(os.environ.get(REHEARSED))
LOOP_ROUNDS = 20  # of loops whose condition nobody computes
SHORT = 3e-4  # seconds of a call, up to which it matters how long the device is busy with `jax.jit`'s
PROFILED = 0.3  # seconds of a call of ours, up to which it is profiled
FEW = 0.01  # … and of which once is enough
FURTHER = 2.0  # times as far from what is exact as `jax.jit` is, kernels may be
MUCH = 3 * 2.0**30  # bytes of the device: a process that holds more of it ends, so that others find room


class Crew:
    """Those who are told what happens, and say whose turn it is."""

    def __init__(self) -> None:
        self.measured: set[str] = set()  # the ways of this job that have a row
        self._answers = os.fdopen(int(os.environ[ANSWERS]), "w", buffering=1)

    def say(self, what: str, **facts: Any) -> None:
        print(json.dumps({"say": what, **facts}), file=self._answers, flush=True)

    def ask(self, what: str, **facts: Any) -> str:
        self.say(what, **facts)
        return sys.stdin.readline().strip()

    def row(self, row: Row) -> None:
        self.measured.add(row.way)
        self.say("found", line=line_of(row))

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """The device alone, to measure, or shared with others who let XLA try kernels on it."""
        self.ask(what)
        try:
            yield
        finally:
            self.say("release")


@functools.cache
def known() -> dict[tuple[str, ...], Case]:
    return {case.place: case for case in (*small_cases(), *timed_cases())}


def done(job: Job, crew: Crew) -> None:
    match job.aim:
        case "right" if job.family == "drawn":
            check_drawn(job, crew)
        case "right":
            check(job, known()[job.place], crew)
        case "figure":
            measure_figure(job, crew)
        case "model":
            model(job, known()[job.place], crew)
        case _:
            measure(job, known()[job.place], crew)


def check(job: Job, case: Case, crew: Crew) -> None:
    with ways.noting() as launched:
        error, allowed = compared.on_the_cpu(case)
    if crew.ask("hash", hashes={ways.OURS: launched.hash}) == "later":
        return
    crew.row(row_of(job, ways.OURS, hash=launched.hash, error=error, allowed=allowed, left=launched.left))


def check_drawn(job: Job, crew: Crew) -> None:
    """A mismatch is an error of 1 where none is allowed; what it was is in the row."""
    deep, check_module = (importlib.import_module(f"tests.drawn.{name}") for name in ("deep", "check"))
    transforms = importlib.import_module("tests.drawn.transforms").TRANSFORMS
    known_faults = importlib.import_module("tests.drawn.known")
    seed, number = map(int, job.name.split()[-1].split("."))
    program = deep.drawn(seed, number, list(transforms), 1 / 3)
    if known_faults.is_known(program):
        crew.row(row_of(job, ways.OURS, error=0.0, allowed=0.0))
        return
    with ways.noting() as launched:
        try:
            check_module.check(program, backend="triton")
            error, problem = 0.0, ""
        except check_module.Mismatch as mismatch:
            error, problem = 1.0, told(mismatch)
    crew.row(row_of(job, ways.OURS, hash=launched.hash, error=error, allowed=0.0, problem=problem))


def measure_figure(job: Job, crew: Crew) -> None:
    target = planned_for()
    (figure,) = [figure for figure in FIGURES if figure.name == job.name]
    run = figure.prepare(target)
    with crew.turn("alone"):
        values = run()
    said = figure.said(target) if job.ways[0] == MEASURED else {}
    crew.row(row_of(job, job.ways[0], us=tuple(values), unit=figure.unit, said=said))


def measure(job: Job, case: Case, crew: Crew) -> None:
    """Compile all ways, and then take the time of one after the other; a way that fails costs itself alone."""
    with case.context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", j2t.KernelFallback)  # what XLA did instead is not what is to be measured
        products = ways.traits_of(case).products
        calls, facts = {}, {}
        for way in job.ways:
            with attempted(job, way, crew):
                with ways.noting() as launched:
                    lowered = None if way == ways.TORCH else ways.lowered(case, way)
                with tries(crew, products or way == ways.TORCH):
                    calls[way] = ways.torch_call(case) if lowered is None else lowered.compile()
            if way in (ways.OURS, ways.ALL) and way in calls:
                facts[way] = {"hash": launched.hash, "left": launched.left}
        hashes = {way: each["hash"] for way, each in facts.items()}
        if facts and crew.ask("hash", hashes=hashes) == "later":
            return
        exact = None
        if facts and not REHEARSAL and not case.endless and case.seconds < 1 and (products or ways.is_narrow(case)):
            lowered = ways.exact(case)
            with tries(crew, products):
                exact = lowered.compile()
        with jax.default_device(jax.devices("cpu")[0]):
            args = case.arguments()  # drawn before the turn, which is for measuring
        with crew.turn("alone"):
            take_times(job, case, calls, facts, exact, jax.device_put(args, jax.devices()[0]), crew)


def model(job: Job, case: Case, crew: Crew) -> None:
    """Planned and lowered as for the device, of which nothing is asked."""
    for way in job.ways:
        with case.context(), warnings.catch_warnings(), ways.noting() as launched:
            warnings.simplefilter("ignore")
            jax.jit(ways.function_of(case, way)).trace(*case.shapes).lower(lowering_platforms=("cuda",))
        if crew.ask("hash", hashes={way: launched.hash}) != "later" and launched.binaries:
            crew.say("found", line=line_of(modelled(launched)))


@contextlib.contextmanager
def attempted(job: Job, way: str, crew: Crew) -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # whatever it is: the other ways are measured all the same, and this one is named
        crew.row(row_of(job, way, problem=told(problem)))


def tries(crew: Crew, needed: bool) -> contextlib.AbstractContextManager[None]:
    """XLA tries kernels of products on the device while it compiles, which would disturb whoever measures."""
    return crew.turn("share") if needed and not REHEARSAL else contextlib.nullcontext()


def take_times(
    job: Job, case: Case, calls: dict[str, Any], facts: dict[str, Any], exact: Any, args: Any, crew: Crew
) -> None:
    expected = None if exact is None else jax.block_until_ready(exact(*widest(args)))
    allowed = case.allowed
    # `jax.jit` comes first: without products and 16 bits it is what the others are compared with, and else says how far
    # one may be from what is exact
    for way in sorted(calls, key=lambda way: way != ways.JIT):
        with attempted(job, way, crew):
            row, result = timed(job, case, way, calls[way], args)
            if not REHEARSAL and way in (ways.JIT, *facts):
                expected = result if expected is None and way == ways.JIT else expected
                error = None if expected is None else compared.distance(result, expected)
                if way == ways.JIT and allowed is not None and error is not None:
                    allowed = max(allowed, FURTHER * error)
                row |= {"error": error, "allowed": allowed if way in facts else None}
            crew.row(row_of(job, way, published=case.published, source=case.source, **row, **facts.get(way, {})))
            result = None  # it takes memory of the device


def timed(job: Job, case: Case, way: str, call: Any, args: Any) -> tuple[dict[str, Any], Any]:
    """The numbers of a row, and the program's result."""
    if way == ways.TORCH:
        if call is None:
            return {"problem": "nobody wrote it for torch"}, None
        synchronize = importlib.import_module("torch").cuda.synchronize
        return {"us": timing.times_of(call, lambda result: synchronize())}, None
    run = functools.partial(call, *args)
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    once = time.perf_counter() - start
    times = timing.times_of(run, jax.block_until_ready, once if once >= timing.VERY_LONG else None)
    shortest = min(times) / 1e6
    seen = None
    if not REHEARSAL and shortest < (PROFILED if way in (ways.OURS, ways.ALL) else SHORT):
        seen = timing.busy(run, 1 if shortest > FEW else timing.PROFILED)
    if seen is None:
        return {"us": times}, result
    return {"us": times, "busy": seen.us, "launches": seen.launches, "kernels": seen.kernels}, result


def row_of(job: Job, way: str, **facts: Any) -> Row:
    return Row("", job.aim, job.family, job.name, job.kind, job.sizes, way, **facts)


def told(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:240]}"


def held() -> float:
    """Bytes of the device that this process has taken; JAX gives none of them back."""
    stats = jax.devices()[0].memory_stats() or {}
    return float(stats.get("pool_bytes") or stats.get("bytes_reserved") or stats.get("peak_bytes_in_use") or 0)


def end_with_parent() -> None:
    """Whoever starts again finds the device free."""
    with contextlib.suppress(OSError, AttributeError):  # where there is no Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    end_with_parent()
    crew = Crew()
    if REHEARSAL:
        importlib.import_module("tests.standin.record").loops_take(LOOP_ROUNDS)
        if os.environ.get(COMPUTED):
            execute, checks = (importlib.import_module(f"tests.standin.{name}") for name in ("execute", "checks"))
            meant = contextlib.ExitStack().enter_context(checks.noting_kernels())
            execute.compute(execute.on_machine(meant))
    jax.devices()
    crew.say("ready")
    for line in sys.stdin:
        words: dict[str, Any] = json.loads(line)
        job = Job(**{**words, "ways": tuple(words["ways"])})
        try:
            done(job, crew)
        except Exception as problem:  # whatever it is: the worker goes on with the next job, and this one is named
            for way in job.ways:
                if way not in crew.measured:
                    crew.row(row_of(job, way, problem=told(problem)))
        crew.measured.clear()
        crew.say("done", full=held() > MUCH)
