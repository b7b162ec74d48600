"""Which dimensions of a loop's body are mixed: at one index of them, something is read at another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.ir.scans import LOOPS, Scan, outer_dims, scan_of, ties, time_dims
from jaxpr2triton.rules.dims import Dims, Kept, dims_of

Dim = tuple[Any, int]


class Coupling:
    """The classes of a body's dimensions, and which of them keep the steps of different indices from being apart.

    A coarse answer, for choosing between programs that compute the same: a class counts as mixed when anything sums,
    slices, pads, joins or looks up along it, or when one value has two dimensions of it.
    """

    def __init__(self, eqns: Sequence[Any], tied: Iterable[tuple[Dim, Dim]]) -> None:
        self._classes = Classes(eqns, (*tied, *(pair for eqn in eqns for pair in _joined(eqn))))
        self._mixed = {self._classes.find(dim) for eqn in eqns for dim in coupled_dims(eqn)}
        for var in (var for eqn in eqns for var in eqn.outvars):
            kinds = [self._classes.find((var, d)) for d, size in enumerate(_shape(var)) if size != 1]
            self._mixed.update(kind for kind in kinds if kinds.count(kind) > 1)

    def is_apart(self, var: Any, dim: int) -> bool:
        """True if a program may run some indices of this dimension, and other programs the others."""
        if isinstance(var, jex.Literal) or _shape(var)[dim] == 1:
            return False
        return self._classes.find((var, dim)) not in self._mixed


def _joined(eqn: Any) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that go on where places are computed."""
    for kept in (_beside_places(eqn) or Dims(())).kept:
        if not isinstance(atom := eqn.invars[kept.operand], jex.Literal):
            yield (atom, kept.dim), (eqn.outvars[0], kept.place)


def coupled_dims(eqn: Any) -> list[Dim]:
    """Dimensions that one equation mixes."""
    if eqn.primitive.name in LOOPS:
        return _coupled_by_loop(scan_of(eqn))
    dims = dims_of(eqn) or _beside_places(eqn)
    if dims is None:
        return _all_dims((*eqn.invars, *eqn.outvars))
    exact = [kept for kept in dims.kept if kept.exact]
    read = {(kept.operand, kept.dim) for kept in exact}
    made = {kept.place for kept in exact} | dims.fresh
    mixed = [(atom, d) for n, atom in enumerate(eqn.invars) for atom, d in _all_dims([atom]) if (n, d) not in read]
    mixed += [dim for dim in _all_dims(eqn.outvars) if dim[1] not in made]
    return [(atom, d) for atom, d in mixed if _shape(atom)[d] != 1]


def _beside_places(eqn: Any) -> Dims | None:
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
            pairs = [(0, d, d) for d in range(len(_shape(eqn.invars[0])))]
        case "dynamic_update_slice":
            pairs = [(1, d, d) for d in range(len(_shape(eqn.invars[0])))]
        case "gather":
            pairs = _gathered(eqn)
        case "scatter" | "scatter-add" | "scatter-mul" | "scatter-min" | "scatter-max":
            pairs = _scattered(eqn)
        case _:
            return None
    result = _shape(eqn.outvars[0])
    same = [(operand, d, place) for operand, d, place in pairs if _shape(eqn.invars[operand])[d] == result[place]]
    kept = [Kept(operand, d, place) for operand, d, place in same]
    if eqn.primitive.name not in ("dynamic_slice", "gather"):  # what is written is an operand, too
        kept += [Kept(0, place, place) for _, _, place in same]
    return Dims(tuple(kept))


def _gathered(eqn: Any) -> Iterator[tuple[int, int, int]]:
    """(operand, its dimension, the result's), of windows and of index arrays."""
    numbers = eqn.params["dimension_numbers"]
    array, indices = map(_shape, eqn.invars)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    yield from ((0, d, place) for d, place in zip(_others(array, gone), numbers.offset_dims))
    slots = _others(_shape(eqn.outvars[0]), numbers.offset_dims)
    yield from ((1, slot, place) for slot, place in enumerate(slots))
    batches = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims)
    yield from ((0, d, slots[slot]) for d, slot in batches)


def _scattered(eqn: Any) -> Iterator[tuple[int, int, int]]:
    """The same of what is written; of index arrays, where each index has a part of the array for itself."""
    numbers = eqn.params["dimension_numbers"]
    array, _, updates = map(_shape, eqn.invars)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    yield from ((2, place, d) for d, place in zip(_others(array, gone), numbers.update_window_dims))
    slots = _others(updates, numbers.update_window_dims)
    for d, slot in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims):
        yield from ((1, slot, d), (2, slots[slot], d))


def _others(shape: Sequence[int], dims: Collection[int]) -> list[int]:
    return [d for d in range(len(shape)) if d not in dims]


def _coupled_by_loop(scan: Scan) -> list[Dim]:
    inner = Coupling(scan.body.eqns, ties(scan))
    pairs = [(outer, dim) for outer, dim in outer_dims(scan) if not inner.is_apart(*dim)]
    return [outer for outer, _ in pairs] + time_dims(scan)


def _all_dims(variables: Iterable[Any]) -> list[Dim]:
    named = (var for var in variables if not isinstance(var, jex.Literal))
    return [(var, d) for var in named for d in range(len(_shape(var)))]


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))
