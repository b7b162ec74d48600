"""Between which places of an axis a reduction has terms at all: where what it combines is chosen by comparisons.

    sum(where(k < length[i], x[i,k], 0), k)                k < length[i]
    sum(where((first[i] <= k) & (k <= last[i]), …, 0))     first[i] <= k <= last[i]
    dot(member(where(group[m] == g, x[m,k], 0)), w[g,k,n]) group[m] <= g <= group[m]

    softmax(where(k <= i, s[i,k], -inf), k)                k <= i: what is exp(-inf - m) is nothing

    dot(exp(where(k <= i, s[i,k], -inf) - m[i]) * …, x[i,n])    k <= i, wherever m is above what hides

A program then begins its loop with the first of them that some lane of its has, and ends it behind the last one. Only
what leaves a result as it is is left out: a chosen 0 that is multiplied is none, for infinity times 0 is no number,
unless the product is one that such a 0 has no part in (`member`). A softmax is told apart: where it is hidden by -inf,
or by a number as low as that, elements have no weight, and what they would be multiplied with is not looked at. A row
of which a low number hides all has all of it for its mean. So it is with the exponentials of its gradient, which are
multiplied with other things: what is subtracted there is known when the kernel runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import chain
from typing import TypeGuard

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Node, Position, Product, Reduce, operands_of
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.dtypes import is_bool, is_float, working_dtype
from jaxpr2triton.ir.index import Axis, Condition, Index, Quotient, add, computed_in, constant, scale, shift
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

HUGE = 1e37  # numbers beyond it hide what they are chosen instead of
LARGE = 4096.0  # of larger numbers, multiplied or added to before they are subtracted, powers have no 11 digits left
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_DENIED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True)
class Subtracted:
    """What exponentials are of scores without it: hidden ones have no weight where it is above what hides them."""

    node: Node
    above: float


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
    or_all: bool = False  # where they leave nothing between them, there is everything
    where: Subtracted | None = None  # it is a limit there only

    @property
    def axes(self) -> frozenset[Axis]:
        """Along which the limit itself varies."""
        return self.rest.axes.union(*(node.axes for node in self.needs))

    @property
    def needs(self) -> list[Node]:
        """What is asked before the loop, but for what each step has its own of."""
        known = self.where is None or self.axis in self.where.node.axes
        return [node for node in (self.value, None if known or not self.where else self.where.node) if node is not None]

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
    if not isinstance(row, Reduction) or row.several:
        return frozenset()

    identity = row.identity(_working(node.operands[0]))
    is_zero = not isinstance(identity, bool) and identity == 0
    neutral = Neutral(lambda other: _is(other, row.identity(_working(other))), is_zero)
    found = [frozenset(chain.from_iterable(_of_term(operand, axis, neutral))) for operand in node.operands]
    if is_zero and not any(found):
        found = [frozenset(_of_weights(operand, axis)) for operand in node.operands]
    return frozenset.intersection(*found)


def hidden_by(choice: Compute, axis: Axis) -> tuple[Node, frozenset[Limit]] | None:
    """What is chosen between some limits, and these, if the choice is about nothing else."""
    if not is_bool(choice.operands[0].dtype):
        return None
    for place in (2, 1):
        shown = choice.operands[place]
        masks = list(_of_term(choice, axis, Neutral(partial(operator.is_not, shown))))
        if masks and all(masks):
            return shown, frozenset(chain.from_iterable(masks))
    return None


def _of_weights(node: Node, axis: Axis) -> Iterator[Limit]:
    """Between which exponentials that it is multiplied with are not hidden."""
    for each in reachable([node], _in_weight):
        below = each.operands[0] if isinstance(each, Compute) and each.eqn.primitive.name == "exp" else None
        if not isinstance(below, Compute) or below.eqn.primitive.name != "sub":
            continue
        value, extreme = below.operands
        above = max((float(fill.value) / 2 for fill in _fills(value, LOW) if isinstance(fill, Constant)), default=0.0)
        for limits in _of_term(value, axis, LOW) if above < 0 else ():
            yield from (replace(limit, where=Subtracted(_uncast(extreme), above)) for limit in limits)


def _uncast(node: Node) -> Node:
    """What it is, but for a cast of floats that loses nothing."""
    while isinstance(node, Compute) and node.eqn.primitive.name == "convert_element_type":
        (below,) = node.operands
        if not is_float(below.dtype) or np.promote_types(below.dtype, node.dtype) != node.dtype:
            break
        node = below
    return node


def _in_weight(node: Node) -> Sequence[Node]:
    """What a number is zero with."""
    if isinstance(node, Product):
        return node.operands
    if isinstance(node, Choose):
        return (node.then,) if _is(node.other, 0) else ()
    if not isinstance(node, Compute):
        return ()
    match node.eqn.primitive.name:
        case "mul":
            return node.operands
        case "div" | "neg" | "convert_element_type" if is_float(node.operands[0].dtype):
            return node.operands[:1]
        case "select_n":
            chosen = [each for each in node.operands[1:] if not _is(each, 0)]
            return chosen if len(chosen) == 1 else ()
    return ()


@dataclass(frozen=True)
class Neutral:
    """The numbers that change nothing; zero is one of any type."""

    holds: Callable[[Node], bool]
    is_zero: bool = False


@dataclass(frozen=True)
class Shown:
    """What the elements that an extreme is not hidden from lie between; `exactly` if all of these are shown."""

    limits: frozenset[Limit]
    exactly: bool


def shown_by(leader: Reduce, axis: Axis) -> Shown:
    """Of an extreme that exponentials are compared with: outside of the limits these are zero."""
    (operand, *others), low = leader.operands, _low(leader)
    masks = list(_of_term(operand, axis, low)) if not others else []
    exactly = bool(masks) and all(masks)
    never = TABLE[leader.eqn.primitive.name].identity(_working(leader))
    is_finite = any(not _is(each, never) for each in _fills(operand, low))
    if is_finite and not exactly:  # what hides all of a row is not known
        return Shown(frozenset(), False)
    limits = frozenset(replace(limit, or_all=is_finite) for limit in chain.from_iterable(masks))
    return Shown(limits, exactly)


def shown_of(leader: Reduce) -> Node | None:
    """What an extreme is of where nothing is hidden, if one choice hides all that is."""
    (operand, *others) = leader.operands
    if others or not _chooses(operand):
        return None
    terms = [each for each, what in _in_term(operand, _low(leader)) if what is _Part.TERM]
    return terms[0] if len(terms) == 1 and not _chooses(terms[0]) else None


def _low(leader: Reduce) -> Neutral:
    """The numbers that are lower, or higher, than all that they hide."""
    sign = -1 if leader.eqn.primitive.name == "reduce_max" else 1
    return Neutral(lambda other: isinstance(other, Constant) and bool(sign * float(other.value) >= HUGE))


def _fills(operand: Node, low: Neutral) -> Iterator[Node]:
    """The numbers that hide elements."""
    terms = reachable([operand], lambda each: [part for part, what in _in_term(each, low) if what is _Part.TERM])
    cases = (operands_of(each) if isinstance(each, Compute) else (each.other,) for each in terms if _chooses(each))
    return (case for each in cases for case in each if low.holds(case))


def _chooses(node: Node) -> TypeGuard[Compute | Choose]:
    return isinstance(node, Choose) or (isinstance(node, Compute) and node.eqn.primitive.name == "select_n")


class _Part(Enum):
    """What a node is for the one that is looked at: outside of limits it is neutral, has no part in a product, …"""

    TERM = "term"
    FACTOR = "factor"
    MASK = "mask"  # … holds, or
    DENIED = "denied"  # does not


LOW = Neutral(lambda other: isinstance(other, Constant) and float(other.value) <= -HUGE)
Parts = Sequence[tuple[Node, _Part]]


def _of_term(node: Node, axis: Axis, neutral: Neutral) -> Iterator[list[Limit]]:
    """Outside of these the node is what changes nothing: those of each condition, of some none."""
    walk: Mapping[_Part, Callable[[Node], Parts]] = {
        _Part.TERM: lambda each: _in_term(each, neutral),
        _Part.FACTOR: _in_factor,
        _Part.MASK: lambda each: _in_mask(each, False),
        _Part.DENIED: lambda each: _in_mask(each, True),
    }
    start = [(node, _Part.TERM)]
    for each, what in reachable(start, lambda part: walk[part[1]](part[0])):
        if what in (_Part.MASK, _Part.DENIED) and not walk[what](each):
            yield list(_of_comparisons(each, what is _Part.DENIED, axis))
        chosen = what is _Part.TERM and isinstance(each, Choose) and neutral.holds(each.other)
        if chosen or (what is _Part.MASK and isinstance(each, Choose) and _is(each.other, False)):
            assert isinstance(each, Choose)
            yield from ([*_of_condition(condition, axis)] for condition in each.conditions)


def _working(node: Node) -> np.dtype:
    return working_dtype(node.dtype)


def _in_term(node: Node, neutral: Neutral) -> Parts:
    match node:
        case Choose() if neutral.holds(node.other):
            return [(node.then, _Part.TERM)]
        case Compute(operands=(mask, other, then)) if node.eqn.primitive.name == "select_n" and is_bool(mask.dtype):
            if neutral.holds(other):
                return [(mask, _Part.MASK), (then, _Part.TERM)]
            if neutral.holds(then):
                return [(mask, _Part.DENIED), (other, _Part.TERM)]
        case Compute(operands=(operand,)) if node.eqn.primitive.name == "convert_element_type":
            floats = is_float(operand.dtype) and is_float(node.dtype)
            if floats or (neutral.is_zero and not is_bool(operand.dtype)):
                return [(operand, _Part.TERM)]
        case Product():
            return [(factor, _Part.FACTOR) for factor in node.operands]
    return []


def _in_factor(node: Node) -> Parts:
    """A factor that a product has no part in where it is zero."""
    if not isinstance(node, Compute) or len(node.operands) != 1:
        return []
    if node.eqn.primitive is member_p:
        return [(node.operands[0], _Part.TERM)]
    return [(node.operands[0], _Part.FACTOR)] if node.eqn.primitive.name == "convert_element_type" else []


def _in_mask(mask: Node, denied: bool) -> Parts:
    """What holds as well wherever the mask does (or does not)."""
    if isinstance(mask, Choose) and not denied and _is(mask.other, False):
        return [(mask.then, _Part.MASK)]
    if not isinstance(mask, Compute):
        return []
    name, same = mask.eqn.primitive.name, _Part.DENIED if denied else _Part.MASK
    if name == "not":
        return [(mask.operands[0], _Part.MASK if denied else _Part.DENIED)]
    if name == ("or" if denied else "and") and is_bool(mask.dtype):
        return [(operand, same) for operand in mask.operands]
    return []


def _of_comparisons(mask: Node, denied: bool, axis: Axis) -> Iterator[Limit]:
    if not isinstance(mask, Compute) or len(mask.operands) != 2 or mask.eqn.primitive.name in ("and", "or"):
        return
    name, operands = mask.eqn.primitive.name, mask.operands
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
    found: dict[Node, Index | None] = {}
    for each in postorder([node], _summed_in, found):
        index = _sum_of(each, [found[part] for part in _summed_in(each)])
        is_signed = index is not None and np.issubdtype(each.dtype, np.signedinteger)
        low, high = index.bounds if index is not None and is_signed else (0, -1)
        fits = is_signed and np.iinfo(each.dtype).min <= low and high <= np.iinfo(each.dtype).max
        found[each] = index if fits else None
    return found[node]


def _summed_in(node: Node) -> tuple[Node, ...]:
    is_sum = isinstance(node, Compute) and node.eqn.primitive.name in ("convert_element_type", "add", "sub")
    return node.operands if isinstance(node, Compute) and is_sum else ()


def _sum_of(node: Node, parts: Sequence[Index | None]) -> Index | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    match node, known:
        case Position(), _:
            return node.index
        case Constant(), _ if np.issubdtype(node.dtype, np.signedinteger):
            return constant(int(node.value))
        case Compute(), [one]:
            return one
        case Compute(), [one, other]:
            return add(one, scale(other, -1 if node.eqn.primitive.name == "sub" else 1))
    return None


def _of_condition(condition: Condition, axis: Axis) -> Iterator[Limit]:
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
