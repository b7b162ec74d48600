"""Values that are made before their turn: what they read comes first, however deep that goes.

An operand may be read at a number that a later equation computes, and what only sums read is left for those sums. There
is no recursion from a value to its operands, because a chain of them may be longer than Python's stack.
"""

from __future__ import annotations

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import joint_sums
from jaxpr2triton.graph.nodes import Demand, Node
from jaxpr2triton.graph.reads import Elements, Filling, Read, reads_of
from jaxpr2triton.graph.walking import Making
from jaxpr2triton.ir.index import computed_in
from jaxpr2triton.ir.jaxprs import Eqn, Literal, Var

Computed = tuple[Var, Demand]  # what an equation of the walk's jaxpr makes


def build(walk: Making, atom: Var, demand: Demand) -> None:
    """Make the node of a value that an equation computes, and of all that it needs."""
    stack: list[Read] = [(atom, demand)]
    opened: set[Read] = set()
    while stack:
        read = stack[-1]
        computed = _computed(walk, read)
        if computed is None:
            walk.node(*stack.pop())
        elif read in opened:
            stack.pop()
            walk.build(_equation(walk, computed), read[1])
        elif joined := _joined(walk, computed):  # its operands are not made
            walk.nodes[computed] = joined
            stack.pop()
        else:
            opened.add(read)
            stack.extend(reversed(_first(walk, computed)))


def _computed(walk: Making, read: Read) -> Computed | None:
    """The same, if an equation of this walk's jaxpr makes it, but no loop, and has not yet."""
    atom, demand = read
    if isinstance(atom, Literal | Filling) or atom not in walk.makers or atom in walk.buffers:
        return None
    if (atom, demand) in walk.nodes:
        return None
    if walk.makers[atom] in walk.entered:
        if atom not in walk.outside:
            walk.leave(walk.makers[atom])
        if atom not in walk.outside:
            raise CompilerBug(f"a loop needs a value of its own end, {atom}, before it is over")
        return None
    return atom, demand


def _equation(walk: Making, read: Computed) -> Eqn:
    return walk.jaxpr.eqns[walk.makers[read[0]]]


def _joined(walk: Making, read: Computed) -> Node | None:
    """One sum of the terms of several contractions, if that is what the value is."""
    asked = walk.reads[read]
    return joint_sums.build(walk, _equation(walk, read), asked, read[1][0]) if isinstance(asked, Elements) else None


def _first(walk: Making, read: Computed) -> list[Read]:
    """What has to be made before a value is: the numbers in its place, and its operands."""
    place, guard = read[1]
    indices = [*place, *(condition.index for condition in guard)]
    numbers = [walk.numbers[number.key] for index in indices for number in computed_in(index)]
    return [*((atom, demand) for other, atom, demand in numbers if other is walk), *reads_of(walk.reads[read])]
