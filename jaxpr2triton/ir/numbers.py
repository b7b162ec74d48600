"""Small arrays of whole numbers, written in a program as it would spell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax


def runs_of(numbers: np.ndarray, most: int) -> list[tuple[int, int, int]] | None:
    """The evenly spaced runs (first, step, count) of a flat array; None if there are more than so many.

    [1, -1, -1, -1] → [(1, 0, 1), (-1, 0, 3)]        [0, 0, 2, 3] → [(0, 0, 2), (2, 1, 2)]
    """
    values = [int(number) for number in numbers[: _enough(numbers, most)]]
    if len(values) < len(numbers):
        return None
    runs: list[tuple[int, int, int]] = []
    place = 0
    while place < len(values):
        end = place + 1
        step = values[end] - values[place] if end < len(values) else 0
        while end < len(values) and values[end] - values[end - 1] == step:
            end += 1
        if end - place == 2 and step:  # two numbers are always evenly spaced: the second may begin a longer run
            end, step = (end, step) if end == len(values) or abs(step) == 1 else (place + 1, 0)
        runs.append((values[place], step if end - place > 1 else 0, end - place))
        place = end
        if len(runs) > most:
            return None
    return runs


def _enough(numbers: np.ndarray, most: int) -> int:
    """How many to look at before it is known that there are too many runs; cheap for long arrays."""
    changes = np.diff(numbers.astype(np.int64), 2)
    return len(numbers) if np.count_nonzero(changes) <= 4 * most else 0


def spelled(dtype: Any, shape: Sequence[int], runs: Sequence[tuple[int, int, int]]) -> Any:
    """The array that has these runs, as a program computes it."""
    if dtype == np.bool_:
        return lax.ne(spelled(np.int32, shape, runs), np.int32(0))
    pieces = [_run(np.dtype(dtype), *run) for run in runs]
    return lax.reshape(pieces[0] if len(pieces) == 1 else lax.concatenate(pieces, 0), shape)


def _run(dtype: np.dtype, first: int, step: int, count: int) -> Any:
    if step == 0:
        return lax.full((count,), first, dtype)
    numbers = lax.iota(dtype, count)
    numbers = numbers if step == 1 else lax.mul(numbers, lax.full_like(numbers, np.int64(step).astype(dtype)))
    return lax.add(numbers, lax.full_like(numbers, first)) if first else numbers
