"""Arrays of whole numbers in runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpr2triton.ir.numbers import runs_of, spelled


@pytest.mark.parametrize(
    ("numbers", "runs"),
    [
        ([7], [(7, 0, 1)]),
        ([1, -1, -1, -1], [(1, 0, 1), (-1, 0, 3)]),
        ([0, 0, 2, 3], [(0, 0, 2), (2, 1, 2)]),
        ([-1, 0], [(-1, 1, 2)]),
        ([3, 4, 5, 0], [(3, 1, 3), (0, 0, 1)]),
        ([9, 7, 5, 3], [(9, -2, 4)]),
        ([5, 1, 2, 3], [(5, 0, 1), (1, 1, 3)]),
    ],
)
def test_runs(numbers: list[int], runs: list[tuple[int, int, int]]) -> None:
    assert runs_of(np.array(numbers), 8) == runs


def test_too_many_runs_are_none() -> None:
    numbers = np.random.default_rng(0).integers(0, 100, 50)
    assert runs_of(numbers, 8) is None
    assert runs_of(np.tile([0, 0, 5, 5, 9, 9], 10), 8) is None


@given(
    st.lists(st.integers(-100, 100), min_size=1, max_size=12),
    st.sampled_from([np.int8, np.int32, np.uint8, np.uint32]),
)
def test_what_is_spelled_is_the_array(numbers: list[int], dtype: type) -> None:
    array = np.array(numbers).astype(dtype)
    runs = runs_of(array, 100)
    assert runs is not None
    with np.errstate(all="ignore"):
        made = spelled(array.dtype, array.shape, runs)
    np.testing.assert_array_equal(np.asarray(made).astype(array.dtype), array)


@pytest.mark.parametrize("numbers", [[True], [True, False], [False, False, True, True], [True, False, True]])
def test_booleans(numbers: list[bool]) -> None:
    array = np.array(numbers)
    runs = runs_of(array, 8)
    assert runs is not None
    np.testing.assert_array_equal(spelled(array.dtype, array.shape, runs), array)
