"""Loops over carried arrays that a step reads and writes at computed places, and the ways of differentiating them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(11)
PLACES = np.asarray(RNG.permutation(6), np.int32)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kernels: int | None = 1  # None: there may be more, and what is left to XLA


def carried(step: Callable[[Any], Any], length: int = 3) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=length)[0]


def jvp(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Along the cosines of what is differentiated."""

    def both(*args: Any) -> Any:
        def of_floats(*floats: Any) -> Any:
            given = iter(floats)
            found = fn(*(next(given) if _is_float(each) else each for each in args))
            return [each for each in jax.tree.leaves(found) if _is_float(each)]

        floats = tuple(each for each in args if _is_float(each))
        return jax.jvp(of_floats, floats, tuple(map(jnp.cos, floats)))

    return both


def gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Of the sines of all results, by the first argument."""
    return jax.grad(lambda *args: sum(jnp.sin(each).sum() for each in jax.tree.leaves(fn(*args)) if _is_float(each)))


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def rows_moved(m: Any, xs: Any) -> Any:
    return lax.scan(lambda m, x: (m.at[0].set(m[5]), m[0] * x), m, xs)


def stepped_field(f: Any) -> Any:
    """A field of three parts, of which two are moved on by one place, as particles of a lattice are."""
    return carried(lambda f: jnp.sin(jnp.stack([f[0], jnp.roll(f[1], 1, 0), jnp.roll(f[2], 1, 1)])))(f)


def moved_or_looped(x: Any, i: Any) -> Any:
    branches = [lambda x: x.at[0].set(x[-1]), lambda x: lax.fori_loop(0, 2, lambda j, y: y * 0.5 + j, x)]
    return carried(lambda x: lax.switch(i, branches, x))(x)


def written_and_read_in_pieces(u: Any, v: Any, places: Any, xs: Any) -> Any:
    """What is kept of the inner loop varies along the steps of the outer one, and is read where a piece lies."""

    def step(state: Any) -> Any:
        u, v, n = state
        v = lax.fori_loop(0, 3, lambda k, v: v.at[places[k]].set(v[k] * 0.5 + places[0].astype(jnp.float32)), v)
        return lax.dynamic_update_slice(u, jnp.concatenate([xs[n][None], v[:-1]])[1:4], (7,)), v, n + 1

    return lax.while_loop(lambda state: state[2] < places[0] % 2, step, (u, v, jnp.int32(0)))


def added_then_rolled(u: Any, v: Any, xs: Any) -> Any:
    def step(i: Any, state: Any) -> Any:
        u, v, s, j = state
        v = lax.fori_loop(0, 3, lambda k, v: v.at[k].add(v[j] * 0.5 + xs[i]), v)
        v = lax.cond(s > 0, lambda u, v: jnp.roll(v, 1), lambda u, v: jnp.roll(v, 1), u, v)
        return u, v.at[7].min(v.min()), s, j

    return lax.fori_loop(0, 5, step, (u, v, u[0] * 0.5, jnp.int32(0)))


CASES = (
    Case("rows_moved", jvp(rows_moved), (normal(4, 6), normal(5))),
    Case("rows_moved_gradient", gradient(rows_moved), (normal(4, 6), normal(5)), None),
    Case("stepped_field", gradient(stepped_field), (normal(3, 5, 7),)),
    Case("moved_or_looped", jax.vmap(moved_or_looped), (normal(3, 5), np.int32([0, 1, 1]))),
    Case(
        "written_and_read_in_pieces",
        jax.vmap(written_and_read_in_pieces, (0, 0, None, None)),
        (normal(2, 6), normal(2, 6), PLACES, normal(5)),
    ),
    Case("added_then_rolled", jvp(added_then_rolled), (normal(6), normal(6), normal(5))),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_places_of_what_is_carried(case: Case) -> None:
    program = j2t.transpile(case.fn, *case.args)
    if case.kernels is not None:
        assert (len(program.kernels), program.leftovers) == (case.kernels, ()), program.explain()
    found, wanted = jax.tree.leaves(program(*case.args)), jax.tree.leaves(jax.jit(case.fn)(*case.args))
    for got, want in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
