"""The iteration space of outputs: shared axes, and what one program has to hold whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.space import Space, feeds_a_reduction, layout_of, lead_of, match_dims, space_of
from jaxpr2triton.normalize.passes import normalize

Shape = tuple[int, ...]


def space(fn: Callable[..., Any], *shapes: Shape) -> Space | None:
    avals = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    jaxpr = normalize(jax.make_jaxpr(fn)(*avals)).jaxpr
    return space_of(jaxpr, jaxpr.outvars, Classes(jaxpr.eqns))


def described(found: Space | None) -> str:
    """`d0 d1* | d0 d1 / d0`: axes (a star for inner ones), then the place of each output."""
    if found is None:
        return "none"
    axes = " ".join(f"{axis}{'*' if axis in found.inner else ''}" for axis in found.axes)
    return f"{axes} | {' / '.join(' '.join(map(str, place)) for place in found.places)}"


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (lambda x: x * 2, [(3, 4)], "d0 d1 | d0 d1"),
        (lambda x: x * 2, [(3, 1, 4)], "d0 d2 | d0 0 d2"),
        (lambda x: x.sum(1), [(3, 4)], "d0 | d0"),
        (lambda x: x.sum(), [(3, 4)], " | "),
        (jax.nn.softmax, [(3, 4)], "d0 d1* | d0 d1"),
        (lambda x: jax.nn.softmax(x, 0), [(3, 4)], "d0* d1 | d0 d1"),
        (lambda x: x - x.mean(), [(3, 4)], "d0* d1* | d0 d1"),
        (lambda x: (x * 2, x.sum(1)), [(3, 4)], "d0 d1* | d0 d1 / d0"),
        (lambda x: (x * 2, x.sum(0)), [(3, 4)], "d0* d1 | d0 d1 / d1"),
        (lambda x: (x.sum(0), x.sum(1)), [(3, 4)], "none"),
        (lambda x: (x.sum(0), x.sum(1)), [(4, 4)], "d0 | d0 / d0"),  # nothing says that these are different
        (lambda x: (x * 2, x.T + 1), [(3, 4)], "none"),
        (lambda x, y: (x * 2, y + 1), [(3, 4), (3, 4)], "d0 d1 | d0 d1 / d0 d1"),
        (lambda x, y: (x * 2, y + 1), [(3, 4), (4, 3)], "none"),
        (lambda x: x[:, None] * x[None, :] - x.sum(), [(5,)], "d0* d1* | d0 d1"),
    ],
)
def test_space(fn: Callable[..., Any], shapes: list[Shape], expected: str) -> None:
    assert described(space(fn, *shapes)) == expected


def test_parallel_and_held() -> None:
    found = space(jax.nn.softmax, (3, 4, 5))
    assert found is not None
    assert (found.parallel, found.held) == (12, 5)
    (peak, total) = found.graph.of_kind(Reduce)
    assert {str(axis) for axis in found.wanted_whole(peak)} == {"d2"}


def test_reductions_over_one_dimension_share_an_axis() -> None:
    found = space(lambda x: (x.sum(1) + x.max(1), jnp.exp(x).sum(1)), (3, 4))
    assert found is not None
    assert len({axes for axes in found.chosen.values()}) == 1


def test_softmax_reduces_along_the_axis_of_its_output() -> None:
    found = space(jax.nn.softmax, (3, 4))
    assert found is not None
    assert {axes for axes in found.chosen.values()} == {(found.axes[1],)}


def test_an_axis_in_use_is_not_taken_again() -> None:
    """In `x[i, j] * x.sum(1)[j]` the sum runs along the dimension of j, at j: it needs an axis of its own."""
    found = space(lambda x: x * x.sum(1)[None, :], (4, 4))
    assert found is not None
    ((own,),) = found.chosen.values()
    assert own not in found.axes and own.size == 4


@pytest.mark.parametrize(
    ("shapes", "lead"),
    [([(3,), (3, 4)], 1), ([(3, 4), (3, 4)], 0), ([(3, 1, 1), (3, 4)], 1), ([(), (1, 1)], 0), ([(3,), (5,)], 1)],
)
def test_the_lead_has_the_most_dimensions(shapes: list[Shape], lead: int) -> None:
    assert lead_of(shapes) == lead


@pytest.mark.parametrize(
    ("fn", "matched"),
    [
        (lambda x: (x + 1, x.sum(0)), {0: 1}),
        (lambda x: (x + 1, x.sum(1)), {0: 0}),
        (lambda x: (x + 1, x[:, :1] * 2), {0: 0}),
        (lambda x: (x + 1, x[:2] * 2), {1: 1}),  # four columns, but other rows
        (lambda x: (x + 1, x.T * 2), {0: 1}),  # in order, so only one
    ],
)
def test_dimensions_match_by_class(fn: Callable[..., Any], matched: dict[int, int]) -> None:
    jaxpr = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct((4, 4), np.float32)).jaxpr
    lead, other = (layout_of(atom, Classes(jaxpr.eqns)) for atom in jaxpr.outvars)
    assert match_dims(lead, other) == matched


def test_which_reductions_feed_another() -> None:
    def fn(x: Any) -> Any:
        return lax.rsqrt(((x - x.mean(1, keepdims=True)) ** 2).mean(1)) + x.max(1)

    found = space(fn, (3, 4))
    assert found is not None
    feeding = feeds_a_reduction(found.graph)
    assert [node.eqn.primitive.name for node in found.graph.of_kind(Reduce) if node in feeding] == ["reduce_sum"]
    assert len(list(found.graph.of_kind(Reduce))) == 3
