"""Axes that become one, and axes that are cut into pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.space import Space, space_of
from jaxpr2triton.ir.index import Axis, add, flatten, of_axis, scale, substitute
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.schedule.merge import alike, as_one, contiguous, find_cuts, merged
from jaxpr2triton.policy import DEFAULT_POLICY

A, B, C = Axis("a", 3), Axis("b", 4), Axis("c", 5)
WHOLE = flatten(tuple(map(of_axis, (A, B, C))), (3, 4, 5))
TURNED = flatten(tuple(map(of_axis, (A, C, B))), (3, 5, 4))


@pytest.mark.parametrize(
    ("offsets", "others", "runs"),
    [
        ([WHOLE], [], "abc"),
        ([WHOLE, WHOLE], [], "abc"),
        ([WHOLE, of_axis(C)], [], "ab c"),
        ([WHOLE, flatten((of_axis(A), of_axis(B)), (3, 4))], [], "ab c"),
        ([WHOLE, add(scale(of_axis(B), 5), of_axis(C))], [], "a bc"),
        ([WHOLE, TURNED], [], "a b c"),
        ([WHOLE], [of_axis(C)], "ab c"),
        ([scale(WHOLE, 2)], [], "abc"),
    ],
)
def test_axes_merge_where_they_lie_next_to_each_other(offsets: list[Any], others: list[Any], runs: str) -> None:
    found = merged([A, B, C], offsets, others)
    assert " ".join("".join(axis.name for axis in run) for run in found) == runs


def test_contiguous_is_about_order() -> None:
    assert contiguous(A, B, [add(scale(of_axis(A), 4), of_axis(B))], [])
    assert not contiguous(B, A, [add(scale(of_axis(A), 4), of_axis(B))], [])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_one_axis_for_several(sizes: list[int]) -> None:
    axes = [Axis(f"x{n}", size) for n, size in enumerate(sizes)]
    whole, mapping = as_one(axes, "i")
    assert (whole.name, whole.size) == ("i", int(np.prod(sizes)))
    assert substitute(flatten(list(map(of_axis, axes)), sizes), mapping) == of_axis(whole)


def space(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Space:
    jaxpr = normalize(jax.make_jaxpr(fn)(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes))).jaxpr
    found = space_of(jaxpr, jaxpr.outvars, Classes(jaxpr.eqns))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fn", "shape", "expected"),
    [
        (lambda x: x * 2, (6, 8), ""),
        (lambda x: jnp.concatenate([-x[:, 4:], x[:, :4]], 1), (6, 8), "d1u*4 + d1r"),
        (lambda x: jnp.concatenate([x, x * 2, x + 1], 1), (6, 8), "d1u*8 + d1r"),
        (lambda x: jnp.concatenate([x[:, :2], x[:, 2:] * 2], 1), (6, 8), "d1u*2 + d1r"),
        (lambda x: jnp.stack([x, -x], 2).reshape(6, 16), (6, 8), "d1r*2 + d1u"),
        (lambda x: jnp.stack([x, -x, x * 2], 2), (6, 8), "d2"),
        (lambda x: jnp.concatenate([x, x[:, :1]], 1), (6, 12), ""),  # 13 pieces would be too many
        (lambda x: jnp.pad(x, ((0, 0), (8, 8))), (6, 8), "d1u*8 + d1r"),
    ],
)
def test_axes_are_cut_where_pieces_meet(fn: Callable[..., Any], shape: tuple[int, ...], expected: str) -> None:
    found = space(fn, shape)
    cuts = find_cuts(found, found.axes, DEFAULT_POLICY)
    text = ", ".join(str(cut.index).replace(" * ", "*") for cut in cuts)
    assert text == expected.replace("d2", "d2u")
    for cut in cuts:
        assert cut.unrolled.size * cut.rest.size == cut.axis.size


def test_axes_that_a_reduction_tells_apart_stay_apart() -> None:
    found = space(lambda x: jax.nn.softmax(x, (1, 2)), (3, 4, 5, 6))
    assert [[axis.name for axis in group] for group in alike(found, found.axes)] == [["d0", "d3"], ["d1", "d2"]]
