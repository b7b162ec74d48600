"""Primitives that compute nothing: an output element IS an operand element, found at another index.

A rule maps (equation, index of an output element) to `Piece`s. The first piece whose conditions hold gives the value;
the last piece has no say in it, so its conditions only tell which elements of its operand exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.index import ZERO, Condition, Index, add, divide, flatten, modulo, scale, shift, unflatten, within


@dataclass(frozen=True)
class Piece:
    """The operand (by position) and the index at which it is read, wherever all conditions hold."""

    operand: int
    index: tuple[Index, ...]
    conditions: tuple[Condition, ...] = ()


Read = Callable[[Any, tuple[Index, ...]], tuple[Piece, ...]]


@dataclass(frozen=True)
class Indexing:
    read: Read
    refuse: Callable[[Any], WhyNot | None] = lambda eqn: None


def _broadcast_in_dim(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    shape = eqn.invars[0].aval.shape
    places = eqn.params["broadcast_dimensions"]
    return (Piece(0, tuple(ZERO if size == 1 else index[place] for size, place in zip(shape, places))),)


def _reshape(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    target, shape = eqn.outvars[0].aval.shape, eqn.invars[0].aval.shape
    order = eqn.params["dimensions"] or range(len(shape))  # the operand may be transposed first
    source = [ZERO] * len(shape)
    for dims, places in groups_of_reshape([d for d in order if shape[d] != 1], shape, target):
        flat = flatten([index[place] for place in places], [target[place] for place in places])
        for d, part in zip(dims, unflatten(flat, [shape[d] for d in dims])):
            source[d] = part
    return (Piece(0, tuple(source)),)


def groups_of_reshape(
    dims: Sequence[int], shape: Sequence[int], target: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """The least groups of dimensions that a reshape turns into each other: `(2, 3, 20) → (6, 4, 5)` has two."""
    left, right = list(dims), [place for place, size in enumerate(target) if size != 1]
    while left:
        group, places = [left.pop(0)], [right.pop(0)]
        while (before := _count(shape, group)) != (after := _count(target, places)):
            group, places = (group + [left.pop(0)], places) if before < after else (group, places + [right.pop(0)])
        yield group, places


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


def _transpose(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    source = [ZERO] * len(index)
    for place, axis in enumerate(eqn.params["permutation"]):
        source[axis] = index[place]
    return (Piece(0, tuple(source)),)


def _squeeze(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    rank = len(eqn.invars[0].aval.shape)
    dropped = {axis % rank for axis in eqn.params["dimensions"]}
    kept = iter(index)
    return (Piece(0, tuple(ZERO if axis in dropped else next(kept) for axis in range(rank))),)


def _slice(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    strides = map(int, eqn.params["strides"] or (1,) * len(index))
    starts = map(int, eqn.params["start_indices"])
    return (Piece(0, tuple(shift(scale(i, stride), start) for i, stride, start in zip(index, strides, starts))),)


def _rev(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    shape = eqn.invars[0].aval.shape
    turned = eqn.params["dimensions"]
    return (Piece(0, tuple(shift(scale(i, -1), shape[d] - 1) if d in turned else i for d, i in enumerate(index))),)


def _pad(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    shape = eqn.invars[0].aval.shape
    source, conditions = [], []
    for i, size, (before, _, between) in zip(index, shape, eqn.params["padding_config"]):
        low, interior = int(before), int(between)  # JAX leaves NumPy integers here
        place = shift(i, -low)
        step = interior + 1
        conditions.append(Condition(place, 0, (size - 1) * step + 1))
        if interior:
            conditions.append(Condition(modulo(place, step), 0, 1))
        source.append(divide(place, step))
    return (Piece(0, tuple(source), tuple(conditions)), Piece(1, ()))


def _concatenate(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    axis = eqn.params["dimension"]
    pieces, start = [], 0
    for operand, var in enumerate(eqn.invars):
        size = var.aval.shape[axis]
        if size:
            place = index[:axis] + (shift(index[axis], -start),) + index[axis + 1 :]
            pieces.append(Piece(operand, place, (Condition(index[axis], start, start + size),)))
        start += size
    return tuple(pieces)


def _chunked(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    return (Piece(0, index, within(index, eqn.invars[0].aval.shape)),)


def _windowed(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    params = eqn.params
    dim = params["dim"]
    place = add(scale(index[dim], params["stride"]), scale(index[dim + 1], params["dilation"]))
    return (Piece(0, (*index[:dim], place, *index[dim + 2 :])),)


def _flagged(eqn: Any, index: tuple[Index, ...]) -> tuple[Piece, ...]:
    return (Piece(0, index),)


def _scalar_padding(eqn: Any) -> WhyNot | None:
    return None if eqn.invars[0].aval.size else WhyNot("it pads an array without elements")


TABLE: dict[str, Indexing] = {
    "broadcast_in_dim": Indexing(_broadcast_in_dim),
    "reshape": Indexing(_reshape),
    "transpose": Indexing(_transpose),
    "squeeze": Indexing(_squeeze),
    "slice": Indexing(_slice),
    "rev": Indexing(_rev),
    "pad": Indexing(_pad, refuse=_scalar_padding),
    "concatenate": Indexing(_concatenate),
    "chunked": Indexing(_chunked),
    "windowed": Indexing(_windowed),
    "flagged": Indexing(_flagged),
}

MOVES = frozenset({*TABLE, "iota"})  # what only says where an element is


def iota_place(eqn: Any, index: tuple[Index, ...]) -> Index:
    """The one primitive that turns an index into a value."""
    return add(index[eqn.params["dimension"]])
