"""How long a call takes, and for how long the device is busy with it."""

from __future__ import annotations

import glob
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

SECONDS = 0.02  # of a round of calls that are not waited for
ROUNDS = 5
LONG = 0.05  # seconds of a call from which on fewer rounds are taken …
VERY_LONG = 0.4  # … and one call is all there is
NAMED = 4  # kernels, the longest ones
PROFILED = 3  # calls

Call = Callable[[], Any]
Wait = Callable[[Any], Any]


@dataclass(frozen=True)
class Busy:
    """What the profiler saw of a call."""

    us: float
    launches: float  # kernels and copies
    kernels: dict[str, float]  # microseconds of the longest ones


def times_of(call: Call, wait: Wait, once: float | None = None) -> tuple[float, ...]:
    """Microseconds of one call among many that are not waited for, a number for each round; it was called before.

    `once` is how long a call was seen to take, if that is known; one that takes very long is not made again.
    """
    if once is None or once < VERY_LONG:
        start = time.perf_counter()
        wait(call())
        once = time.perf_counter() - start
    if once >= VERY_LONG:
        return (once * 1e6,)
    count = int(np.clip(SECONDS / max(once, 1e-6), 1, 1000))
    found = []
    for _ in range(ROUNDS if once < LONG else 2):
        start = time.perf_counter()
        for _ in range(count):
            result = call()
        wait(result)
        found.append((time.perf_counter() - start) / count * 1e6)
    return tuple(found)


def busy(call: Call, calls: int = PROFILED) -> Busy | None:
    """Of a call, as the profiler of JAX sees it; None where it sees no device."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(calls):
                result = call()
            jax.block_until_ready(result)
        files = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        planes = [plane for file in files for plane in jax.profiler.ProfileData.from_file(file).planes]
        lines = [line for plane in planes if "/device:GPU" in plane.name for line in plane.lines]
        events = [event for line in lines if line.name.startswith("Stream") for event in line.events]
        took: Counter[str] = Counter()
        for event in events:
            took[short(event.name)] += event.duration_ns / calls / 1e3
    if not took:
        return None
    return Busy(took.total(), len(events) / calls, dict(took.most_common(NAMED)))


def short(name: str) -> str:
    """Names of a library's kernels are hundreds of letters long."""
    return re.sub(r"<.*", "", name.removeprefix("void "))[:60]
