"""Where the windows of an array lie that are read or written at computed places, so that two such places can be one.

b = gather x (concatenate (broadcast_in_dim i) 0)    →    1 by 4 of x, at component 0 of one that is i
b = dynamic_slice x i 0                              →    the same
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax import lax

from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.normalize.arrays.affine_windows import Places, gathered, scattered
from jaxpr2triton.rules.writes import is_usual

Makers = Callable[[Var], Eqn | None]
Component = tuple[Atom, int | None]  # an array of integers, and which column of it; None: all of it
READS = ("gather", "dynamic_slice")
WRITES = ("scatter", "dynamic_update_slice")
CLAMPED = lax.GatherScatterMode.CLIP


@dataclass(frozen=True)
class Windows:
    """Windows of an array, but for the numbers that are computed, and in which order their elements are given."""

    sizes: tuple[int, ...]  # along each dimension of the array
    starts: tuple[int | None, ...]  # the number of the computed start; None: at 0, or one for each of a batch
    batches: tuple[int | None, ...]  # which dimension of the index array, if that is so
    order: tuple[tuple[str, int], ...]  # what each dimension of the windows is: of the index array, or of the array
    mode: object  # what becomes of places outside

    def is_of(self, read: Windows) -> bool:
        """Whether what is written here, if it was read there, is what stands here."""
        same = (self.sizes, self.starts, self.batches, self.order) == (
            read.sizes,
            read.starts,
            read.batches,
            read.order,
        )
        return same and (self.mode != CLAMPED or read.mode == CLAMPED)  # others are not written outside


def windows_of(eqn: Eqn, makers: Makers) -> tuple[Windows, list[Component]] | None:
    """What an equation reads or writes, and the starts of the windows; None where it is none of these."""
    name = eqn.primitive.name
    shapes = [tuple(getattr(atom.aval, "shape", ())) for atom in eqn.invars]
    if name == "gather":
        places = gathered(eqn.params, shapes[0], shapes[1])
        result, windows = eqn.outvars[0].aval.shape, eqn.params["dimension_numbers"].offset_dims
    elif name == "scatter" and is_usual(name, eqn.params):
        places = scattered(eqn.params, *shapes)
        result, windows = shapes[2], eqn.params["dimension_numbers"].update_window_dims
    elif name in ("dynamic_slice", "dynamic_update_slice"):
        first = 1 if name == "dynamic_slice" else 2
        sizes = eqn.outvars[0].aval.shape if name == "dynamic_slice" else shapes[1]
        return _at([(atom, None) for atom in eqn.invars[first:]], tuple(sizes))
    else:
        return None
    columns = [_column(eqn.invars[1], column, makers) for column in range(len(places.indexed))]
    return _beside(places, columns, result, tuple(map(int, windows)), eqn.params["mode"])


def _at(starts: Sequence[Component], sizes: tuple[int, ...]) -> tuple[Windows, list[Component]]:
    numbers, components = _numbered(dict(enumerate(starts)), len(sizes))
    order = tuple(("array", d) for d, size in enumerate(sizes) if size != 1)
    return Windows(sizes, numbers, (None,) * len(sizes), order, CLAMPED), components


def _beside(
    places: Places, columns: Sequence[Component], result: Sequence[int], windows: Sequence[int], mode: object
) -> tuple[Windows, list[Component]]:
    rank = len(places.shape)
    numbers, components = _numbered(dict(zip(places.indexed, columns)), rank)
    wide = [slot for slot, size in enumerate(places.lead) if size != 1]  # a single index may stand anywhere
    offsets, slots = iter(places.offsets), iter(range(len(places.lead)))
    named = [("array", next(offsets)) if d in windows else ("index", next(slots)) for d in range(len(result))]
    order = [(kind, wide.index(n) if kind == "index" else n) for (kind, n), size in zip(named, result) if size != 1]
    batches = tuple(wide.index(slot) if (slot := places.batching.get(d)) in wide else None for d in range(rank))
    sizes = tuple(1 if d in places.batching else size for d, size in enumerate(places.window))
    return Windows(sizes, numbers, batches, tuple(order), mode), components


def _numbered(starts: Mapping[int, Component], rank: int) -> tuple[tuple[int | None, ...], list[Component]]:
    """The computed starts by number, without those that are known to be 0."""
    found = {d: start for d, start in starts.items() if not _is_zero(start[0])}
    numbers = {d: number for number, d in enumerate(sorted(found))}
    return tuple(numbers.get(d) for d in range(rank)), [found[d] for d in sorted(found)]


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and not np.any(atom.val)


def _column(indices: Atom, column: int, makers: Makers) -> Component:
    """What a column of an index array is made of."""
    last = len(indices.aval.shape) - 1
    while not isinstance(indices, Literal) and (eqn := makers(indices)) is not None:
        if eqn.primitive.name == "concatenate" and eqn.params["dimension"] == last:
            indices, column = _part(eqn.invars, column, last)
            continue
        operand = eqn.invars[0]
        is_number = eqn.primitive.name == "broadcast_in_dim" and not operand.aval.shape
        is_one_column = indices.aval.shape[last] == 1 and is_moved(eqn)
        return (operand, None) if is_number or is_one_column else (indices, column)
    return indices, column


def _part(parts: Sequence[Atom], column: int, dim: int) -> tuple[Atom, int]:
    """Which of several arrays side by side has a column, and which one of its own that is."""
    for part in parts:
        if column < part.aval.shape[dim]:
            break
        column -= part.aval.shape[dim]
    return part, column


def is_moved(eqn: Eqn) -> bool:
    """Whether a result has the elements of its operand in their order, but for dimensions of one element."""
    if eqn.primitive.name not in ("reshape", "broadcast_in_dim", "squeeze", "expand_dims"):
        return False
    if eqn.params.get("dimensions") is not None and eqn.primitive.name == "reshape":
        return False
    before, after = ([size for size in atom.aval.shape if size != 1] for atom in (eqn.invars[0], eqn.outvars[0]))
    return before == after
