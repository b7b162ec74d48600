"""Counts the primitives of JAX programs: in how many programs each one is, and how often in all of them.

    python -m bench.frequent                                  the named programs of the tests, and what JAX offers
    python -m bench.frequent --libraries                      and the programs in examples/libraries
    python -m bench.frequent --libraries --markdown bench/results/frequent.md

`FREQUENT` in jaxpr2triton/cli/coverage.py is the first hundred names of that page.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import CALLS, is_familiar
from jaxpr2triton.cli import coverage
from tests import loop_programs, programs

Function = Callable[..., Any]
Counted = tuple[str, Function, Sequence[Any]]  # whose it is, the function, its arguments
MOST = 100


@dataclass
class Counts:
    """What was found, over all programs."""

    programs: Counter[str] = field(default_factory=Counter)  # whose → how many
    within: Counter[str] = field(default_factory=Counter)  # primitive → programs that have it
    times: Counter[str] = field(default_factory=Counter)  # primitive → equations, those of bodies and calls included
    left_out: list[str] = field(default_factory=list)

    def ranked(self) -> list[str]:
        """Primitives, those of the most programs first; of equally many, those of the most equations."""
        return sorted(self.within, key=lambda name: (-self.within[name], -self.times[name], name))


def count(found: Iterator[Counted]) -> Counts:
    counts = Counts()
    for whose, function, args in found:
        try:
            closed = jax.make_jaxpr(function)(*args)
        except (TypeError, ValueError, NotImplementedError) as problem:  # no derivative, or other arguments
            counts.left_out.append(f"{whose}: {str(problem).partition(chr(10))[0]}")
            continue
        names = Counter(_names(closed.jaxpr))
        counts.programs[whose] += 1
        counts.within.update(names.keys())
        counts.times.update(names)
    return counts


def _names(jaxpr: Any) -> Iterator[str]:
    """JAX's own, of all equations and of what these run; calls, which are written out, are none."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name not in CALLS and is_familiar(eqn.primitive):
            yield eqn.primitive.name
        for inner in jex.jaxprs_in_params(eqn.params):
            yield from _names(getattr(inner, "jaxpr", inner))


