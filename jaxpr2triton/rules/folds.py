"""`lax.reduce`, whose function is the user's own → one equation for each result, which kernels know how to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.reduced import Law, Parts, broken, in_order_of_places, monoid_of, reduced_p
from jaxpr2triton.ir.scanned import Combination, scanned_p
from jaxpr2triton.rules.pointwise.table import POINTWISE


def why_not(starts: Sequence[Any], params: Mapping[str, Any], parts: Parts) -> WhyNot | None:
    """Why such a reduction stays as it is; `starts` are the numbers that it begins with, None for computed ones."""
    if any(start is None for start in starts):
        return WhyNot("it begins with numbers that the program computes")
    combine, empty = monoid_of(starts, params["jaxpr"])
    if unknown := [name for name in combine.primitives if name not in POINTWISE]:
        return WhyNot(f"its function has a `{unknown[0]}`, which is no operation on single numbers")
    laws = broken(combine, empty, parts)
    if Law.NEUTRAL in laws:
        return WhyNot("it begins with numbers that change what they are combined with")
    return WhyNot("its function is not associative") if Law.ASSOCIATIVE in laws else None


def reduce(operands: Sequence[Any], starts: Sequence[Any], params: Mapping[str, Any], parts: Parts) -> list[Any]:
    """The results, each by an equation of its own; in the order of the elements, if that matters."""
    combine, empty = monoid_of(starts, params["jaxpr"])
    axes = tuple(sorted(params["dimensions"]))
    laws, count = broken(combine, empty, parts), len(operands)
    if Law.COMMUTATIVE in laws:
        return _in_order(operands, combine, axes)
    if Law.EXACT in laws:
        operands = [*operands, _places(operands[0].shape, axes)]
        combine, empty = in_order_of_places(combine), (*empty, np.int32(np.iinfo(np.int32).max))
    how = {"axes": axes, "combine": combine, "empty": empty}
    return [reduced_p.bind(*operands, **how, output=output) for output in range(count)]


def _places(shape: Sequence[int], axes: Sequence[int]) -> Any:
    """Which element along the axes each one is."""
    place, before = lax.full(shape, 0, np.int32), 1
    for axis in reversed(axes):
        here = lax.broadcasted_iota(np.int32, shape, axis)
        place, before = lax.add(place, lax.mul(here, lax.full_like(here, before))), before * shape[axis]
    return place


def _in_order(operands: Sequence[Any], combine: Combination, axes: Sequence[int]) -> list[Any]:
    """What is combined of all elements up to the last one, along one axis after another."""
    found = list(operands)
    for axis in reversed(axes):
        how = {"axis": axis, "combine": combine, "reverse": False}
        scans = [scanned_p.bind(*found, **how, output=output) for output in range(len(found))]
        found = [lax.index_in_dim(each, -1, axis, keepdims=False) for each in scans]
    return found
