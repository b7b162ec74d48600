"""Exponentials of products of matrices as powers of two: what streams compare is rough, so that fewer steps will do.

    exp(dot * scale - m)      →      exp2(dot * (scale * log2 e) - m * log2 e)        one multiplication and subtraction

Factors of few bits leave sums of products without their last ones; nor does it matter then whether a quotient is a
product with a reciprocal, which is made once for all that are divided by it. Large numbers lose too many digits when
they are multiplied, or are infinite then; where such a number hides elements, the extreme is subtracted first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.emit.dots import Dot
from jaxpr2triton.graph.nodes import Compute, Constant, Graph, Load, Node, Reduce, operands_of
from jaxpr2triton.graph.spans import HUGE, LARGE, shown_of
from jaxpr2triton.graph.streams import Shrinking, factor_of
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.dataflow import affected, reachable
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.rules.products import TF32, input_precision

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Scaled:
    """`base * factor`."""

    base: Node
    factor: float = 1.0


@dataclass(frozen=True)
class Powers:
    """How what is compared with an extreme becomes a power of two."""

    may_be_huge: bool  # before anything is subtracted
    scaled: Scaled | None  # stands for what is compared, if nobody else wants that
    shown: Scaled | None  # … where no element is hidden


def powers_of(
    leader: Reduce,
    streams: Collection[Shrinking],
    dots: Mapping[Node, Dot],
    users: Mapping[Node, Sequence[object]],
    target: Target,
) -> Powers | None:
    """None for what is exact, or not made of products."""
    if working_dtype(leader.dtype) != np.float32 or not are_rough(dots, frozenset(leader.over), target):
        return None
    huge = hides_by_numbers(leader.operands, dots)
    value, *others = leader.operands
    apart = {stream.difference: stream.exponential for stream in streams}
    alone = not others and {leader, *apart}.issuperset(users[value])
    if not alone or any(users[one] != [other] for one, other in apart.items() if one is not None):
        return Powers(huge, None, None)
    shown = shown_of(leader)
    found = scaled_of(shown if shown is not None else value, frozenset(leader.over))
    return Powers(huge, found if shown is None and found.factor != 1.0 else None, found if shown is not None else None)


def are_rough(dots: Mapping[Node, Dot], along: frozenset[Axis], target: Target) -> bool:
    """Whether there are products that vary along an axis, all of them of factors of a few bits."""
    made = [(node, dot) for node, dot in dots.items() if node.axes & along]
    rough = (
        dot.dtype.itemsize == 2 or (isinstance(node, Reduce) and input_precision(node.eqn, target) == TF32)
        for node, dot in made
    )
    return bool(made) and all(rough)


def made_of_rough(
    graph: Graph, dots: Mapping[Node, Dot], looped: frozenset[Axis], target: Target
) -> frozenset[Node]:
    """What is made, along loops, of such products."""
    first = [node for node in dots if node.axes & looped] if are_rough(dots, looped, target) else []
    made = affected(graph.nodes, operands_of, first) if first else frozenset()
    return frozenset(node for node in made if node.axes & looped and working_dtype(node.dtype) == np.float32)


def scaled_of(value: Node, along: frozenset[Axis]) -> Scaled:
    """Without a constant that it is multiplied with, or divided by."""
    parts = factor_of(value, along) if isinstance(value, Compute) else None
    if parts is None or not isinstance(parts[1], Constant) or not isinstance(value, Compute):
        return Scaled(value)
    factor = float(parts[1].value)
    if value.eqn.primitive.name == "div":
        factor = 1 / factor if factor else 0.0
    return Scaled(parts[0], factor) if 1 / HUGE < factor < HUGE else Scaled(value)


def hides_by_numbers(values: Sequence[Node], dots: Mapping[Node, Dot]) -> bool:
    """Whether these may be large numbers, where something is hidden, or what is read hides it."""

    def below(node: Node) -> Sequence[Node]:
        return () if node in dots else operands_of(node)

    found = list(reachable(values, below))
    numbers = [float(each.value) for each in found if isinstance(each, Constant)]
    read = [each.dtype for each in found if isinstance(each, Load)]
    may_be = any(is_float(dtype) and dtype != np.float16 for dtype in read)
    return may_be or any(np.isfinite(each) and abs(each) > LARGE for each in numbers)