def _gradient(function: Function, args: Sequence[Any]) -> Function:
    """Of the sum of all results that are numbers, for all arguments that are."""
    leaves, tree = jax.tree.flatten(tuple(args))
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jax.typeof(leaf).dtype, jnp.floating)]

    def loss(*found: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(places, found):
            filled[place] = value
        outputs = jax.tree.leaves(function(*jax.tree.unflatten(tree, filled)))
        return sum(jnp.sum(out) for out in outputs if jnp.issubdtype(jax.typeof(out).dtype, jnp.floating))

    return lambda *_: jax.grad(loss, tuple(range(len(places))))(*(leaves[place] for place in places))


# ------------------------------------------------------------------------------------------------------- whose they are
def of_tests() -> Iterator[Counted]:
    for whose, table in (("tests/programs.py", programs.PROGRAMS), ("tests/loop_programs", loop_programs.PROGRAMS)):
        for program in table:
            args = program.args(np.random.default_rng(0))
            yield whose, program.fn, args
            if program.grad is not None:
                yield f"{whose}, gradients", program.gradient(), args


def of_libraries() -> Iterator[Counted]:
    main = importlib.import_module("examples.libraries.__main__")
    for file, library in main.FILES.items():
        for example in importlib.import_module(f"examples.libraries.{file}").EXAMPLES:
            args = example.arguments(jax.random.key(0))
            yield library, example.function, args
            if example.gradient:
                yield f"{library}, gradients", _gradient(example.function, args), args


def of_jax() -> Iterator[Counted]:
    """Each function of JAX's own folders for what networks, samplers and solvers are made of, called once."""
    key, x, square = jax.random.key(0), jnp.linspace(0.1, 0.9, 24).reshape(4, 6), jnp.eye(4) + 0.1
    for function in _public(jax.random):
        for args in ((key, x), (key, (4, 6)), (key, x, x), (key,)):
            if _takes(function, args):
                yield "jax.random", partial(_called, function, args), ()
                break
    of_one = ((x,), (square,), (square, square[0]), (x, x))
    for whose, module in (
        ("jax.nn", jax.nn),
        ("jax.numpy.linalg", jnp.linalg),
        ("jax.scipy.special", importlib.import_module("jax.scipy.special")),
        ("jax.scipy.linalg", importlib.import_module("jax.scipy.linalg")),
    ):
        for function in _public(module):
            args = next((args for args in of_one if _takes(function, args)), None)
            if args is not None:
                yield whose, function, args
                yield f"{whose}, gradients", _gradient(function, args), args
    for function, *args in _networks(x):
        yield "networks", function, args
        yield "networks, gradients", _gradient(function, args), args


def _called(function: Function, args: Sequence[Any]) -> Any:
    return function(*args)


def _public(module: Any) -> list[Function]:
    found = inspect.getmembers(module, lambda each: callable(each) and not inspect.isclass(each))
    return [function for name, function in found if not name.startswith("_")]


def _takes(function: Function, args: Sequence[Any]) -> bool:
    """Whether the function can be called with these."""
    try:
        closed = jax.make_jaxpr(partial(_called, function, args))()
    except Exception:  # whatever a function of JAX's says of arguments that it was not made for
        return False
    return bool(closed.jaxpr.eqns)


def _networks(x: jax.Array) -> Iterator[tuple[Any, ...]]:
    """What the libraries of layers make of convolutions, windows, attention, tables and sums of segments."""
    image, filters = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 5))
    convolved = partial(
        lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    dims, strides = (1, 2, 2, 1), (1, 2, 2, 1)
    yield lambda i, f: jax.nn.relu(convolved(i, f)), image, filters
    yield lambda i, f: lax.reduce_window(convolved(i, f), -jnp.inf, lax.max, dims, strides, "VALID"), image, filters
    yield lambda i, f: lax.reduce_window(convolved(i, f), 0.0, lax.add, dims, strides, "VALID") / 4, image, filters
    yield lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), jnp.ones((2, 8, 4, 16))
    yield lambda table: jax.nn.one_hot(jnp.argmax(table, -1), 6) @ table.T, x
    yield lambda table: jnp.take(table, jnp.array([0, 2, 2]), axis=0).mean(), x
    yield lambda v: jax.ops.segment_sum(v, jnp.array([0, 0, 1, 2]), 3), x
    yield lambda v: jax.ops.segment_max(v, jnp.array([0, 0, 1, 2]), 3), x
    yield lambda v: lax.top_k(jax.nn.softmax(v), 2)[0], x
    yield lambda v: jnp.cumsum(v, -1) - jnp.cumprod(v, -1), x
    yield lambda v: lax.associative_scan(jnp.add, v), x
    yield lambda v: jnp.fft.irfft(jnp.fft.rfft(v) * 2), x
    yield lambda v: jnp.quantile(v, 0.5), x
    yield lambda v, i: v.at[i].add(1.0).at[i].max(2.0).at[i].mul(3.0), x, jnp.array([0, 1])


def page(counts: Counts) -> str:
    """The table of all primitives that were met, and where."""
    covered = coverage.covered()
    whose = ", ".join(f"{name} ({many})" for name, many in counts.programs.items())
    rows = [
        f"| {place} | `{name}` | {counts.within[name]} | {counts.times[name]} | {covered.get(name, '—')} |"
        for place, name in enumerate(counts.ranked(), 1)
    ]
    return "\n".join(
        [
            "# The primitives of JAX programs",
            "",
            f"{sum(counts.programs.values())} programs, by jax {version('jax')}: {whose}. Counted by",
            "`python -m bench.frequent --libraries --markdown bench/results/frequent.md`. Calls, which are written",
            "out, do not count, nor do the primitives that libraries define.",
            "",
            "| | primitive | programs | equations | in kernels |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.frequent", description=__doc__.splitlines()[0])
    parser.add_argument("--libraries", action="store_true", help="also of examples/libraries")
    parser.add_argument("--markdown", type=Path, help="write the page there")
    asked = parser.parse_args()

    def found() -> Iterator[Counted]:
        yield from of_tests()
        yield from of_jax()
        if asked.libraries:
            yield from of_libraries()

    counts = count(found())
    if asked.markdown:
        asked.markdown.write_text(page(counts))
    missing = [name for name in counts.ranked()[:MOST] if name not in coverage.covered()]
    print(*(f'"{name}",' for name in counts.ranked()[:MOST]))
    print(f"{len(counts.within)} primitives; of the first {MOST} are not in kernels: {', '.join(missing)}")
    print(*counts.left_out, sep="\n")


if __name__ == "__main__":
    main()
