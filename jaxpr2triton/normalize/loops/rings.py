"""What combines the steps of a loop: sums of products, or what has their laws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import reduce
from typing import Any

from jax import lax

Array = Any


class Ring(Enum):
    """The number that changes nothing where a product would be, and the one that does so where a sum would be."""

    SUMS = 1, 0
    MAXIMA = 0, -math.inf
    MINIMA = 0, math.inf
    LOGS = 0, -math.inf, "logarithms of sums"  # of the exponentials of numbers

    @property
    def one(self) -> float:
        return self.value[0]

    @property
    def zero(self) -> float:
        return self.value[1]

    def times(self, a: Array, b: Array) -> Array:
        return lax.mul(a, b) if self is Ring.SUMS else lax.add(a, b)

    def plus(self, a: Array, b: Array) -> Array:
        match self:
            case Ring.SUMS:
                return lax.add(a, b)
            case Ring.MAXIMA:
                return lax.max(a, b)
            case Ring.MINIMA:
                return lax.min(a, b)
            case Ring.LOGS:
                return _log_of_sum(a, b)

    def size(self, a: Array) -> Array:
        """Of a number; what adds nothing has none."""
        if self is Ring.SUMS:
            return lax.abs(a)
        return lax.select(lax.eq(a, lax.full_like(a, self.zero)), lax.full_like(a, 0), lax.abs(a))

    def is_number(self, a: Array) -> Array:
        """Whether it is finite, or the zero of the ring."""
        match self:
            case Ring.SUMS:
                return lax.is_finite(a)
            case Ring.MAXIMA | Ring.LOGS:
                return lax.lt(a, lax.full_like(a, math.inf))
            case Ring.MINIMA:
                return lax.gt(a, lax.full_like(a, -math.inf))

    def total(self, terms: Iterable[Array]) -> Array:
        return reduce(self.plus, terms)

    def both(self, first: Sequence[Array], then: Sequence[Array], size: int) -> list[Array]:
        """Two steps as one, each of them a matrix, row by row, and a vector that is added."""
        square = size * size
        a = [
            self.total(self.times(first[k * size + j], then[i * size + k]) for k in range(size))
            for i in range(size)
            for j in range(size)
        ]
        moved = [[self.times(then[i * size + k], first[square + k]) for k in range(size)] for i in range(size)]
        return [*a, *(self.total([*terms, then[square + i]]) for i, terms in enumerate(moved))]


def _log_of_sum(a: Array, b: Array) -> Array:
    """As JAX has it: two infinities are no difference."""
    difference = lax.sub(a, b)
    larger = lax.add(lax.max(a, b), lax.log1p(lax.exp(lax.neg(lax.abs(difference)))))
    return lax.select(lax.ne(difference, difference), lax.add(a, b), larger)


JOINS = {Ring.MAXIMA: "max", Ring.MINIMA: "min", Ring.LOGS: "logaddexp"}
