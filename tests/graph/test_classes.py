"""Which dimensions walk together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph.classes import Classes

Shape = tuple[int, ...]


def letters(fn: Callable[..., Any], *shapes: Shape) -> str:
    """The classes of inputs and outputs as letters: `ab -> a` for a row sum."""
    jaxpr = jax.make_jaxpr(fn)(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)).jaxpr
    classes = Classes(jaxpr.eqns)
    names: dict[Any, str] = {}

    def spelled(variables: Any) -> str:
        return ", ".join(
            "".join(names.setdefault(kind, "abcdefghij"[len(names)]) for kind in classes.of(var)) for var in variables
        )

    inputs = spelled(jaxpr.invars)
    return f"{inputs} -> {spelled(jaxpr.outvars)}"


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (lambda x, y: x + y, [(3, 4), (3, 4)], "ab, ab -> ab"),
        (lambda x: x.sum(1), [(3, 4)], "ab -> a"),
        (lambda x: x.sum(0), [(3, 4)], "ab -> b"),
        (lambda x: lax.argmax(x, 0, np.int32), [(3, 4)], "ab -> b"),
        (lambda x: x - x.max(1, keepdims=True), [(3, 4)], "ab -> ab"),
        (lambda x: x.T, [(3, 4)], "ab -> ba"),
        (lambda x: x.T + x, [(3, 3)], "aa -> aa"),
        (lambda x: lax.broadcast_in_dim(x, (3, 4), (1,)), [(4,)], "a -> ba"),
        (lambda x: lax.broadcast_in_dim(x, (3, 4), (0, 1)), [(3, 1)], "ab -> ac"),
        (lambda x, y: x[:, None] + y[None, :], [(3,), (4,)], "a, b -> ab"),
        (lambda x: lax.squeeze(x, (1,)), [(3, 1, 4)], "abc -> ac"),
        (lambda x: lax.squeeze(x, (-2,)), [(3, 1, 4)], "abc -> ac"),
        (lambda x: x.reshape(3, 2, 2), [(3, 4)], "ab -> acd"),
        (lambda x: x.reshape(12), [(3, 4)], "ab -> c"),
        (lambda x: x.reshape(3, 1, 4), [(3, 4)], "ab -> acb"),
        (lambda x: x[:, ::2], [(3, 4)], "ab -> ac"),
        (lambda x: x[::-1], [(3, 4)], "ab -> ab"),
        (lambda x, y: jnp.concatenate([x, y]), [(3, 4), (2, 4)], "ab, cb -> db"),
        (lambda x: (x.reshape(2, 6), x.reshape(2, 6) * 2), [(12,)], "a -> bc, bc"),
        (lambda x, y: (x.reshape(2, 6), y.reshape(2, 6)), [(12,), (12,)], "a, b -> cd, ef"),
        (lambda x, y: (x.reshape(2, 6), (x + y).reshape(2, 6)), [(12,), (12,)], "a, a -> bc, bc"),
        (lambda x: (lax.pad(x, 0.0, [(1, 0, 0)]), lax.pad(-x, 1.0, [(1, 0, 0)])), [(4,)], "a -> b, b"),
        (lambda x: (lax.pad(x, 0.0, [(1, 0, 0)]), lax.pad(x, 0.0, [(0, 1, 0)])), [(4,)], "a -> b, c"),
    ],
)
def test_classes(fn: Callable[..., Any], shapes: list[Shape], expected: str) -> None:
    assert letters(fn, *shapes) == expected


def test_scalars_have_none() -> None:
    assert letters(lambda x, y: x * y, (), (3,)) == ", a -> a"


def test_lanes_are_not_the_places_that_all_of_them_look_up() -> None:
    """Where there are as many of both: a program would have to hold all lanes of a loop."""

    def looked_up(table: Any, places: Any) -> Any:
        return jax.vmap(lambda row: row[places.astype(np.int32)])(table)

    def written(table: Any, places: Any) -> Any:
        return jax.vmap(lambda row: row.at[places.astype(np.int32)].set(row))(table)

    assert letters(looked_up, (4, 4), (4,)) == "ab, b -> ab"
    assert letters(written, (4, 4), (4,)) == "ab, c -> ab"

    def exchanged(keys: Any) -> Any:
        place = jnp.arange(keys.size)
        return lax.scan(lambda c, i: (jnp.where(place > i, c, c[place ^ i]), None), keys, jnp.arange(3))[0]

    program = j2t.transpile(jax.vmap(exchanged), jax.ShapeDtypeStruct((1024, 1024), np.float32))
    assert [kernel.grid for kernel in program.kernels] == [(1024, 1, 1)] and not program.leftovers
