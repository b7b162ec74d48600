"""Values that are made before their turn: what they read comes first, however deep that goes.

An operand may be read at a number that a later equation computes, and what only sums read is left for those sums. There
is no recursion from a value to its operands, because a chain of them may be longer than Python's stack.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jaxpr2triton.graph import dynamic, joint_sums
from jaxpr2triton.graph.nodes import Demand
from jaxpr2triton.ir.index import computed_in
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

Read = tuple[Any, Demand]


def build(walk: Any, atom: Any, demand: Demand) -> None:
    """Make the node of a value that an equation computes, and of all that it needs."""
    stack: list[Read] = [(atom, demand)]
    opened: set[Read] = set()
    while stack:
        read = stack[-1]
        if not _is_computed(walk, read):
            walk.node(*stack.pop())
        elif read in opened:
            stack.pop()
            walk.build(_equation(walk, read), read[1])
        elif joined := joint_sums.build(walk, _equation(walk, read), walk.reads[read]):  # its operands are not made
            walk.nodes[stack.pop()] = joined
        else:
            opened.add(read)
            stack.extend(reversed(_first(walk, read)))


def _is_computed(walk: Any, read: Read) -> bool:
    """Whether an equation of this walk's jaxpr makes it, but no loop, and has not yet."""
    atom = read[0]
    if isinstance(atom, jex.Literal) or atom not in walk.makers or atom in walk.buffers or read in walk.nodes:
        return False
    if walk.makers[atom] in walk.entered:
        walk.leave(walk.makers[atom])
        return False
    return True


def _equation(walk: Any, read: Read) -> Any:
    return walk.jaxpr.eqns[walk.makers[read[0]]]


def _first(walk: Any, read: Read) -> list[Read]:
    """What has to be made before a value is: the numbers in its place, and its operands."""
    place, guard = read[1]
    indices = [*place, *(condition.index for condition in guard)]
    numbers = [walk.numbers[number.key] for index in indices for number in computed_in(index)]
    found = [(atom, demand) for other, atom, demand in numbers if other is walk]
    eqn, reads = _equation(walk, read), walk.reads[read]
    row = TABLE.get(eqn.primitive.name)
    if eqn.primitive.name == "dot_general":
        return found + [read for pair in reads[0] for read in pair]
    if isinstance(row, Reduction):
        return found + list(reads[0])
    if eqn.primitive is keep_p:
        return found + list(reads[2])
    if isinstance(row, Indexing) or eqn.primitive.name in dynamic.TABLE:
        return found + [read for _, read in reversed(reads)]
    return found + list(reads)
