"""How long planning takes, beside what JAX and XLA take for the same program, and how it grows with the program.

    python -m bench.planning                     # all programs, each in a process of its own
    python -m bench.planning --quick             # the smaller sizes
    python -m bench.planning chain 'mlp gradient'   # families whose names begin so
    python -m bench.planning --at-most 2.0       # exit with 1 where a large program takes longer than that, in ratio
    python -m bench.planning --markdown bench/results/planning.md     # the same, written to a file

`plan` is `transpile`; `jax` is tracing, lowering and compiling for the CPU, `ratio` the one by the other. All three are
in seconds that a processor worked, which other programs on the machine disturb less than seconds on the wall's clock.
`growth` is how many times as long `plan` takes as for the size before, for twice as many equations; `kernels` are
launches, `different` the kernels to be compiled for them. No GPU is needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from bench.straight_programs import exponential, kalman, links, stacked_layers, state_space
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.report.table import table

LARGE = 200  # equations, above which planning is compared with JAX

Made = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and the shapes of its arguments


@dataclass(frozen=True)
class Family:
    """One program in several sizes; those of `quick` take little time."""

    make: Callable[[int], Made]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _gradient(make: Callable[[int], Made], wrt: int | tuple[int, ...] = 0) -> Callable[[int], Made]:
    def made(size: int) -> Made:
        fn, args = make(size)

        def loss(*args: Any) -> Any:
            return sum(jnp.sum(out) for out in jax.tree.leaves(fn(*args)))

        return jax.grad(loss, argnums=wrt), args

    return made


def chain(operations: int) -> Made:
    """One elementwise operation after the other."""
    steps = (jnp.sin, lambda x: x * 1.01, jnp.tanh, lambda x: x + 0.5)

    def fn(x: Any) -> Any:
        for n in range(operations):
            x = steps[n % len(steps)](x)
        return x

    return fn, (f32(4096),)


def mlp(layers: int) -> Made:
    width = 64

    def fn(params: Any, x: Any) -> Any:
        for w, b in params:
            x = jax.nn.gelu(x @ w + b)
        return jnp.mean(x * x)

    return fn, ([(f32(width, width), f32(width))] * layers, f32(128, width))


def _layer_norm(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale


def _block(x: Any, p: Mapping[str, Any]) -> Any:
    """Pre-norm attention and feed-forward of one transformer layer."""
    rows, width = x.shape
    heads = 4
    y = _layer_norm(x, p["norm1"])
    q, k, v = ((y @ p[name]).reshape(rows, heads, -1).transpose(1, 0, 2) for name in ("q", "k", "v"))
    scores = jnp.where(jnp.tri(rows, dtype=bool), q @ k.transpose(0, 2, 1) / math.sqrt(width // heads), -1e9)
    mixed = (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(rows, width)
    x = x + mixed @ p["o"]
    return x + jax.nn.gelu(_layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def _block_shapes(width: int, *leading: int) -> dict[str, Any]:
    square = {name: f32(*leading, width, width) for name in ("q", "k", "v", "o")}
    norms = {name: f32(*leading, width) for name in ("norm1", "norm2")}
    return {**square, **norms, "up": f32(*leading, width, 4 * width), "down": f32(*leading, 4 * width, width)}


def _train_step(forward: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """One step of Adam on the cross entropy of the next token."""

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embedding"][tokens]
        logits = forward(params["layers"], x) @ params["embedding"].T
        known = jnp.take_along_axis(jax.nn.log_softmax(logits[:-1]), tokens[1:, None], axis=-1)
        return -known.mean()

    def step(params: Any, first: Any, second: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return value, params, first, second

    return step


def transformer(layers: int) -> Made:
    """The layers written out."""

    def forward(params: Any, x: Any) -> Any:
        for p in params:
            x = _block(x, p)
        return x

    params = {"embedding": f32(256, 64), "layers": [_block_shapes(64)] * layers}
    return _train_step(forward), (params, params, params, jax.ShapeDtypeStruct((128,), jnp.int32))


def transformer_by_scan(layers: int) -> Made:
    def forward(params: Any, x: Any) -> Any:
        return lax.scan(lambda x, p: (_block(x, p), None), x, params)[0]

    params = {"embedding": f32(256, 64), "layers": _block_shapes(64, layers)}
    return _train_step(forward), (params, params, params, jax.ShapeDtypeStruct((128,), jnp.int32))


def carries(count: int) -> Made:
    """A scan of coupled numbers, each carried on its own."""

    def fn(starts: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            following = [jnp.tanh(0.9 * c + 0.1 * state[n - 1] * x) for n, c in enumerate(state)]
            return following, following[-1]

        return lax.scan(step, starts, xs)

    return fn, ([f32(64)] * count, f32(32, 64))


def body(operations: int) -> Made:
    """A scan with a long body."""

    def fn(start: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            for n in range(operations // 4):
                c = jnp.sin(c) * 0.9 + x * (0.1 + n)
            return c, c

        return lax.scan(step, start, xs)

    return fn, (f32(64), f32(32, 64))


def _rotation(axis: Any, angle: Any) -> Any:
    """Rodrigues' formula: a 3x3 matrix."""
    zero = jnp.zeros(())
    cross = jnp.stack(
        [jnp.stack(row) for row in ((zero, -axis[2], axis[1]), (axis[2], zero, -axis[0]), (-axis[1], axis[0], zero))]
    )
    return jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * (cross @ cross)


