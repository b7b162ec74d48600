"""Index expressions against plain arithmetic: every constructor, over all values of the axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from jaxpr2triton.ir.index import (
    ZERO,
    Axis,
    Condition,
    Index,
    add,
    conjoin,
    constant,
    decide,
    divide,
    flatten,
    index_text,
    modulo,
    of_axis,
    scale,
    settled,
    shift,
    substitute,
    substitute_guard,
    unflatten,
)
from tests.ir.values import Values, holds, points, value_of

AXES = (Axis("a", 1), Axis("b", 2), Axis("c", 3), Axis("d", 4), Axis("e", 6))
A, B, C, D, E = AXES
SMALL = st.integers(-9, 9)
DIVISORS = st.sampled_from((1, 2, 3, 4, 5, 6, 8, 12))


def everywhere(found: Index, expected: Callable[[Values], int], axes: Sequence[Axis] = AXES) -> None:
    for values in points(*axes):
        assert value_of(found, values) == expected(values), f"{found} at {values}"


def _deeper(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    return st.one_of(
        st.builds(add, inner, inner),
        st.builds(scale, inner, SMALL),
        st.builds(shift, inner, SMALL),
        st.builds(divide, inner, DIVISORS),
        st.builds(modulo, inner, DIVISORS),
    )


INDICES = st.recursive(st.one_of(st.sampled_from(AXES).map(of_axis), SMALL.map(constant)), _deeper, max_leaves=6)
SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@given(INDICES, INDICES, INDICES)
def test_add(one: Index, two: Index, three: Index) -> None:
    everywhere(add(one, two, three), lambda v: value_of(one, v) + value_of(two, v) + value_of(three, v))


@given(INDICES, SMALL)
def test_scale_and_shift(index: Index, by: int) -> None:
    everywhere(scale(index, by), lambda v: value_of(index, v) * by)
    everywhere(shift(index, by), lambda v: value_of(index, v) + by)


@given(INDICES, DIVISORS)
def test_divide_and_modulo(index: Index, by: int) -> None:
    everywhere(divide(index, by), lambda v: value_of(index, v) // by)
    everywhere(modulo(index, by), lambda v: value_of(index, v) % by)


@given(INDICES, DIVISORS, st.integers(-3, 3).filter(bool))
def test_quotient_and_remainder_are_put_together_again(index: Index, by: int, times: int) -> None:
    parts = [scale(divide(index, by), by * times), scale(modulo(index, by), times)]
    everywhere(add(*parts), lambda v: value_of(index, v) * times)
    everywhere(add(*reversed(parts)), lambda v: value_of(index, v) * times)


@given(INDICES)
def test_bounds_hold_all_values(index: Index) -> None:
    low, high = index.bounds
    values = [value_of(index, v) for v in points(*AXES)]
    assert low <= min(values) and max(values) <= high


@given(st.lists(st.tuples(st.sampled_from(AXES), SMALL)), SMALL)
def test_bounds_of_plain_sums_are_reached(terms: list[tuple[Axis, int]], const: int) -> None:
    index = add(constant(const), *(scale(of_axis(axis), coef) for axis, coef in terms))
    values = [value_of(index, v) for v in points(*AXES)]
    assert index.bounds == (min(values), max(values))


@given(INDICES)
def test_axes_are_those_that_the_value_may_depend_on(index: Index) -> None:
    used = [axis for axis in AXES if axis in index.axes]
    seen: dict[tuple[int, ...], int] = {}
    for values in points(*AXES):
        key = tuple(values[axis] for axis in used)
        assert seen.setdefault(key, value_of(index, values)) == value_of(index, values)
    assert A not in index.axes, "an axis of size 1 is the constant 0"


@given(INDICES, st.sampled_from(AXES))
def test_coefficient_is_the_step(index: Index, axis: Axis) -> None:
    coef = index.coefficient(axis)
    assume(coef is not None)
    for values in points(*AXES):
        if values[axis] + 1 < axis.size:
            after = {**values, axis: values[axis] + 1}
            assert value_of(index, after) - value_of(index, values) == coef


def test_coefficient_of_a_divided_axis_is_unknown() -> None:
    index = add(divide(of_axis(E), 4), of_axis(D))
    assert (index.coefficient(E), index.coefficient(D), index.coefficient(C)) == (None, 1, 0)


@given(INDICES, st.dictionaries(st.sampled_from(AXES[1:]), INDICES, max_size=3))
def test_substitute(index: Index, mapping: dict[Axis, Index]) -> None:
    def expected(values: Values) -> int:
        return value_of(index, {axis: value_of(mapping.get(axis, of_axis(axis)), values) for axis in AXES})

    everywhere(substitute(index, mapping), expected)


@given(SHAPES)
def test_unflatten_then_flatten_is_nothing(shape: tuple[int, ...]) -> None:
    flat = of_axis(Axis("f", math.prod(shape)))
    assert flatten(unflatten(flat, shape), shape) == flat


@given(SHAPES)
def test_flatten_then_unflatten_is_nothing(shape: tuple[int, ...]) -> None:
    place = tuple(of_axis(Axis(f"x{n}", size)) for n, size in enumerate(shape))
    assert unflatten(flatten(place, shape), shape) == place


@given(SHAPES, st.data())
def test_flatten_is_row_major(shape: tuple[int, ...], data: st.DataObject) -> None:
    place = [data.draw(st.integers(0, size - 1)) for size in shape]
    expected = sum(i * math.prod(shape[d + 1 :]) for d, i in enumerate(place))
    flat = flatten([constant(i) for i in place], shape)
    assert flat == constant(expected)
    assert unflatten(flat, shape) == tuple(map(constant, place))


@given(SHAPES, st.data())
def test_unflatten_through_another_shape(shape: tuple[int, ...], data: st.DataObject) -> None:
    """A reshape: dimensions are split and merged, and the element stays the same."""
    other = tuple(data.draw(st.permutations(shape)))
    axes = [Axis(f"x{n}", size) for n, size in enumerate(shape)]
    flat = flatten(list(map(of_axis, axes)), shape)
    place = unflatten(flat, other)
    for values in points(*axes):
        found = [value_of(i, values) for i in place]
        assert all(0 <= i < size for i, size in zip(found, other))
        assert value_of(flatten([constant(i) for i in found], other), {}) == value_of(flat, values)


@given(INDICES)
def test_the_printed_text_is_python_for_the_same_number(index: Index) -> None:
    text = str(index)
    assert text == index_text(index, str)
    for values in points(*AXES):
        names = {axis.name: value for axis, value in values.items()}
        assert eval(text, {}, names) == value_of(index, values)


def divided(index: Index) -> Iterator[Index]:
    """Everything that is divided somewhere in the expression."""
    for atom, _ in index.terms:
        if not isinstance(atom, Axis):
            yield atom.of
            yield from divided(atom.of)


@given(INDICES)
def test_nothing_negative_is_divided(index: Index) -> None:
    """Triton divides as C does, towards zero."""
    assert all(part.bounds[0] >= 0 for part in divided(index)), str(index)


CONDITIONS = st.builds(
    lambda index, low, length: Condition(index, low, low + length), INDICES, st.integers(-12, 12), st.integers(1, 12)
)


@given(CONDITIONS)
def test_decide_never_lies(condition: Condition) -> None:
    decided = decide(condition)
    if decided is not None:
        assert {holds((condition,), v) for v in points(*AXES)} == {decided}


@pytest.mark.parametrize(("low", "high", "decided"), [(0, 4, True), (4, 9, False), (-5, 0, False), (1, 4, None)])
def test_decide_decides_what_bounds_tell(low: int, high: int, decided: bool | None) -> None:
    assert decide(Condition(of_axis(D), low, high)) is decided


@given(st.lists(CONDITIONS, max_size=3), st.lists(CONDITIONS, max_size=3))
def test_conjoin(first: list[Condition], second: list[Condition]) -> None:
    start = conjoin((), first)
    together = None if start is None else conjoin(start, second)
    for values in points(*AXES):
        assert holds((*first, *second), values) == (together is not None and holds(together, values))
    if together:
        assert all(decide(c) is None for c in together)
        assert len({c.index for c in together}) == len(together)


@given(st.lists(CONDITIONS, max_size=3), st.dictionaries(st.sampled_from(AXES[1:]), INDICES, max_size=2))
def test_substitute_guard(conditions: list[Condition], mapping: dict[Axis, Index]) -> None:
    found = substitute_guard(tuple(conditions), mapping)
    for values in points(*AXES):
        moved = {axis: value_of(mapping.get(axis, of_axis(axis)), values) for axis in AXES}
        assert holds(tuple(conditions), moved) == (found is not None and holds(found, values))


F = Axis("f", 24)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (add(scale(divide(of_axis(F), 4), 4), modulo(of_axis(F), 4)), "f"),
        (divide(add(scale(of_axis(E), 4), of_axis(D)), 4), "e"),
        (modulo(add(scale(of_axis(E), 4), of_axis(D)), 4), "d"),
        (divide(divide(of_axis(F), 2), 3), "(f // 6)"),
        (modulo(modulo(of_axis(F), 12), 4), "(f % 4)"),
        (divide(modulo(of_axis(F), 12), 4), "((f // 4) % 3)"),
        (modulo(scale(of_axis(F), 2), 4), "(f % 2) * 2"),
        (divide(scale(of_axis(F), 2), 4), "(f // 2)"),
        (modulo(of_axis(D), 4), "d"),
        (divide(of_axis(D), 4), "0"),
        (divide(shift(of_axis(D), 8), 4), "2"),
        (add(scale(modulo(divide(of_axis(F), 4), 3), 4), modulo(of_axis(F), 4)), "(f % 12)"),
        (add(of_axis(D), scale(of_axis(D), -1)), "0"),
        (of_axis(A), "0"),
        (shift(scale(of_axis(D), -1), 3), "-d + 3"),
        (add(of_axis(D), scale(of_axis(E), 4)), "e * 4 + d"),
        (substitute(add(scale(of_axis(E), 4), of_axis(D)), dict(zip((E, D), unflatten(of_axis(F), (6, 4))))), "f"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_form_for_one_place(index: Index, text: str) -> None:
    assert str(index) == text


def test_equal_places_are_equal_values() -> None:
    merged = dict(zip((E, D), unflatten(of_axis(F), (6, 4))))
    assert substitute(flatten((of_axis(E), of_axis(D)), (6, 4)), merged) == of_axis(F)
    assert add(of_axis(D), of_axis(E)) == add(of_axis(E), of_axis(D))
    assert add() == ZERO == unflatten(ZERO, (1,))[0]


def test_what_is_below_a_unit_does_not_matter() -> None:
    """(row * 4 + col) // 52 is row // 13 for four columns, and the remainder keeps the column."""
    row, col = Axis("row", 169), Axis("col", 4)
    flat = add(scale(of_axis(row), 4), of_axis(col))
    assert divide(flat, 52) == divide(of_axis(row), 13)
    assert modulo(flat, 52) == add(scale(modulo(of_axis(row), 13), 4), of_axis(col))


def test_chunks_of_a_flat_array_are_plain_places_whatever_its_shape() -> None:
    """4096 is 3584 + 512 and 32 * 128: of rows and columns of an image some are cut in two."""
    row, k = Axis("row", 25), Axis("k", 4096)
    flat = add(scale(of_axis(row), 4096), of_axis(k))
    for shape in ((28, 28, 1, 128), (28, 28, 128), (7, 14, 2, 128, 4), (784, 128)):
        assert flatten(unflatten(flat, shape), shape) == flat


def test_a_diagonal_is_read_at_its_lanes() -> None:
    """The place of x[k, k] of a matrix of 2 x 2, from its place in memory."""
    k = of_axis(Axis("k", 2))
    assert unflatten(scale(k, 3), (2, 2)) == (k, k)


def test_a_quotient_that_can_only_have_one_value_has_it() -> None:
    row = divide(of_axis(F), 4)
    guard = (Condition(row, 2, 3),)
    assert settled((row, modulo(of_axis(F), 4)), guard) == ((constant(2), modulo(of_axis(F), 4)), guard)
    several = (Condition(row, 1, 3),)
    assert settled((row,), several) == ((row,), several)
