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


def looked_up(x: Any, i: Any, j: Any) -> Any:
    return carried(lambda x: x[i, j] + 1)(x)


def looked_up_flags(x: Any, i: Any, j: Any) -> Any:
    return carried(lambda x: x[i, j] ^ x)(x)


def looked_up_for_long(x: Any, i: Any, j: Any) -> Any:
    return lax.while_loop(lambda x: x.sum() < 100, lambda x: jnp.abs(x[i, j]) + 1, x)


def positive_diagonal(x: Any) -> Any:
    def step(x: Any) -> Any:
        place = jnp.diag_indices_from(x)
        return x.at[place].set(jnp.maximum(x[place], 0.5)) * 0.5 + x.T

    return carried(step)(x)


def rows_beside_the_diagonal(x: Any, k: Any) -> Any:
    """Whether a place lies on the diagonal is a quotient of a number that is known to be in range."""

    def step(x: Any) -> Any:
        place = jnp.diag_indices_from(x)
        y = x.at[place].set(jnp.maximum(x[place], 0.25))
        return lax.dynamic_update_slice(y, lax.dynamic_slice(y, (k % 2, k % 3), (2, 2)) * 0.5, (k % 3, k % 2))

    return carried(step)(x)


def blown_along(image: Any, wind: Any) -> Any:
    """Semi-Lagrangian advection."""
    here = jnp.stack(jnp.meshgrid(*map(jnp.arange, image.shape), indexing="ij"))
    return carried(lambda c: jax.scipy.ndimage.map_coordinates(c, list(here - wind), 1, mode="nearest"))(image)


def samples(image: Any, rows: Any, columns: Any) -> Any:
    """At more places than a tile has rows, or columns."""

    def step(c: Any, _: Any) -> Any:
        found = c[rows, columns]
        return c * 0.5 + found.mean(), found

    return lax.scan(step, image, None, length=3)


def turned_faces(cube: Any, faces: Any, rows: Any, columns: Any) -> Any:
    def step(c: Any, n: Any) -> Any:
        place = faces, rows, columns
        moves = [lambda c, k=k: c.at[place].set(jnp.roll(c[place], 3 * k)) for k in (1, 2)]
        return lax.switch(n, moves, c.at[0].set(jnp.rot90(c[0]))), None

    return lax.scan(step, cube, jnp.array([0, 1, 1]))[0]


def of_rows_and_lanes(x: Any, i: Any, j: Any) -> Any:
    """One place is of a row, the other one of a lane; and both of lanes of another array."""
    return carried(lambda x: x + x[i[:, None], j] + x[i, i][:, None])(x)


def walked_along_places(x: Any, i: Any, j: Any) -> Any:
    """An inner loop reads what the outer one carries, at one place in each of its steps."""

    def step(c: Any) -> Any:
        total = lax.scan(lambda d, at: (jnp.sin(d + c[at]), None), jnp.float32(0), (i, j))[0]
        return c * 0.5 + total

    return carried(step)(x)


def integers(most: int, *shape: int) -> Any:
    return np.asarray(RNG.integers(0, most, shape), np.int32)


FACES = np.int32([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]), np.zeros(12, np.int32), np.tile(np.arange(3, dtype=np.int32), 4)
LOOKUPS = (
    Case("looked_up", looked_up, (normal(4, 4), integers(4, 4, 4), integers(4, 4, 4))),
    Case("looked_up_oblong", looked_up, (normal(3, 5), integers(3, 3, 5), integers(5, 3, 5))),
    Case("looked_up_gradient", gradient(looked_up), (normal(4, 4), integers(4, 4, 4), integers(4, 4, 4)), None),
    Case("looked_up_of_many", jax.vmap(looked_up), (normal(5, 3, 4), integers(3, 5, 3, 4), integers(4, 5, 3, 4))),
    Case("looked_up_for_long", looked_up_for_long, (normal(4, 4), integers(4, 4, 4), integers(4, 4, 4))),
    Case("positive_diagonal", positive_diagonal, (normal(3, 3),)),
    Case("positive_diagonal_jvp", jvp(positive_diagonal), (normal(3, 3),)),
    Case("rows_beside_the_diagonal", jax.vmap(rows_beside_the_diagonal), (normal(3, 4, 4), np.int32([5, 2, 0]))),
    Case("blown_along", blown_along, (normal(5, 6), normal(2, 5, 6))),
    Case("blown_along_jvp", jvp(blown_along), (normal(5, 6), normal(2, 5, 6))),
    Case("blown_along_gradient", gradient(blown_along), (normal(4, 4), normal(2, 4, 4)), None),
    Case("samples", samples, (normal(4, 6), integers(4, 12), integers(6, 12))),
    Case("samples_of_many", jax.vmap(samples, (0, None, None)), (normal(3, 4, 6), integers(4, 12), integers(6, 12))),
    Case("samples_gradient", gradient(samples), (normal(4, 6), integers(4, 12), integers(6, 12)), None),
    Case("turned_faces", turned_faces, (np.arange(54, dtype=np.int32).reshape(6, 3, 3), *FACES)),
    Case("turned_faces_of_floats", jvp(turned_faces), (normal(6, 3, 3), *FACES)),
    Case("of_rows_and_lanes", of_rows_and_lanes, (normal(5, 5), integers(5, 5), integers(5, 5))),
    Case("walked_along_places", walked_along_places, (normal(4, 6), integers(4, 5), integers(6, 5))),
    Case(
        "walked_along_places_of_many",
        jax.vmap(walked_along_places),
        (normal(3, 4, 6), integers(4, 3, 5), integers(6, 3, 5)),
    ),
    Case("flags", looked_up_flags, (normal(4, 4) > 0, integers(4, 4, 4), integers(4, 4, 4))),
    Case("halves", looked_up, (normal(4, 4).astype(np.float16), integers(4, 4, 4), integers(4, 4, 4))),
)
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


@pytest.mark.parametrize("case", CASES + LOOKUPS, ids=lambda case: case.name)
def test_places_of_what_is_carried(case: Case) -> None:
    program = j2t.transpile(case.fn, *case.args)
    if case.kernels is not None:
        assert (len(program.kernels), program.leftovers) == (case.kernels, ()), program.explain()
    found, wanted = jax.tree.leaves(program(*case.args)), jax.tree.leaves(jax.jit(case.fn)(*case.args))
    for got, want in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
