"""Results made by hand: a run of yesterday and one of today on one device, and a rehearsal."""

from __future__ import annotations

from typing import Any

from bench.device.side_by_side import Standing
from bench.device.store import Model, Results, Row, Run

DEVICE = "NVIDIA H100"
LINKED = {"rnn_fwd": 90.0, "rnn_ends": 4.0}


def run(name: str, date: str, commit: str, **more: Any) -> Run:
    versions = {"triton": "3.6.0", "jax": "0.11.2"}
    return Run(name, date, DEVICE, "sm_90", commit, versions=versions, **more)


def time(of: str, family: str, program: str, way: str, us: float | None = None, **more: Any) -> Row:
    calls = () if us is None else (us * 1.02, us)
    return Row(of, "time", family, program, "forward", "full", way, us=calls, **more)


def right(family: str, program: str, error: float | None = None, way: str = "ours", problem: str = "") -> Row:
    allowed = None if error is None else 1e-3
    return Row("b2", "right", family, program, "forward", "small", way, error=error, allowed=allowed, problem=problem)


def figure(name: str, values: tuple[float, ...], unit: str, **said: float) -> Row:
    return Row("b2", "figure", "device", name, us=values, unit=unit, said={k.replace("__", "."): said[k] for k in said})


ROWS = (
    time("a1", "loops", "rnn", "jit", 5000.0),
    time("a1", "loops", "rnn", "ours", 200.0, busy=180.0, hash="old"),
    time("a1", "loops", "removed_scan", "ours", 20.0, hash="old"),
    time("a1", "rest", "softmax", "jit", 30.0, busy=10.0, launches=1.0, error=0.0),
    time("a1", "rest", "softmax", "ours", 36.0, busy=9.0, launches=1.0, error=1e-8, hash="s1", left=0),
    time("b2", "loops", "rnn", "jit", 4000.0, launches=512.0),
    time("b2", "loops", "rnn", "jit, graphs", 1600.0, launches=512.0),
    time("b2", "loops", "rnn", "ours", 100.0, busy=94.0, launches=2.0, kernels=LINKED, error=2e-7, hash="r2", left=0),
    time("b2", "loops", "gru", "jit", problem="TimeoutError: took more than 60 s"),
    time("b2", "loops", "gru", "ours", 130.0, busy=120.0, hash="g1", published=40.0, source="cuDNN 9 | its page"),
    time("b2", "contractions", "swiglu", "jit", 450.0, busy=446.0, launches=9.0),
    time("b2", "contractions", "swiglu", "ours", 587.0, busy=580.0, hash="w1", left=6, kernels={"dots": 530.0}),
    time("b2", "contractions", "swiglu", "all ours", 1354.0, busy=1350.0, hash="w2", left=0),
    time("b2", "contractions", "swiglu", "torch", 1230.0),
    time("b2", "contractions", "attention", "jit", 212.0, busy=207.0),
    time("b2", "contractions", "attention", "ours", 228.0, busy=221.0, hash="t1"),
    time("b2", "contractions", "attention", "torch", 215.0),
    time("b2", "contractions", "attention", "cuDNN attention", 110.0),
    right("loops", "rnn", 2e-7),
    right("loops", "gru", 0.03),
    right("rest", "softmax", float("nan"), way="jit"),
    right("rest", "sort", problem="CompilerBug: no such axis"),
    right("rest", "fft", problem="XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"),
    figure("launch", (2.0, 2.2, 2.6), "µs", machines__launch=3.0, cycles__launch=2.3),
    figure("bytes", (2900.0, 3000.0), "GB/s", target__memory_rate=3000.0),
    figure("shuffle", (23.0,), "cycles"),
)
MODELS = (
    Model("r2", "sm_90", 90.0, {"rnn_fwd": 88.0, "rnn_ends": 2.0}, {"rnn_fwd": "latency", "rnn_ends": "memory"}),
    Model("g1", "sm_90", 60.0, {"gru_fwd": 60.0}, {"gru_fwd": "latency"}),
    Model("w1", "sm_90", 100.0, {"dots": 100.0}, {"dots": "tensor"}),
    Model("w2", "sm_90", 1400.0, {"dots": 1400.0}, {"dots": "tensor"}),
    Model("s1", "sm_90", 9.5, {"softmax": 9.5}, {"softmax": "memory"}),
)


def results() -> Results:
    found = Results()
    found.add(run("a1", "2026-11-26T01:00:00Z", "5c543a26429195", taken_over="measured-loops.md"))
    found.add(run("b2", "2026-11-27T05:00:00Z", "aa3149c0123456"))
    found.add(Run("c3", "2026-11-27T06:00:00Z", "stand-in", "sm_90", rehearsed=True))
    for each in (*ROWS, *MODELS, Row("c3", "time", "loops", "rnn", "forward", "full", "ours", us=(1.0,))):
        found.add(each)
    return found


def standing(of: str = "b2") -> Standing:
    """The kernels of the RNN are others today, those of attention are not known, and a program is new."""
    keys = [row.key for row in ROWS if row.program != "removed_scan"]
    hashes = {row.key: row.hash for row in ROWS if row.program != "attention"}
    hashes[ROWS[1].key] = "r3"
    return Standing(hashes, frozenset([*keys, ("time", "loops", "lstm", "forward", "full", "ours")]), of)
