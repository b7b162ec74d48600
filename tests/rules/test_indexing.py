"""Every row that moves elements: what `read` says, followed element by element, is what JAX computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

from jaxpr2triton.ir.index import Axis, constant, of_axis
from jaxpr2triton.ir.region import chunked_p, flagged_p
from jaxpr2triton.ir.windows import windowed
from jaxpr2triton.rules.indexing import TABLE, iota_place
from tests.ir.values import holds, value_of

Draw = st.DataObject
Sample = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]  # a function, and the shapes of its operands


def followed(eqn: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """The result of the equation, each element fetched from where the row says it is."""
    shape = eqn.outvars[0].aval.shape
    axes = tuple(Axis(f"x{d}", size) for d, size in enumerate(shape))
    pieces = TABLE[eqn.primitive.name].read(eqn, tuple(map(of_axis, axes)))
    result = np.empty(shape, eqn.outvars[0].aval.dtype)
    for place in itertools.product(*map(range, shape)):
        point = dict(zip(axes, place))
        chosen = next((p for p in pieces[:-1] if holds(p.conditions, point)), pieces[-1])
        assert holds(chosen.conditions, point), f"no piece has the element {place}"
        source = tuple(value_of(i, point) for i in chosen.index)
        operand = arrays[chosen.operand]
        assert len(source) == operand.ndim
        assert all(0 <= i < size for i, size in zip(source, operand.shape)), f"{place} is read at {source}"
        result[place] = operand[source]
    return result


def shapes(low: int = 0, high: int = 3, least: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(least, 5), min_size=low, max_size=high).map(tuple)


def broadcast_in_dim(draw: Draw) -> Sample:
    shape = draw.draw(shapes())
    extra = draw.draw(st.integers(0, 2))
    places = tuple(sorted(draw.draw(st.permutations(range(len(shape) + extra)))[: len(shape)]))
    wide = list(draw.draw(st.lists(st.integers(1, 4), min_size=len(shape) + extra, max_size=len(shape) + extra)))
    for size, place in zip(shape, places):
        wide[place] = size if size > 1 else wide[place]
    return (lambda x: lax.broadcast_in_dim(x, wide, places)), (shape,)


def reshape(draw: Draw) -> Sample:
    factors = draw.draw(st.lists(st.sampled_from((1, 2, 3)), max_size=5))

    def grouped() -> tuple[int, ...]:
        ends = sorted(draw.draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        order = draw.draw(st.permutations(factors))
        return tuple(int(np.prod(order[a:b], dtype=int)) for a, b in itertools.pairwise([0, *ends, len(factors)]))

    source, target = grouped(), grouped()
    order = draw.draw(st.none() | st.permutations(range(len(source))).map(tuple))  # transposed first
    return (lambda x: lax.reshape(x, target, order)), (source,)


def transpose(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1, 4))
    order = draw.draw(st.permutations(range(len(shape))))
    return (lambda x: lax.transpose_p.bind(x, permutation=tuple(order))), (shape,)


def squeeze(draw: Draw) -> Sample:
    shape = draw.draw(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=1, max_size=4).map(tuple))
    ones = [d for d, size in enumerate(shape) if size == 1]
    dropped = [d for d in ones if draw.draw(st.booleans())]
    signed = tuple(d - len(shape) if draw.draw(st.booleans()) else d for d in dropped)
    return (lambda x: lax.squeeze(x, signed)), (shape,)


def slice_(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1))
    starts = [draw.draw(st.integers(0, size - 1)) for size in shape]
    limits = [draw.draw(st.integers(start + 1, size)) for start, size in zip(starts, shape)]
    strides = draw.draw(st.none() | st.tuples(*(st.integers(1, 4) for _ in shape)))
    return (lambda x: lax.slice(x, starts, limits, strides)), (shape,)


def rev(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1))
    turned = tuple(d for d in range(len(shape)) if draw.draw(st.booleans()))
    return (lambda x: lax.rev_p.bind(x, dimensions=turned)), (shape,)


def pad(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1, 2))
    config = []
    for size in shape:
        interior = draw.draw(st.integers(0, 2))
        whole = size + (size - 1) * interior
        low = draw.draw(st.integers(1 - whole, 3))
        high = draw.draw(st.integers(1 - whole - low, 3))
        config.append((low, high, interior))
    return (lambda x, filling: lax.pad(x, filling, config)), (shape, ())


def concatenate(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1))
    axis = draw.draw(st.integers(0, len(shape) - 1))
    sizes = draw.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
    pieces = tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)
    return (lambda *xs: lax.concatenate_p.bind(*xs, dimension=axis)), pieces


def chunked(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1))
    dim = draw.draw(st.integers(0, len(shape) - 1))
    return (lambda x: chunked_p.bind(x, dim=dim, size=draw.draw(st.integers(1, 3)))), (shape,)


def windows(draw: Draw) -> Sample:
    shape = draw.draw(shapes(1))
    dim = draw.draw(st.integers(0, len(shape) - 1))
    stride, dilation = (draw.draw(st.integers(1, 3)) for _ in range(2))
    size = draw.draw(st.integers(1, 1 + (shape[dim] - 1) // dilation))
    count = draw.draw(st.integers(1, 1 + (shape[dim] - 1 - (size - 1) * dilation) // stride))
    return (lambda x: windowed(x, dim, count, stride, size, dilation)), (shape,)


def flagged(draw: Draw) -> Sample:
    return flagged_p.bind, (draw.draw(shapes()),)


SAMPLES: dict[str, Callable[[Draw], Sample]] = {
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": reshape,
    "transpose": transpose,
    "squeeze": squeeze,
    "slice": slice_,
    "rev": rev,
    "pad": pad,
    "concatenate": concatenate,
    "chunked": chunked,
    "windowed": windows,
    "flagged": flagged,
}


def test_every_row_is_exercised() -> None:
    assert set(SAMPLES) == set(TABLE)


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_elements_are_where_the_row_says(name: str, data: Draw) -> None:
    fn, operand_shapes = SAMPLES[name](data)
    rng = np.random.default_rng(len(operand_shapes))
    arrays = [rng.permutation(int(np.prod(shape))).reshape(shape) + 1000 * n for n, shape in enumerate(operand_shapes)]
    arrays = [array.astype(np.int32) for array in arrays]
    eqns = [eqn for eqn in jax.make_jaxpr(fn)(*arrays).jaxpr.eqns if eqn.primitive.name == name]
    for eqn in eqns:  # none where JAX sees that nothing is moved
        assert TABLE[name].refuse(eqn) is None
        np.testing.assert_array_equal(followed(eqn, arrays), fn(*arrays))


def test_a_reshape_keeps_the_places_of_what_it_does_not_join() -> None:
    """Also beyond the end, where only a guard says that the place exists: no quotient carries over from row to part."""
    (eqn,) = jax.make_jaxpr(lambda x: x.reshape(16, 1000, 1, 8))(np.zeros((16, 1000, 4, 2), np.float32)).jaxpr.eqns
    part, row, col = of_axis(Axis("part", 16)), of_axis(Axis("row", 1024)), of_axis(Axis("col", 8))
    (piece,) = TABLE["reshape"].read(eqn, (part, row, constant(0), col))
    assert [str(index) for index in piece.index] == ["part", "row", "(col // 2)", "(col % 2)"]


@pytest.mark.parametrize("dimension", [0, 1])
def test_iota_is_its_index(dimension: int) -> None:
    (eqn,) = jax.make_jaxpr(lambda: lax.broadcasted_iota(jnp.int32, (3, 4), dimension))().jaxpr.eqns
    axes = (Axis("x0", 3), Axis("x1", 4))
    assert iota_place(eqn, tuple(map(of_axis, axes))) == of_axis(axes[dimension])


def test_padding_of_nothing_is_refused() -> None:
    (eqn,) = jax.make_jaxpr(lambda x: lax.pad(x, 0.0, [(2, 3, 0)]))(np.zeros(0, np.float32)).jaxpr.eqns
    assert str(TABLE["pad"].refuse(eqn)) == "it pads an array without elements"
