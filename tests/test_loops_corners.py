"""Corners of loops: no steps, one step, odd bounds, odd states, and loops and branches in each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.compiling import differences

RNG = np.random.default_rng()


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: Any, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype)


def halved(c: Any, x: Any) -> tuple[Any, Any]:
    return c * 0.5 + x, c * x


def scanned(**options: Any) -> Callable[..., Any]:
    return lambda c, xs: lax.scan(halved, jnp.sin(c), xs, **options)


def slopes(fn: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    return jax.grad(lambda *args: sum(jnp.sin(out).sum() for out in jax.tree.leaves(fn(*args))), argnums or (0, 1))


def counted(x: Any, start: Any, stop: Any) -> Any:
    return lax.fori_loop(start, stop, lambda i, c: c * 0.5 + i, x)


def between(start: int, stop: int) -> Callable[..., Any]:
    return lambda x: counted(jnp.sin(x), start, stop)


def mixed(state: dict[str, Any], xs: Any) -> Any:
    def step(c: dict[str, Any], x: Any) -> Any:
        key, now = jax.random.split(c["key"])
        c = {
            "key": key,
            "bool": c["bool"] ^ (x > 0),
            "int8": c["int8"] * jnp.int8(3) + jnp.int8(7),
            "uint32": (c["uint32"] << 5) ^ (c["uint32"] >> 3) + jnp.uint32(12345),
            "int64": c["int64"] * 6364136223846793005 + 1442695040888963407,
            "bfloat16": c["bfloat16"] * jnp.bfloat16(0.5) + x.astype(jnp.bfloat16),
            "float16": c["float16"] * jnp.float16(0.5) + x.astype(jnp.float16),
            "float32": jnp.where(c["bool"], c["float32"] * 0.5, x) + jax.random.normal(now, (3,), jnp.float32),
            "float64": jnp.sin(c["float64"]) + x,
        }
        return c, {name: c[name] for name in ("bool", "int8", "bfloat16", "float64")}

    last, states = lax.scan(step, state, xs)
    return jax.random.key_data(last.pop("key")), last, states


MIXED = {
    "key": jax.random.key(int(RNG.integers(2**31))),
    "bool": normal(3) > 0,
    "int8": integers(np.int8, 3),
    "uint32": integers(np.uint32, 3),
    "int64": integers(np.int64, 3),
    "bfloat16": normal(3).astype(jnp.bfloat16),
    "float16": normal(3).astype(np.float16),
    "float32": normal(3),
    "float64": RNG.standard_normal(3),
}


def trees(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return {"h": c["h"] * 0.5 + x["a"], "n": (c["n"][0] + 1, None)}, [c["h"] * x["b"][0]]

    return lax.scan(step, {"h": c, "n": (0, None)}, {"a": xs, "b": (xs * 2,)})


def branches(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (lax.cond(x.sum() > 0, lambda c: jnp.sin(c) * x, lambda c: c + x, c), c), c, xs)


def switches(c: Any, xs: Any, which: Any) -> Any:
    """Numbers of branches that do not exist are the nearest that do."""
    ways = (lambda c, x: c + x, lambda c, x: jnp.sin(c) * x, lambda c, x: c.at[0].set(x[1]))
    return lax.scan(lambda c, now: (lax.switch(now[1], ways, c, now[0]), c), c, (xs, which))


def while_scan_while(x: Any) -> Any:
    def inner(c: Any, _: Any) -> Any:
        x, n = c
        return lax.while_loop(lambda s: s[0] < 3.0, lambda s: (s[0] * 1.7 + 0.1, s[1] + 1), (x * 0.3 + 0.01, n)), x

    def step(state: Any) -> Any:
        x, n, i = state
        (x, n), xs = lax.scan(inner, (x, n), None, length=3)
        return x * 0.5 + xs.sum() * 0.01, n, i + 1

    return lax.while_loop(lambda s: s[2] < 4, step, (x, 0, 0))


def root(a: Any) -> Any:
    def solve(f: Any, start: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), start)

    return jax.value_and_grad(lambda a: lax.custom_root(lambda y: y * y - a, 1.0, solve, lambda g, y: y / g(1.0)))(a)


def keys_in_and_out(key: Any) -> Any:
    def step(key: Any, now: Any) -> Any:
        return jax.random.fold_in(key, 3), (jax.random.normal(now), jax.random.split(key))

    key, (draws, keys) = lax.scan(step, key, jax.random.split(key, 4))
    return jax.random.key_data(key), draws, jax.random.key_data(keys)


def own_constants(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c @ WEIGHTS + x) * jnp.arange(3.0), c), c, xs)


WEIGHTS = normal(3, 3)
CELLS = (normal(3), normal(7, 3))
NUMBER = RNG.uniform(0.5, 2.0, ()).astype(np.float32)

# function, arguments, kernels
CORNERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "reverse": (scanned(reverse=True), CELLS, 1),
    "reverse_unrolled": (scanned(reverse=True, unroll=3), CELLS, 1),
    "all_unrolled": (scanned(unroll=True), CELLS, 1),
    "split_transpose": (slopes(scanned(_split_transpose=True)), CELLS, 1),
    "no_steps": (scanned(), (normal(3), normal(0, 3)), 1),
    "no_steps_gradient": (slopes(scanned()), (normal(3), normal(0, 3)), 1),
    "one_step_reverse": (scanned(reverse=True, unroll=4), (normal(3), normal(1, 3)), 1),
    "one_step_gradient": (slopes(scanned()), (normal(3), normal(1, 3)), 1),
    "no_carry": (lambda xs: lax.scan(lambda _, x: ((), jnp.sin(x).sum()), (), xs), (normal(7, 3),), 1),
    "no_stores": (lambda c, xs: lax.scan(lambda c, x: (jnp.sin(c) + x, None), c, xs), CELLS, 1),
    "map": (lambda xs: lax.map(lambda x: jnp.sin(x) / jnp.sum(x * x), xs), (normal(7, 3),), 1),
    "mixed": (mixed, (MIXED, normal(5, 3)), 1),
    "trees": (trees, CELLS, 1),
    "own_constants": (own_constants, CELLS, 1),
    "from_two": (between(2, 7), (normal(4),), 1),
    "from_below_zero": (between(-3, 4), (normal(4),), 1),
    "backward_bounds": (between(5, 2), (normal(4),), 1),
    "traced_bounds": (counted, (normal(4), np.int32(-2), np.int32(5)), 1),
    "traced_backward_bounds": (counted, (normal(4), np.int32(5), np.int32(-2)), 1),
    "narrow_bounds": (counted, (normal(4), np.int8(-2), np.int8(5)), 1),
    "fori_gradient": (slopes(between(-1, 4), 0), (normal(4),), 1),  # no state is wanted
    "branches": (branches, CELLS, 1),
    "switches": (switches, (*CELLS, RNG.integers(-2, 5, 7)), 1),
    "while_scan_while": (while_scan_while, (NUMBER,), 1),
    "root": (root, (NUMBER,), 1),
    "keys": (keys_in_and_out, (jax.random.key(int(RNG.integers(2**31))),), 1),
    "associative": (lambda xs: lax.associative_scan(lambda a, b: a * 0.5 + b, xs), (normal(7, 3),), 1),
}
DIGITS = {"bfloat16": 8e-3, "float16": 1e-3, "float64": 1e-12}


@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str) -> None:
    function, args, kernels = CORNERS[name]
    with jax.enable_x64(name == "mixed"):
        program = j2t.transpile(function, *args)
        assert (len(program.kernels), program.leftovers) == (kernels, ()), program.explain()
        ours, theirs = jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(function)(*args))
        for place, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
            digits = DIGITS.get(wanted.dtype.name, 1e-5)
            assert differences([mine], [wanted], digits) == [], place
