"""Drawn loops over arrays that no program of a small device holds: stencils, sums, products, looked-up elements.

    python -m tests.drawn.spread --loops 1500 --seed 1      values, and gradients of every third, in the interpreter
    python -m tests.drawn.spread --loops 1500 --machine     compiled, on the PTX simulator

Each is a text that can be pasted. The drawn programs beside this (`generator.py`, `loop_families.py`) have dimensions
of every size, which programs seldom can share out; here they can, and what a step does is what such loops do.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from tests.spread_programs import few_numbers_each

ROWS, COLUMNS = (8, 12, 16, 24), (3, 4, 8)
# by the kind of their result: a number, a column of n, a row of m, a matrix of both, a square of n
MADE: dict[str, Sequence[str]] = {
    "s": (
        "{v}.sum()", "{v}.max()", "{M}.mean()", "jnp.dot({v}, {v})", "{v}[{i}]", "jnp.sin({s})", "{s} * {s}",
        "{M}.min()", "{Q}.sum() / 50", "({v} > 0.1).any() * 1.0", "{w}.sum()", "{v}[{v}.argmax()]",
    ),
    "v": (
        "jnp.roll({v}, {k})", "jnp.pad({v}, 1)[2:] - {v}", "{v}[::-1]", "jnp.sin({v})", "{v} * {v}", "{v} + {s}",
        "{M}.sum(1)", "{M}.max(1)", "{Q} @ {v}", "{M} @ {w}", "{v}[places]", "jnp.where({v} > {s}, {v}, {v})",
        "{v} / (1 + jnp.abs({v}).sum())", "{Q}.min(0)", "jnp.cumsum({v}) / 9", "{M}[:, {j}]", "{v} + {v}",
        "matrix @ {v}", "{v}.at[{i}].add({s})", "jnp.diag({Q})", "lax.dynamic_slice({v}, (jnp.int32({k}),), (n,))",
    ),
    "w": ("{M}.sum(0)", "{M}.max(0)", "{v} @ {M}", "jnp.tanh({w})", "{M}[{i}]", "{w} * {s}", "{w} + {w}"),
    "M": (
        "jnp.roll({M}, {k}, 0)", "jnp.roll({M}, 1, 1)", "{M} * {M}", "{v}[:, None] * {w}[None, :]", "jnp.cos({M})",
        "{M} + {v}[:, None]", "{M} * {s}", "{Q} @ {M}", "{M}[::-1]", "{M} - {M}.mean(0)", "jax.nn.softmax({M}, 0)",
        "{M}[places]", "jnp.roll({M} * {M}, 1, 0) - {M}", "{M}.at[{i}, {j}].add({s})", "matrix.T @ {M}",
    ),
    "Q": ("{v}[:, None] - {v}[None, :]", "{Q}.T", "jnp.sin({Q})", "{M} @ {M}.T", "{Q} * matrix"),
}  # fmt: skip
SHAPES = {"s": "()", "v": "(n,)", "w": "(m,)", "M": "(n, m)", "Q": "(n, n)"}


def drawn(seed: int) -> str:
    """A function `f` of what its loop begins with, as text; `args`, and how much a program holds."""
    rng = random.Random(seed)
    n, m = rng.choice(ROWS), rng.choice(COLUMNS)
    carried = [rng.choice("vvM"), *rng.choices("svMw", k=rng.randrange(3))]
    names: dict[str, list[str]] = {kind: [] for kind in SHAPES}
    for number, kind in enumerate(carried):
        names[kind].append(f"c{number}")
    names["s"].append("x")
    lines: list[str] = []

    def value(kind: str, deep: int = 0) -> str:
        """The name of one that is there, or of a new one."""
        if names[kind] and (deep > 2 or rng.random() < 0.6):
            return rng.choice(names[kind])
        return made(kind, deep + 1)

    def made(kind: str, deep: int = 0) -> str:
        text = rng.choice(MADE[kind] if deep < 4 else LAST[kind])
        while any(f"{{{each}}}" in text for each in "svwMQ"):
            each = next(each for each in "svwMQ" if f"{{{each}}}" in text)
            text = text.replace(f"{{{each}}}", value(each, deep), 1)
        for letter, most in (("i", n), ("j", m), ("k", n)):
            text = text.replace(f"{{{letter}}}", str(rng.randrange(most)))
        names[kind].append(f"t{len(lines)}")
        lines.append(f"        t{len(lines)} = {text}")
        return names[kind][-1]

    afters = []
    for kind in carried:
        for _ in range(rng.randrange(3)):
            made(rng.choice("svM"))
        afters.append(f"jnp.tanh({made(kind)})" if rng.random() < 0.8 else f"0.5 * {value(kind)}")
    shown = [rng.choice([name for kind in "svM" for name in names[kind]]) for _ in range(rng.randrange(3))]
    before, after = ("".join(f"{each}, " for each in part) for part in ((f"c{p}" for p in range(len(carried))), afters))
    loop = rng.choice(("scan", "scan", "scan", "while"))
    programs = rng.choice((2, 4, 8))
    part = sum({"s": 1, "w": m, "v": n / programs, "M": n * m / programs}[kind] for kind in carried)
    numbers = int(part) + rng.choice((2, 6))
    head = [
        f"# n, m = {n}, {m}; a program holds {numbers} numbers, of {programs} programs",
        f"# kinds: {''.join(carried)}",
        "def f(*carry):",
    ]
    if loop == "while":
        inner = ["    def step(both):", "        count, carry = both", f"        {before}= carry"]
        inner.append("        x = count * 0.1")
        test = f"(both[0] < {rng.randrange(2, 6)}) & (jnp.abs(both[1][0]).sum() < 1e3)"
        end = [
            f"        return count + 1, ({after})",
            f"    return lax.while_loop(lambda both: {test}, step, (0, carry))",
        ]
    else:
        inner = ["    def step(carry, x):", f"        {before}= carry"]
        turned = rng.choice(("", ", reverse=True"))
        end = [
            f"        return ({after}), ({''.join(f'{name}, ' for name in shown)})",
            f"    return lax.scan(step, carry, jnp.arange({rng.randrange(2, 6)}) * 0.3{turned})",
        ]
    return "\n".join([*head, *inner, *lines, *end])


LAST = {"s": ("x * 0.5",), "v": ("jnp.arange(n) * 0.1",), "w": ("jnp.arange(m) * 0.2",),
        "M": ("jnp.ones((n, m)) * x",), "Q": ("matrix * x",)}  # fmt: skip


def check(text: str, backend: str = "interpret", gradients: bool = False) -> int:
    """Compare with `jax.jit`; how many kernels there are whose programs meet."""
    n, m, numbers, programs = _sizes(text)
    rng = np.random.default_rng(n + m)
    matrix = (rng.standard_normal((n, n)) / n).astype(np.float32)
    sizes = {"n": n, "m": m, "matrix": matrix, "places": rng.permutation(n)}
    namespace: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, **sizes}
    exec(text, namespace)
    shapes = [eval(SHAPES[kind], {"n": n, "m": m}) for kind in text.split("\n")[1].removeprefix("# kinds: ")]
    args = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    function = _gradient(namespace["f"], len(args)) if gradients else namespace["f"]
    with jax.default_matmul_precision("highest"), few_numbers_each(numbers, programs):
        kernels = j2t.transpile(function, *args).kernels
        found = j2t.fuse(function, backend=backend)(*args)
        expected = jax.jit(function)(*args)
        moved = [arg * (1 + 1e-6 * rng.standard_normal(arg.shape).astype(np.float32)) for arg in args]
        beside = jax.jit(function)(*moved)
    for mine, other, near in zip(*map(jax.tree.leaves, (found, expected, beside)), strict=True):
        largest = max(1.0, float(np.abs(other).max())) if other.size else 1.0
        rounded = float(np.abs(near - other).max()) if other.size else 0.0
        if rounded < 1e-3 * largest:  # else rounding decides
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=2e-5 * largest + 10 * rounded)
    return sum(kernel.meets for kernel in kernels)


def _gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        return sum(jnp.sum(jnp.sin(each)) for each in jax.tree.leaves(function(*args)))

    return jax.grad(loss, tuple(range(count)))


def _sizes(text: str) -> tuple[int, int, int, int]:
    words = text.split("\n")[0].replace(",", " ").replace(";", " ").split()
    n, m, numbers, programs = (int(word) for word in words if word.isdigit())
    return n, m, numbers, programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--machine", action="store_true")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(options.first, options.first + options.loops):
        text = drawn(1_000_000 * options.seed + number)
        gradients = number % 3 == 2 and "while_loop" not in text
        try:
            meets = check(text, "machine" if options.machine else "interpret", gradients)
        except Exception:  # whatever it is, it is printed, and counts
            counts["failures"] += 1
            print(f"seed {options.seed}, loop {number}:\n{text}\n{traceback.format_exc(limit=-2)}", flush=True)
            continue
        counts["loops"] += 1
        counts["with kernels whose programs meet"] += meets > 0
    print(f"seed {options.seed}:", ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
