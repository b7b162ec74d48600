"""What an index is worth at a point: its definition, in the plainest form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from jaxpr2triton.ir.index import Axis, Condition, Index, Quotient

Values = Mapping[Axis, int]


def value_of(index: Index, values: Values) -> int:
    """The definition of an index."""
    total = index.const
    for atom, coef in index.terms:
        if isinstance(atom, Axis):
            total += coef * values[atom]
            continue
        inner = value_of(atom.of, values)
        total += coef * (inner // atom.by if isinstance(atom, Quotient) else inner % atom.by)
    return total


def points(*axes: Axis) -> Iterator[dict[Axis, int]]:
    """All values of the axes."""
    for values in itertools.product(*(range(axis.size) for axis in axes)):
        yield dict(zip(axes, values))


def holds(guard: Sequence[Condition], values: Values) -> bool:
    return all(c.low <= value_of(c.index, values) < c.high for c in guard)
