"""Which dimensions of its operands an equation's result has again: what its row says about places, read off once.

y:f32[4,3] = transpose[permutation=(1, 0)] x     →   x's 0 is y's 1, x's 1 is y's 0
y:f32[3,9] = pad[padding_config=((0,0,0), (2,3,0))] x 0.0     →   x's 0 is y's 0
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep, axis_of
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

UNTOUCHED = frozenset({"copy", "stop_gradient", "optimization_barrier"})  # they have no rows and change nothing


@dataclass(frozen=True)
class Kept:
    """A dimension of an operand (by position) that goes on as a dimension of the result, of the same size.

    Of moves only dimensions of more than one element are told: a single one is at index 0 anyway.
    """

    operand: int
    dim: int
    place: int  # in the result
    exact: bool = True  # read at the index that is wanted; otherwise at one that moves with it: reversed, shifted


@dataclass(frozen=True)
class Dims:
    kept: tuple[Kept, ...]
    fresh: frozenset[int] = frozenset()  # dimensions of the result along which nothing is read


def dims_of(eqn: Any) -> Dims | None:
    """What the row of the equation's primitive says; None if it has no row."""
    row, name = TABLE.get(eqn.primitive.name), eqn.primitive.name
    match row:
        case Indexing():
            return _read_off(eqn, row)
        case Reduction():
            return Dims(tuple(_left_by_reduction(eqn)))
        case Pointwise():
            return Dims(tuple(_elementwise(eqn)))
        case Sweep():
            return Dims(tuple(kept for kept in _elementwise(eqn) if kept.dim != axis_of(eqn)))
    if name == "dot_general":
        return Dims(tuple(_left_by_contraction(eqn)))
    if name == "iota":
        return Dims((), frozenset(range(len(eqn.outvars[0].aval.shape))))
    return Dims(tuple(_elementwise(eqn))) if name in DECOMPOSITIONS or name in UNTOUCHED else None


def beside_places(eqn: Any) -> Dims | None:
    """The dimensions that are whole in each of the pieces that are read or written at computed places, and those along
    which each index has a place of its own.

    z:f32[4,7] = scatter[update_window_dims=(0,) inserted_window_dims=(1,)] x:f32[4,7] i y:f32[4]
        →   the 0 of x, of y and of z are one
    y:f32[9] = gather x:f32[50] i:i32[9,1]
        →   the 0 of i and of y are one
    """
    pairs: Iterable[tuple[int, int, int]]
    match eqn.primitive.name:
        case "dynamic_slice":
            pairs = [(0, d, d) for d in range(len(eqn.invars[0].aval.shape))]
        case "dynamic_update_slice":
            pairs = [(1, d, d) for d in range(len(eqn.invars[0].aval.shape))]
        case "gather":
            pairs = _gathered(eqn)
        case "accumulate":
            pairs = _accumulated(eqn)
        case "scatter" | "scatter-add" | "scatter-mul" | "scatter-min" | "scatter-max":
            pairs = _scattered(eqn)
        case _:
            return None
    result = eqn.outvars[0].aval.shape
    same = [(operand, d, place) for operand, d, place in pairs if eqn.invars[operand].aval.shape[d] == result[place]]
    kept = [Kept(operand, d, place) for operand, d, place in same]
    if eqn.primitive.name not in ("accumulate", "dynamic_slice", "gather"):  # what is written is an operand, too
        kept += [Kept(0, place, place) for _, _, place in same]
    return Dims(tuple(kept))


def _gathered(eqn: Any) -> Iterator[tuple[int, int, int]]:
    """(operand, its dimension, the result's), of windows and of index arrays."""
    numbers = eqn.params["dimension_numbers"]
    array, indices = (atom.aval.shape for atom in eqn.invars)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    yield from ((0, d, place) for d, place in zip(_others(array, gone), numbers.offset_dims))
    slots = _others(eqn.outvars[0].aval.shape, numbers.offset_dims)
    yield from ((1, slot, place) for slot, place in enumerate(slots))
    batches = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims)
    yield from ((0, d, slots[slot]) for d, slot in batches)


def _scattered(eqn: Any) -> Iterator[tuple[int, int, int]]:
    """The same of what is written; of index arrays, where each index has a part of the array for itself."""
    numbers = eqn.params["dimension_numbers"]
    array, _, updates = (atom.aval.shape for atom in eqn.invars)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    yield from ((2, place, d) for d, place in zip(_others(array, gone), numbers.update_window_dims))
    slots = _others(updates, numbers.update_window_dims)
    for d, slot in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims):
        yield from ((1, slot, d), (2, slots[slot], d))


def _accumulated(eqn: Any) -> Iterator[tuple[int, int, int]]:
    batch, indexed, rank = eqn.params["batch"], eqn.params["indexed"], len(eqn.outvars[0].aval.shape)
    for d in (*range(batch), *range(batch + indexed, rank)):
        yield 2, d + 1, d
    yield from ((1, d + 1, d) for d in range(batch))


def _others(shape: Sequence[int], dims: Collection[int]) -> list[int]:
    return [d for d in range(len(shape)) if d not in dims]


def is_elementwise(name: str) -> bool:
    """Whether a primitive reads its operands where its result is wanted, and nowhere else."""
    return isinstance(TABLE.get(name), Pointwise) or name in DECOMPOSITIONS


def _elementwise(eqn: Any) -> Iterator[Kept]:
    out = eqn.outvars[0].aval.shape
    for operand, atom in enumerate(eqn.invars):
        shape = atom.aval.shape
        if len(shape) == len(out):
            yield from (Kept(operand, d, d) for d, size in enumerate(shape) if size == out[d])


def _left_by_reduction(eqn: Any) -> Iterator[Kept]:
    left = [d for d in range(len(eqn.invars[0].aval.shape)) if d not in eqn.params["axes"]]
    yield from (Kept(operand, d, place) for operand in range(len(eqn.invars)) for place, d in enumerate(left))


def _left_by_contraction(eqn: Any) -> Iterator[Kept]:
    (left_sums, right_sums), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = (range(len(atom.aval.shape)) for atom in eqn.invars)
    free = [(0, d) for d in left if d not in (*left_sums, *left_batch)]
    free += [(1, d) for d in right if d not in (*right_sums, *right_batch)]
    for place, (one, other) in enumerate(zip(left_batch, right_batch)):
        yield from (Kept(0, one, place), Kept(1, other, place))
    yield from (Kept(operand, d, place) for place, (operand, d) in enumerate(free, len(left_batch)))


def _read_off(eqn: Any, row: Indexing) -> Dims:
    """Ask the row where it reads, with a different axis along each dimension of the result."""
    shape = eqn.outvars[0].aval.shape
    axes = [Axis(f"d{place}", size) for place, size in enumerate(shape)]
    places = {axis: place for place, axis in enumerate(axes)}
    pieces = row.read(eqn, tuple(map(of_axis, axes)))
    kept = []
    touched: set[Axis] = set()
    for piece in pieces:
        touched.update(*(index.axes for index in piece.index), *(c.index.axes for c in piece.conditions))
        for d, (index, size) in enumerate(zip(piece.index, eqn.invars[piece.operand].aval.shape)):
            along = [axis for axis in index.axes if axis.size == size]
            if len(index.axes) == len(along) == 1 and index.coefficient(along[0]) in (1, -1):
                kept.append(Kept(piece.operand, d, places[along[0]], index == of_axis(along[0])))
    return Dims(tuple(kept), frozenset(places[axis] for axis in axes if axis not in touched))