def physics(links: int) -> Made:
    """A step of a tree of rigid bodies, link by link, as physics engines trace it."""
    parents = [-1, *((n - 1) // 2 for n in range(1, links))]

    def fn(angles: Any, speeds: Any, axes: Any, offsets: Any, inertia: Any, order: Any) -> Any:
        turned, placed, spun, torque = [], [], [], []
        for n, parent in enumerate(parents):
            local = _rotation(axes[n], angles[order[n]])
            around = turned[parent] if parent >= 0 else jnp.eye(3)
            turned.append(around @ local)
            placed.append((placed[parent] if parent >= 0 else jnp.zeros(3)) + around @ offsets[n])
            spun.append((spun[parent] if parent >= 0 else jnp.zeros(3)) + turned[n] @ axes[n] * speeds[order[n]])
            world = turned[n] @ jnp.diag(inertia[n]) @ turned[n].T
            torque.append(world @ spun[n] - jnp.cross(spun[n], world @ spun[n]) + jnp.cross(placed[n], spun[n]))
        total = jnp.stack(torque).sum(-1)
        following = speeds + 0.01 * total / (1 + inertia.sum(-1))
        return angles + 0.01 * following, following, jnp.stack(placed)

    order = jax.ShapeDtypeStruct((links,), jnp.int32)
    return fn, (f32(links), f32(links), f32(links, 3), f32(links, 3), f32(links, 3), order)


_STAGES = np.tril(np.random.default_rng(0).uniform(0.01, 0.2, (8, 8)), -1)


def ode(steps: int) -> Made:
    """A Runge-Kutta method of 8 stages, written out, for the 200 coupled states of Lorenz 96."""

    def slope(y: Any) -> Any:
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + 8.0

    def fn(y: Any) -> Any:
        for _ in range(steps):
            slopes: list[Any] = []
            for row in _STAGES:
                slopes.append(slope(y + 0.01 * sum(float(a) * k for a, k in zip(row, slopes))))
            y = y + 0.01 * sum(slopes) / 8.0
        return y

    return fn, (f32(200),)


FAMILIES: Mapping[str, Family] = {
    "chain": Family(chain, (250, 500, 1000, 2000, 4000), (250, 500, 1000)),
    "chain gradient": Family(_gradient(chain), (250, 500, 1000, 2000, 4000), (250, 500)),
    "mlp gradient": Family(_gradient(mlp), (10, 25, 50, 100, 200, 400), (10, 25, 50)),
    "transformer": Family(transformer, (1, 3, 6, 12), (1, 3)),
    "transformer by scan": Family(transformer_by_scan, (1, 3, 6, 12), (3,)),
    "carries": Family(carries, (1, 2, 4, 8, 16, 32, 64, 128), (1, 8, 16)),
    "carries gradient": Family(_gradient(carries), (1, 2, 4, 8, 16, 32, 64, 128), (1, 8, 16)),
    "body": Family(body, (250, 500, 1000), (250,)),
    "physics": Family(physics, (8, 16, 32, 64), (8,)),
    "ode": Family(ode, (1, 2, 4), (1,)),
    "ode gradient": Family(_gradient(ode), (1, 2, 4), (1,)),
    "stacked layers gradient": Family(_gradient(stacked_layers, (0, 1)), (24, 50, 100, 200), (24,)),
    "links": Family(links, (15, 30, 60), (15,)),
    "exponential": Family(exponential, (4, 8, 16), (4,)),
    "exponential gradient": Family(_gradient(exponential), (4, 8, 16), (4,)),
    "state space gradient": Family(_gradient(state_space, (0, 1)), (64, 256, 1024), (64,)),
    "kalman": Family(kalman, (8, 64, 512), (8,)),
}


def measure(name: str, size: int) -> Iterator[dict[str, float]]:
    """Seconds of planning one program in this process, and then of JAX as well; peak memory is that of planning."""
    fn, args = FAMILIES[name].make(size)
    yield from beside_jax(fn, args)


def beside_jax(fn: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[dict[str, float]]:
    """Seconds that planning takes, then of tracing, lowering and compiling too; imports and tables are there before."""
    list(_seconds(*chain(8)))
    yield from _seconds(fn, args)


def _seconds(fn: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[dict[str, float]]:
    jax.clear_caches()
    before = time.process_time()
    program = j2t.transpile(fn, *args)
    planned = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    jax.clear_caches()
    before = time.process_time()
    traced = jax.jit(fn).trace(*args)
    count = sum(1 for _ in equations(traced.jaxpr.jaxpr))
    kernels, left = len(program.kernels), len(program.leftovers)
    counts = {"equations": count, "kernels": kernels, "different": len(set(program.kernels)), "left": left}
    yield {**counts, "peak": peak, "plan": planned}
    traced.lower().compile()
    yield {**counts, "peak": peak, "plan": planned, "jax": time.process_time() - before}


def _measured(name: str, size: int, seconds: float) -> dict[str, Any]:
    """The same in a process of its own; `why` says what went wrong, if anything did.

    Where it was XLA that took too long, `jax` is missing.
    """
    command = [sys.executable, "-m", "bench.planning", "--one", name, str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode()
        return json.loads(printed.splitlines()[-1]) if printed else {"why": f"more than {seconds:g} s"}
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or ["no message"])[-1][:60]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def growth(now: Mapping[str, float], before: Mapping[str, float]) -> float:
    """How many times as long it takes, for each time that the equations are doubled."""
    doublings = math.log2(now["equations"] / before["equations"])
    return float((now["plan"] / before["plan"]) ** (1 / doublings)) if doublings > 0.2 else math.nan


def _is_slow(now: Mapping[str, Any], at_most: float) -> bool:
    return now["equations"] > LARGE and now["plan"] > at_most * now.get("jax", math.inf)


def _row(name: str, size: int, now: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[object]:
    if "why" in now:
        return [name, size, *[""] * 4, now["why"], *[""] * 4]
    grown = growth(now, before) if before else math.nan
    return [
        name,
        size,
        *(f"{now[key]:.0f}" for key in ("equations", "kernels", "different", "left")),
        f"{now['plan']:.2f}",
        *((f"{now['jax']:.2f}", f"{now['plan'] / now['jax']:.2f}") if "jax" in now else ("too long", "")),
        "" if math.isnan(grown) else f"{grown:.1f}",
        f"{now['peak']:.0f} MiB",
    ]


HEADER = (
    "program", "size", "equations", "kernels", "different", "left", "plan", "jax", "ratio", "growth", "peak memory",
)  # fmt: skip


def page(rows: Sequence[Sequence[object]], options: Sequence[str]) -> str:
    versions = f"jax {jax.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores of {processor()}"
    lines = [
        "# Planning time beside JAX's and XLA's",
        "",
        f"{datetime.date.today()}, {versions}.",
        f"To make it again: `python -m bench.planning {' '.join(options)}`. `plan` is `transpile`, `jax` is tracing,",
        "lowering and compiling the same program for the CPU in the same process, both in seconds that a processor",
        "worked; `growth` is how many times as long `plan` takes, for twice the equations; `kernels` are launches,",
        "`different` the kernels to be compiled for them.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(list(HEADER), rows)),
    ]
    return "\n".join(lines) + "\n"


def processor() -> str:
    """What Linux calls it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.machine())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of families' names; all without any")
    parser.add_argument("--quick", action="store_true", help="the smaller sizes only")
    parser.add_argument("--seconds", type=float, default=300.0, help="the most for one program")
    parser.add_argument("--at-most", type=float, default=math.inf, help="the largest ratio that is accepted")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a page as well")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help="measure one program in this process")
    options = parser.parse_args(arguments)
    if options.one:
        for found in measure(options.one[0], int(options.one[1])):
            print(json.dumps(found), flush=True)
        return 0
    rows, slow = [], False
    for name, family in FAMILIES.items():
        before: dict[str, Any] | None = None
        chosen = name.startswith(tuple(options.names) or "")
        for size in (family.quick if options.quick else family.sizes) if chosen else ():
            now = _measured(name, size, options.seconds)
            rows.append(_row(name, size, now, before))
            print(*rows[-1], sep="\t", file=sys.stderr, flush=True)
            slow |= "why" in now or _is_slow(now, options.at_most)
            before = None if "why" in now else now
            if "why" in now:
                break  # what is larger takes longer
    print(table(list(HEADER), rows, indent=""))
    if options.markdown:
        options.markdown.write_text(page(rows, sys.argv[1:] if arguments is None else arguments))
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
