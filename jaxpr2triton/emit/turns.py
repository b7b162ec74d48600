"""A tile with its dimensions in another order.

    turned = tl.permute(state, (1, 0))

In a loop Triton may never come back from that, where threads hold copies of a tile of so few elements: to save a change
of layout it computes what is reduced of the turned tile once more in the other layout, for which the carried tile has
to be turned once more, and so on round the loop. It never computes a `gather` twice, and for so few elements one
takes no more instructions:

    places = tl.arange(0, 16) % 4 * 4 + tl.arange(0, 16) // 4
    turned = tl.reshape(tl.gather(tl.reshape(state, (16,)), places, axis=0), (4, 4))

Made of `row[None, :]`, the places would be in a layout of their own, which what is computed with the turned tile takes
on, sums included that are wanted in another one as well.

What is turned back is what it was before, and takes no instruction:

    back = tl.permute(turned, (1, 0))    →    state
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from functools import reduce

from jaxpr2triton.emit.text import Spelling, Tile
from jaxpr2triton.graph.nodes import Lookup, Node, Take
from jaxpr2triton.ir.index import Axis, plain_axis
from jaxpr2triton.ir.tree import expr, scaled, sum_of


def renames(spell: Spelling, node: Node) -> Mapping[Axis, Axis]:
    """The axes that a node does nothing with but give them other names; none if it does more."""
    match node:
        case Lookup():
            renamed = node.turned
        case Take() if (target := plain_axis(node.index)) is not None and target not in node.source.axes:
            renamed = {node.axis: target}
        case _:
            return {}
    return renamed if all(_are_alike(spell, *pair) for pair in renamed.items()) else {}


def names_before(spell: Spelling, node: Node) -> Iterator[tuple[Node, Mapping[Axis, Axis]]]:
    """What a node is under other names, then what that is …, and what the axes of each are called now."""
    now = {axis: axis for axis in node.axes}
    while isinstance(node, Take | Lookup) and (renamed := renames(spell, node)):
        node = node.source
        now = {axis: now[renamed.get(axis, axis)] for axis in node.axes}
        yield node, now


def in_places(tile: Tile, names: Mapping[Axis, Axis]) -> Tile:
    """A tile by other names."""
    return tuple(names[axis] for axis in tile)


def _are_alike(spell: Spelling, one: Axis, other: Axis) -> bool:
    mine, theirs = spell.planned[one], spell.planned[other]
    are_lanes = mine.role.is_vectorized and theirs.role.is_vectorized
    return are_lanes and mine.block == theirs.block and one.size == other.size


def permuted(value: ast.expr, places: Tile, tile: Tile) -> ast.expr:
    """The tile `value` whose dimensions lie along `places`, in the order of `tile`."""
    return expr("tl.permute({}, {})", value, tuple(places.index(axis) for axis in tile))


def gathered(spell: Spelling, value: ast.expr, places: Tile, tile: Tile, is_bool: bool) -> ast.expr:
    """The same, element by element."""
    size = math.prod(spell.planned[axis].block for axis in tile)
    now = dict(zip(tile, _strides(spell, tile)))
    parts = (_element(spell, axis, size, now[axis], times) for axis, times in zip(places, _strides(spell, places)))
    value = expr("{}.to(tl.int32)", value) if is_bool else value
    moved = expr("tl.gather(tl.reshape({}, {}), {}, axis=0)", value, (size,), reduce(sum_of, parts))
    whole = expr("tl.reshape({}, {})", moved, spell.shape(tile))
    return expr("{} != 0", whole) if is_bool else whole


def _strides(spell: Spelling, tile: Tile) -> list[int]:
    blocks = [spell.planned[axis].block for axis in tile]
    return [math.prod(blocks[n + 1 :]) for n in range(len(blocks))]


def _element(spell: Spelling, axis: Axis, size: int, stride: int, times: int) -> ast.expr:
    """Where along an axis the elements of a tile lie, one after the other, times a number."""
    block = spell.planned[axis].block
    place = expr("tl.arange(0, {})", size)
    place = place if stride == 1 else expr("{} // {}", place, stride)
    place = place if stride * block == size else expr("{} % {}", place, block)
    return scaled(place, times)


def is_held_in_copies(spell: Spelling, tile: Tile, threads: int) -> bool:
    """Whether more threads than elements hold a tile, all of whose axes begin with it."""
    planned = [spell.planned[axis] for axis in tile]
    return all(p.role.is_vectorized for p in planned) and math.prod(p.block for p in planned) < threads
