"""Between which places of an axis a reduction has terms at all: where what it combines is chosen by comparisons.

    sum(where(k < length[i], x[i,k], 0), k)                k < length[i]
    sum(where((first[i] <= k) & (k <= last[i]), …, 0))     first[i] <= k <= last[i]
    dot(member(where(group[m] == g, x[m,k], 0)), w[g,k,n]) group[m] <= g <= group[m]

A program then begins its loop with the first of them that some lane of its has, and ends it behind the last one. Only
what leaves a result as it is is left out: a chosen 0 that is multiplied is none, for infinity times 0 is no number,
unless the product is one that such a 0 has no part in (`member`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Node, Position, Product, Reduce
from jaxpr2triton.ir.dtypes import is_bool, working_dtype
from jaxpr2triton.ir.index import Axis, Condition, Index, Quotient, add, computed_in, constant, scale, shift
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_DENIED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True)
class Limit:
    """`axis // by`, at least or at most `sign * (value + const - rest)`, where the terms of a reduction are."""

    axis: Axis
    by: int
    sign: int
    value: Node | None  # that does not vary along the axis
    const: int
    rest: Index
    low: int  # what `value` may be brought into before, so that nothing overflows
    high: int
    is_upper: bool

    @property
    def axes(self) -> frozenset[Axis]:
        """Along which the limit itself varies."""
        return self.rest.axes | (frozenset() if self.value is None else self.value.axes)

    @property
    def place(self) -> Index:
        """The first place that a lower limit allows, or the one behind the last that an upper one does, without `value`
        and in units of `by`.
        """
        return shift(scale(self.rest, -self.sign), self.sign * self.const + self.is_upper)

    @property
    def spares(self) -> float:
        """The share of the axis that is left out on average; all of it where that is not known before."""
        if self.value is not None:
            return 1.0
        size = self.axis.size
        low, high = (self.by * bound / size for bound in self.place.bounds)
        before = _clamped(low) if low == high else (_up_to(high) - _up_to(low)) / (high - low)
        return 1 - before if self.is_upper else before


def _clamped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _up_to(share: float) -> float:
    """The integral of `_clamped`."""
    return _clamped(share) ** 2 / 2 + max(share - 1, 0.0)


def limits_of(node: Reduce, axis: Axis) -> frozenset[Limit]:
    """What all terms of a reduction are within, along one of its axes."""
    row = TABLE["reduce_sum" if node.eqn.primitive.name == "dot_general" else node.eqn.primitive.name]
    if not isinstance(row, Reduction) or row.indexed:
        return frozenset()
    found = [frozenset(_of_term(operand, axis, row)) for operand in node.operands]
    return frozenset.intersection(*found)


def _of_term(node: Node, axis: Axis, row: Reduction) -> Iterator[Limit]:
    """Outside of these the node is what changes nothing."""
    neutral = row.identity(working_dtype(node.dtype))
    match node:
        case Choose():
            if _is(node.other, neutral):
                yield from _of_conditions(node.conditions, axis)
                yield from _of_term(node.then, axis, row)
        case Compute(operands=(mask, other, then)) if node.eqn.primitive.name == "select_n" and is_bool(mask.dtype):
            if _is(other, neutral):
                yield from _of_mask(mask, axis)
                yield from _of_term(then, axis, row)
            elif _is(then, neutral):
                yield from _of_mask(mask, axis, denied=True)
                yield from _of_term(other, axis, row)
        case Compute(operands=(operand,)) if node.eqn.primitive.name == "convert_element_type":
            if not isinstance(neutral, bool) and neutral == 0 and not is_bool(operand.dtype):
                yield from _of_term(operand, axis, row)
        case Product():
            for factor in node.operands:
                yield from _of_factor(factor, axis, row)


def _of_factor(node: Node, axis: Axis, row: Reduction) -> Iterator[Limit]:
    """A factor that a product has no part in where it is zero."""
    if not isinstance(node, Compute) or len(node.operands) != 1:
        return
    if node.eqn.primitive is member_p:
        yield from _of_term(node.operands[0], axis, row)
    elif node.eqn.primitive.name == "convert_element_type":
        yield from _of_factor(node.operands[0], axis, row)


def _of_mask(mask: Node, axis: Axis, denied: bool = False) -> Iterator[Limit]:
    """What holds wherever the mask does (or does not)."""
    if isinstance(mask, Choose) and not denied and _is(mask.other, False):
        yield from _of_conditions(mask.conditions, axis)
        yield from _of_mask(mask.then, axis)
    if not isinstance(mask, Compute):
        return
    name, operands = mask.eqn.primitive.name, mask.operands
    if name == "not":
        yield from _of_mask(operands[0], axis, not denied)
    elif name == ("or" if denied else "and") and is_bool(mask.dtype):
        for operand in operands:
            yield from _of_mask(operand, axis, denied)
    elif len(operands) == 2:
        compared = _DENIED.get(name, "") if denied else name
        for (one, other), relation in ((operands, compared), (operands[::-1], _FLIPPED.get(compared, ""))):
            yield from _of_comparison(one, relation, other, axis)


def _of_comparison(one: Node, relation: str, other: Node, axis: Axis) -> Iterator[Limit]:
    """`one` is a place along the axis, `other` a number that does not vary along it."""
    index = _index_of(one)
    if index is None or relation not in _FLIPPED or axis not in index.axes or axis in other.axes:
        return
    if not np.issubdtype(other.dtype, np.signedinteger) or other.dtype.itemsize < 4:
        return  # which may not hold the ends
    value = other if not isinstance(other, Constant) else None
    const = int(other.value) if isinstance(other, Constant) else 0
    yield from _limits(index, relation, value, const, axis)


def _index_of(node: Node) -> Index | None:
    """A place as an index, or a sum of such; None where it is none, or wraps around."""
    found: Index | None = None
    match node:
        case Position():
            found = node.index
        case Constant() if np.issubdtype(node.dtype, np.signedinteger):
            found = constant(int(node.value))
        case Compute(operands=(one,)) if node.eqn.primitive.name == "convert_element_type":
            found = _index_of(one)
        case Compute(operands=(one, other)) if node.eqn.primitive.name in ("add", "sub"):
            parts = _index_of(one), _index_of(other)
            if parts[0] is not None and parts[1] is not None:
                found = add(parts[0], scale(parts[1], 1 if node.eqn.primitive.name == "add" else -1))
    if found is None or not np.issubdtype(node.dtype, np.signedinteger):
        return None
    low, high = found.bounds
    return found if np.iinfo(node.dtype).min <= low and high <= np.iinfo(node.dtype).max else None


def _of_conditions(conditions: Sequence[Condition], axis: Axis) -> Iterator[Limit]:
    for condition in conditions:
        if axis in condition.index.axes:
            yield from _limits(condition.index, "ge", None, condition.low, axis)
            yield from _limits(condition.index, "le", None, condition.high - 1, axis)


def _limits(index: Index, relation: str, value: Node | None, const: int, axis: Axis) -> Iterator[Limit]:
    """index REL value + const, solved for the axis."""
    along = [(atom, factor) for atom, factor in index.terms if axis in Index(0, ((atom, 1),)).axes]
    rest = Index(index.const, tuple(term for term in index.terms if term not in along))
    if len(along) != 1 or any(computed_in(index)):
        return
    (atom, sign), by = along[0], 1
    if isinstance(atom, Quotient):
        by, atom = atom.by, atom.of.terms[0][0] if atom.of == axis.index else atom
    if atom != axis or sign not in (1, -1):
        return
    low, high = index.bounds[0] - 1, index.bounds[1] + 1
    reach = max(abs(each) for each in (*rest.bounds, low, high)) + 1
    if 2 * reach * by >= np.iinfo(np.int32).max:
        return
    const = min(max(const, low), high) if value is None else const
    sides = {"lt": "le", "gt": "ge"}.get(relation, relation)
    const += {"lt": -1, "gt": 1}.get(relation, 0)
    for side in ("ge", "le"):
        if sides in (side, "eq"):
            yield Limit(axis, by, sign, value, const, rest, low, high, is_upper=(side == "le") == (sign > 0))


def _is(node: Node, value: object) -> bool:
    return isinstance(node, Constant) and bool(node.value == value)
