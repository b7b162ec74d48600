"""What `fuse` costs over `jax.jit`: at the first call of a fresh process, and at every later one.

    python -m bench.overhead

On a machine with a CUDA device the first call is run; on any other it is lowered for CUDA, which compiles the kernels
or finds them in the cache on disk, but XLA's own compiler for CUDA is not part of the times. Later calls run wherever
JAX runs. Importing the package is part of the first call's price, so nothing here imports it before.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

KINDS = ("jit", "fuse")
PROCESSES = 5
CALLS, REPEATS = 2000, 15


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale + bias


def compiled_by(kind: str) -> Callable[..., Any]:
    """The layer norm under `jax.jit`, or under `fuse`."""
    if kind == "jit":
        return jax.jit(layer_norm)
    return importlib.import_module("jaxpr2triton").fuse(layer_norm)


def first_call(kind: str) -> float:
    """Seconds from the decorator to the result, JAX and its backend being there already."""
    args = (jnp.ones((128, 64)), jnp.ones(64), jnp.zeros(64))
    jax.block_until_ready(jax.jit(lambda x: x + 1)(args[0]))
    started = time.perf_counter()
    function = compiled_by(kind)
    if jax.default_backend() == "gpu":
        jax.block_until_ready(function(*args))
    else:
        function.trace(*args).lower(lowering_platforms=("cuda",))  # type: ignore[attr-defined]  # of jitted functions
    return time.perf_counter() - started


def fresh_process(kind: str) -> float:
    """The same, in a process of its own."""
    command = [sys.executable, "-m", "bench.overhead", kind]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def later_call(kind: str) -> float:
    """Microseconds of one call on small arrays, when everything is compiled: the best of several rounds."""
    function = compiled_by(kind)
    args = (jnp.ones((1, 8)), jnp.ones(8), jnp.zeros(8))
    jax.block_until_ready(function(*args))
    return min(timeit.repeat(lambda: function(*args), number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def main() -> None:
    if sys.argv[1:]:
        print(first_call(sys.argv[1]))
        return
    fresh_process("fuse")  # fills the cache on disk
    first = {kind: statistics.median(fresh_process(kind) for _ in range(PROCESSES)) for kind in KINDS}
    later = {kind: later_call(kind) for kind in KINDS}
    print(f"jax {jax.__version__} on {jax.default_backend()}")
    print(f"{'layer norm':32}{'jit':>12}{'fuse':>12}{'more':>12}")
    for title, times, unit in (("first call, warm cache on disk", first, "s"), ("a later call", later, "µs")):
        jit, fuse = times["jit"], times["fuse"]
        print(f"{title:32}{jit:>9.3f} {unit:2}{fuse:>9.3f} {unit:2}{fuse - jit:>+9.3f} {unit:2}")


if __name__ == "__main__":
    main()
