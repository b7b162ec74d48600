"""Sums that go along with the reductions they depend on, so that a row is read once where it would be read twice.

    m = max(x);  l = sum(exp(x - m))        →       for each block of x: m grows, what l has so far shrinks by
                                                    exp(m before - m), and the block's exp(x - m) is added
    y = exp(x - m) @ v                      →       … and so does what y has so far, of which v is the other factor
    m = mean(x);  s = sum((x - m)**2)       →       for each block of x: the mean of each lane, and how far its
                                                    elements are from it; at the end as many times (mean - m)**2

What a sum depends on may be used in its terms in one of these two ways only; all others, a comparison with it say, wait
until it is finished. Rescaled are only terms that never exceed what they are multiplied by: exp of the difference to
the maximum of the very same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from jaxpr2triton.graph.nodes import (
    Choose,
    Collected,
    Compute,
    Constant,
    Graph,
    Node,
    Product,
    Recurrence,
    Reduce,
    operands_of,
)
from jaxpr2triton.ir.dataflow import reachable, sources
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.index import Axis, Condition

Above = Mapping[Node, frozenset[Reduce]]  # the reductions along loops that a value is made of


@dataclass(frozen=True)
class Stream:
    """A sum that is done in the loop of another reduction, the `leader`, although it depends on it."""

    leader: Reduce
    made: frozenset[Node]  # what is made of what the sum depends on, for each of its terms
    beside: frozenset[Node]  # what else its terms are made of
    late: frozenset[Node] = frozenset()  # what it needs when the loop is over


@dataclass(frozen=True)
class Shrinking(Stream):
    """A sum of multiples of exp(x - m), where m is the maximum of x so far; or of exp(m - x) for the minimum."""

    strict: bool = True  # whether an infinite maximum is subtracted as it is, and makes NaN of a term at least
    finite: bool = False  # whether neither of the infinities is subtracted
    factors: tuple[Compute, ...] = ()  # that multiply what is finished only when the loop is over, innermost first
    difference: Compute | None = None  # x - m, or m - x
    value: Node | None = None  # x
    exponential: Compute | None = None


@dataclass(frozen=True)
class Moments(Stream):
    """A sum of products of two factors, each a value of its own and what does not vary along the loop, added."""

    factors: tuple[Node, Node] = ()  # type: ignore[assignment]  # the two values
    negative: bool = False  # one of them is subtracted


def streams_of(graph: Graph, looped: frozenset[Axis]) -> dict[Reduce, Stream]:
    """The sums that may go along; whether they do depends on what else they wait for."""
    found = streams_along(graph, looped)
    return {node: each for node, each in found.items() if not isinstance(each, Moments) or len(node.over) == 1}


def streams_along(graph: Graph, looped: frozenset[Axis]) -> dict[Reduce, Stream]:
    """… those among them, too, whose elements are counted along several axes, which no loop does."""
    if not looped or any(True for _ in graph.of_kind(Recurrence)):
        return {}
    walked = dict.fromkeys(node for node in graph.of_kind(Reduce) if not looped.isdisjoint(node.over))
    above = sources(graph.nodes, operands_of, walked)
    found: dict[Reduce, Stream] = {}
    for node in walked:
        if len(above[node]) > 1 and _is_float_sum(node):
            stream = _shrinking(node, above) or _moments(node, above)
            if stream is not None and stream.leader.axes & looped == node.axes & looped:
                found[node] = stream
    return found


def _is_float_sum(node: Reduce) -> bool:
    if node.eqn.primitive.name == "dot_general":  # which has all bits until it is over
        return is_float(node.dtype) and all(isinstance(operand, Product) for operand in node.operands)
    wide = is_float(node.dtype) and node.dtype.itemsize >= 4
    return wide and node.eqn.primitive.name == "reduce_sum" and {o.dtype for o in node.operands} == {node.dtype}


# -- exp(x - max(x)) ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Below:
    """`x - m`: which reduction m is, and what was done before with its infinities."""

    extreme: Reduce
    strict: bool
    finite: bool = False
    difference: Compute | None = None
    value: Node | None = None
    exponential: Compute | None = None
    factors: tuple[Compute, ...] = ()


def factor_of(node: Compute, along: frozenset[Axis]) -> tuple[Node, Node] | None:
    """`a * f` or `a / f`, where f does not vary along these axes: a, and f."""
    name = node.eqn.primitive.name
    if name not in ("mul", "div"):
        return None
    value, factor = node.operands
    if name == "mul" and along & factor.axes:
        value, factor = factor, value
    return None if along & factor.axes or not along & value.axes else (value, factor)


def _shrinking(node: Reduce, above: Above) -> Shrinking | None:
    along = frozenset(node.over)
    terms = [_multiple(operand, along, above) for operand in node.operands]
    found = terms[0]
    if found is None or frozenset(found.extreme.over) != along:
        return None
    alike = {(each.extreme, each.strict) if each is not None else None for each in terms}
    if len(alike) > 1 or (len(terms) > 1 and any(each is not None and each.factors for each in terms)):
        return None
    if working_dtype(found.extreme.dtype) != working_dtype(node.dtype):
        return None
    late = {parts[1] for each in found.factors if (parts := factor_of(each, along)) is not None}
    ends = {found.extreme, *late}
    made, beside = _between(node.operands, lambda each: found.extreme in above[each], ends)
    if any(isinstance(each, Collected) for each in made):
        return None
    return Shrinking(
        found.extreme,
        made,
        beside,
        frozenset(late),
        strict=found.strict,
        finite=found.finite,
        factors=found.factors[::-1],
        difference=found.difference,
        value=found.value,
        exponential=found.exponential,
    )


def _multiple(node: Node, along: frozenset[Axis], above: Above) -> _Below | None:
    """What the exponential is of which a term is a multiple; by what depends on it only if that is a factor of all."""
    inside: tuple[Condition, ...] = ()
    factors: list[Compute] = []
    while True:
        match node:
            case Choose() if isinstance(node.other, Constant) and node.other.value == 0:
                inside, node = (*inside, *node.conditions), node.then
            case Product() | Compute() if (inner := _inner(node, above)) is not None:
                node = inner
            case Compute():
                name, dependent = node.eqn.primitive.name, [each for each in node.operands if above[each]]
                if name == "exp":
                    found = _difference(node.operands[0], inside)
                    return None if found is None else replace(found, factors=tuple(factors), exponential=node)
                parts = factor_of(node, along)
                if parts is not None and parts[1] in dependent:
                    factors.append(node)
                    node = parts[0]
                    continue
                allowed = name in ("mul", "neg") or (name == "div" and node.operands[0] in dependent)
                if len(dependent) != 1 or not (allowed or _is_cast(node)):
                    return None
                (node,) = dependent
            case _:
                return None


def _inner(node: Compute | Product, above: Above) -> Node | None:
    """The one factor of a product that waits for something; or what is chosen, by what does not, instead of zero."""
    if isinstance(node, Product):
        late = [each for each in node.operands if above[each]]
        return late[0] if len(late) == 1 else None
    if node.eqn.primitive.name != "select_n" or len(node.operands) != 3 or above[node.operands[0]]:
        return None
    cases = node.operands[1:]
    rest = [each for each in cases if not (isinstance(each, Constant) and each.value == 0)]
    return rest[0] if len(rest) == 1 else None


def _is_cast(node: Node) -> bool:
    is_cast = isinstance(node, Compute) and node.eqn.primitive.name == "convert_element_type"
    return is_cast and all(is_float(each.dtype) for each in (node, *operands_of(node)))


def _difference(node: Node, inside: tuple[Condition, ...]) -> _Below | None:
    """`x - max(x)` or `min(x) - x`; `inside` says where the terms count that are made of it."""
    downwards = True
    while isinstance(node, Compute) and node.eqn.primitive.name == "neg":
        (node,), downwards = node.operands, not downwards
    if not isinstance(node, Compute) or node.eqn.primitive.name != "sub":
        return None
    above, below = node.operands if downwards else node.operands[::-1]
    for name, value, limit in (("reduce_max", above, below), ("reduce_min", below, above)):
        found = _extreme(limit)
        if found is not None and found.extreme.eqn.primitive.name == name:
            whole = _uncast(value)
            same = (_uncast(_inside(operand, inside)) is whole for operand in found.extreme.operands)
            held = any(same) and not (found.strict and inside)
            return replace(found, difference=node, value=value) if held else None
    return None


def _inside(node: Node, conditions: tuple[Condition, ...]) -> Node:
    """What is chosen where these hold."""
    while isinstance(node, Choose) and set(node.conditions) <= set(conditions):
        node = node.then
    return node


def _uncast(node: Node) -> Node:
    """The value before it was held in a wider type."""
    while _is_cast(node) and operands_of(node)[0].dtype.itemsize <= node.dtype.itemsize:
        (node,) = operands_of(node)
    return node


def _extreme(node: Node) -> _Below | None:
    """A reduction; or one with another number in the place of its infinities."""
    node = _uncast(node)
    if isinstance(node, Reduce):
        return _Below(node, True)
    if not isinstance(node, Compute) or node.eqn.primitive.name != "select_n" or len(node.operands) != 3:
        return None
    which, *cases = node.operands
    numbers = [isinstance(case, Constant) and bool(np.isfinite(case.value)) for case in cases]
    found = [_uncast(case) for case in cases]
    if sorted(numbers) != [False, True]:
        return None
    extreme, finite = found[numbers.index(False)], numbers.index(False) == 1
    if not isinstance(extreme, Reduce) or not isinstance(which, Compute):
        return None
    if not _says_whether_finite(which, extreme, finite):
        return None
    return _Below(extreme, False, which.eqn.primitive.name == "is_finite")


def _says_whether_finite(which: Node, value: Node, finite: bool) -> bool:
    """Whether a predicate holds for all finite values, or for none of them."""
    while isinstance(which, Compute) and which.eqn.primitive.name == "not":
        which, finite = which.operands[0], not finite
    if not isinstance(which, Compute):
        return False
    name, operands = which.eqn.primitive.name, [_uncast(each) for each in which.operands]
    if name == "is_finite":
        return operands == [value] and finite
    infinite = [isinstance(each, Constant) and bool(np.isinf(each.value)) for each in operands]
    compared = [each for each, is_infinite in zip(operands, infinite) if not is_infinite]
    return name == ("ne" if finite else "eq") and compared == [value]


# -- (x - m) * (y - n) ----------------------------------------------------------------------------------------------


def _moments(node: Reduce, above: Above) -> Moments | None:
    product = node.operands[0]
    if len(node.operands) > 1 or not isinstance(product, Compute):
        return None
    name, params = product.eqn.primitive.name, product.eqn.params
    if name == "square" or (name == "integer_pow" and params["y"] == 2):
        factors = [product.operands[0]] * 2
    elif name == "mul":
        factors = list(product.operands)
    else:
        return None
    along = frozenset(node.over)
    values = [_value(factor, along, above) for factor in factors]
    if None in values:
        return None
    (one, minus), (other, negative) = (value for value in values if value is not None)
    if not all(along <= each.axes and each.dtype == node.dtype for each in (one, other)):
        return None
    made, late = _between(factors, lambda each: bool(along & each.axes), {one, other})
    leaders = [each for shift in late for each in above[shift] if frozenset(each.over) == along]
    if not leaders:
        return None
    leader = max(leaders, key=lambda each: each.number)
    factors_of = (one, other)
    return Moments(leader, made | {product}, frozenset(factors_of), late, factors_of, minus != negative)


def _value(node: Node, along: frozenset[Axis], above: Above) -> tuple[Node, bool] | None:
    """`x - m` → x, and whether it is `m - x`. Where x is infinite, m has to be as well: nothing is left but NaN."""
    if not isinstance(node, Compute) or node.eqn.primitive.name != "sub":
        return None
    free = [not along & each.axes for each in node.operands]
    if sorted(free) != [False, True]:
        return None
    place = free.index(False)
    value, shift = node.operands[place], node.operands[1 - place]
    return (value, place == 1) if not above[value] and _grows_with(shift, value, along) else None


def _grows_with(node: Node, value: Node, along: frozenset[Axis]) -> bool:
    """Whether it is infinite, with the same sign, or NaN where the value somewhere is: its sum, or a part of that."""
    while isinstance(node, Compute):
        name, (first, *others) = node.eqn.primitive.name, node.operands
        part = name in ("mul", "div") and isinstance(others[0], Constant) and float(others[0].value) > 0
        if not part and not _is_cast(node):
            return False
        node = first
    return (
        isinstance(node, Reduce)
        and node.eqn.primitive.name == "reduce_sum"
        and frozenset(node.over) == along
        and [_uncast(each) for each in node.operands] == [_uncast(value)]
    )


def _between(
    tops: Iterable[Node], passes: Callable[[Node], bool], ends: Iterable[Node]
) -> tuple[frozenset[Node], frozenset[Node]]:
    """What lies between some values and those that they are made of at the ends, and what else is read there."""
    stopped = frozenset(ends)

    def open_operands(node: Node) -> list[Node]:
        return [operand for operand in operands_of(node) if operand not in stopped]

    made = frozenset(
        reachable((top for top in tops if top not in stopped), lambda node: filter(passes, open_operands(node)))
    )
    return made, frozenset(each for node in made for each in open_operands(node) if not passes(each))
