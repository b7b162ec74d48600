"""Where a carried value is found: the tile of its lanes, the tile along other axes, or one of several variables.

c[i + 1]     →  tl.gather(c, i + 1, 0)
c.T          →  tl.trans(c)
c[i, j]      →  tl.gather(tl.reshape(c, …), i * 8 + j, 0)
c[2], c[n]   →  c_3,  tl.where(n == 0, c_1, tl.where(n == 1, c_2, c_3))
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.nodes import Demand, Node, Place
from jaxpr2triton.ir.index import Axis, Condition, Index, decide, divide, modulo, of_axis, plain_axis, shift


def found_at(builder: Builder, tiles: Mapping[Place, Node], demand: Demand) -> Node:
    """A carried value at some place: the tile itself, the tile along another axis, or one of several variables."""
    place, _ = demand
    if place in tiles:
        return tiles[place]
    pieces = []
    for usual, node in tiles.items():
        conditions = _lying_in(usual, place)
        decided = [decide(condition) for condition in conditions]
        if False not in decided:
            undecided = tuple(c for c, known in zip(conditions, decided) if known is None)
            pieces.append((undecided, _along(builder, node, usual, place)))
    return builder.chosen_from(pieces)


def _lying_in(usual: Place, place: Place) -> list[Condition]:
    """When a place is one of those where a tile lies."""
    found = []
    for have, want in zip(usual, place):
        low, high = have.bounds
        if have != want:
            found.append(Condition(want, low, high + 1))
        if have != want and have.terms and have.terms[0][1] > 1:
            found.append(Condition(modulo(shift(want, -low), have.terms[0][1]), 0, 1))
    return found


def _along(builder: Builder, node: Node, usual: Place, place: Place) -> Node:
    """A tile, read at other indices of its axes."""
    moves: dict[Axis, Index] = {}
    for have, want in zip(usual, place):
        if have == want or not have.terms:
            continue
        axis, step = have.terms[0]
        if len(have.terms) > 1 or not isinstance(axis, Axis) or step < 1:
            raise CompilerBug(f"a carried value that runs along {have} is wanted at {want}")
        moves[axis] = divide(shift(want, -have.const), step)
    moves = {axis: want for axis, want in moves.items() if want != of_axis(axis)}
    while moves:
        ready = [axis for axis in moves if _goes_first(builder, node, moves, axis)]
        for axis in ready:
            node = builder.take(node, axis, moves.pop(axis))
        if not ready:
            return _at_once(builder, node, moves)
    return node


def _goes_first(builder: Builder, node: Node, moves: Mapping[Axis, Index], axis: Axis) -> bool:
    """Whether a tile may be read along one axis before the others: what is wanted along those is found in it still.

    Nor is it read along one first where that would leave a tile with the lanes of the place beside those of another
    axis which is read at a place of the same lanes: of 64 by 64 numbers at 1,000 places 64,000, and 1,000 in the end.
    """
    want, others = moves[axis], [index for other, index in moves.items() if other != axis]
    new = want.axes - node.axes - builder.demands.steps
    alone = plain_axis(want) is not None or all(new.isdisjoint(other.axes) for other in others)
    return alone and want.axes.isdisjoint(moves.keys() - {axis})


def _at_once(builder: Builder, node: Node, moves: Mapping[Axis, Index]) -> Node:
    """A tile read along several axes at once; if they merely change places, and then at other indices of their own."""
    renamed = {axis: other for axis, want in moves.items() for other in want.axes & moves.keys()}
    alone = all(len(want.axes & moves.keys()) == 1 for want in moves.values()) and set(renamed.values()) == set(moves)
    if not alone or any(axis.size != other.size for axis, other in renamed.items()):
        return builder.look_up(node, moves)
    node = builder.look_up(node, {axis: of_axis(other) for axis, other in renamed.items()})
    for axis, want in moves.items():
        if want != of_axis(renamed[axis]):
            node = builder.take(node, renamed[axis], want)
    return node
