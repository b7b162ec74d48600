"""What is computed of what tiles of steps have stored, once that is one array → computed in tiles, and then one array.

    ys:f32[16,128,8] = scan …;  y:f32[2048,8] = reshape ys;  z = mul y x
        →    u:f32[16,128,8] = reshape x;  v = mul ys u;  z:f32[2048,8] = reshape v

A loop goes on with what it has just computed, and stores results in any order; what is one array in memory already
needs no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jax import lax

from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")


@dataclass(frozen=True)
class Tiled:
    """A value as one array, and as it is in tiles, of which several dimensions are one of the array."""

    whole: Value
    tiles: Value
    place: int = 0  # of that dimension

    @property
    def joined(self) -> int:
        return int(self.tiles.ndim - self.whole.ndim + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.tiles.shape[self.place : self.place + self.joined])

    def dims(self, dim: int) -> Sequence[int]:
        """The dimensions of the tiles that one of the whole is."""
        first = dim if dim <= self.place else dim + self.joined - 1
        return range(first, first + self.joined) if dim == self.place else (first,)


def compute_in_tiles(closed: Closed) -> Closed:
    """Let element-wise functions, transpositions and reductions of what a loop stores in tiles be computed in those."""
    jaxpr, makers = closed.jaxpr, makers_of(closed.jaxpr)

    def is_stored(atom: Atom) -> bool:
        """By a loop, in whatever order."""
        while not isinstance(atom, Literal) and atom in makers:
            maker = jaxpr.eqns[makers[atom]]
            if maker.primitive.name != "transpose":
                return maker.primitive.name == "scan"
            atom = maker.invars[0]
        return False

    def is_joined(eqn: Eqn) -> bool:
        (atom,) = eqn.invars
        if not is_stored(atom) or eqn.params["dimensions"] is not None:
            return False
        tiles, whole = atom.aval.shape, eqn.outvars[0].aval.shape
        joined = len(tiles) - len(whole) + 1
        return joined > 1 and tiles[joined:] == whole[1:] and math.prod(tiles[:joined]) == whole[0]

    stored = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "reshape" and is_joined(eqn)]
    found = {id(eqn) for eqn in stored}

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if id(node.equation) in found:
            return [_remembered(Tiled(rewriter.again(node)[0], node.args[0]), rewriter)]
        known = [rewriter.notes.get(id(arg)) for arg in node.args]
        if not any(known) or len(node.out_avals) > 1:
            return None
        return _in_tiles(node, known, rewriter)

    return rewrite(closed, rule) if found else closed


def _remembered(tiled: Tiled, rewriter: Rewriter) -> Value:
    rewriter.notes[id(tiled.whole)] = tiled
    return tiled.whole


def _in_tiles(node: Node, known: Sequence[Tiled | None], rewriter: Rewriter) -> Sequence[Value] | None:
    first = next(each for each in known if each is not None)
    if len(node.out_avals) != 1:
        return None
    (aval,), place = node.out_avals, first.place
    if isinstance(TABLE.get(node.name), Pointwise):
        if aval.shape != first.whole.shape or any(_differ(each, first) for each in known):
            return None
        parts = [each.tiles if each else _cut(arg, first) for arg, each in zip(node.args, known)]
        made = rewriter.write(node, *parts)
    elif node.primitive is boundary_p:
        made = rewriter.write(node, first.tiles, dim=first.dims(node.params["dim"])[0])
    elif node.name == "transpose":
        order = node.params["permutation"]
        made = rewriter.write(node, first.tiles, permutation=tuple(each for dim in order for each in first.dims(dim)))
        place = order.index(place)
    elif node.name in REDUCTIONS:
        axes = node.params["axes"]
        made = rewriter.write(node, first.tiles, axes=tuple(each for dim in axes for each in first.dims(dim)))
        if place in axes:
            return [made]
        place -= sum(dim < place for dim in axes)
    else:
        return None
    return [_remembered(Tiled(lax.reshape(made, aval.shape), made, place), rewriter)]


def _differ(one: Tiled | None, other: Tiled) -> bool:
    return one is not None and (one.sizes, one.place) != (other.sizes, other.place)


def _cut(value: Value, like: Tiled) -> Value:
    """An operand of an element-wise function in the same tiles; what has one element there is the same for all."""
    shape, place = getattr(value, "shape", ()), like.place
    if not shape:
        return value
    sizes = like.sizes if shape[place] > 1 else (1,) * like.joined
    return lax.reshape(value, (*shape[:place], *sizes, *shape[place + 1 :]))
