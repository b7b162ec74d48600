"""A tile with its dimensions in another order.

    turned = tl.permute(state, (1, 0))

In a loop Triton may never come back from that, where threads hold copies of a tile of so few elements: to save a change
of layout it computes what is reduced of the turned tile once more in the other layout, for which the carried tile has
to be turned once more, and so on round the loop. It never computes a `gather` twice, and for so few elements one
takes no more instructions:

    places = row[None, :] * 4 + row[:, None]
    turned = tl.reshape(tl.gather(tl.reshape(state, (16,)), tl.reshape(places, (16,)), axis=0), (4, 4))
"""

from __future__ import annotations

import math

from jaxpr2triton.emit.text import Spelling, Tile
from jaxpr2triton.ir.index import add, of_axis, scale
from jaxpr2triton.ir.kernel import Role


def permuted(text: str, places: Tile, tile: Tile) -> str:
    """The tile `text` whose dimensions lie along `places`, in the order of `tile`."""
    return f"tl.permute({text}, {tuple(places.index(axis) for axis in tile)})"


def gathered(spell: Spelling, text: str, places: Tile, tile: Tile, is_bool: bool) -> str:
    """The same, element by element."""
    blocks = [spell.planned[axis].block for axis in places]
    strides = [math.prod(blocks[n + 1 :]) for n in range(len(blocks))]
    place = spell.index(add(*(scale(of_axis(axis), stride) for axis, stride in zip(places, strides))), tile)
    flat = f"({math.prod(blocks)},)"
    value = f"{text}.to(tl.int32)" if is_bool else text
    moved = f"tl.gather(tl.reshape({value}, {flat}), tl.reshape({place}, {flat}), axis=0)"
    whole = f"tl.reshape({moved}, {spell.shape(tile)})"
    return f"{whole} != 0" if is_bool else whole


def is_held_in_copies(spell: Spelling, tile: Tile, threads: int) -> bool:
    """Whether more threads than elements hold a tile, all of whose axes begin with it."""
    planned = [spell.planned[axis] for axis in tile]
    return all(p.role is Role.LANE for p in planned) and math.prod(p.block for p in planned) < threads
