"""Which axes of a kernel are better one, and which are better cut into pieces.

Axes that every reduction treats alike are one candidate axis. They are merged where they lie next to each other in
every array that is touched; otherwise they are flattened all the same where division and remainder are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import (
    Accumulated,
    Collected,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Position,
    Product,
    Recurrence,
    Swept,
    Take,
)
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.index import (
    Axis,
    Index,
    Remainder,
    add,
    flatten,
    of_axis,
    scale,
    unflatten,
)
from jaxpr2triton.policy import Policy


@dataclass(frozen=True)
class Cut:
    """An axis in equal pieces: `unrolled` runs over the pieces, `rest` within one (or between, when interleaved)."""

    axis: Axis
    unrolled: Axis
    rest: Axis
    interleaved: bool

    @property
    def index(self) -> Index:
        inner, outer = (self.unrolled, self.rest) if self.interleaved else (self.rest, self.unrolled)
        return add(scale(of_axis(outer), inner.size), of_axis(inner))


def offsets_of(graph: Graph, shapes: Sequence[tuple[int, ...]], stored: Sequence[tuple[int, ...]]) -> list[Index]:
    """The place in memory of everything that is loaded or stored."""
    offsets = [flatten(node.place, shapes[node.buffer]) for node in graph.of_kind(Load)]
    offsets += [flatten(place, node.shape) for node in graph.of_kind(Keep) for place in node.places]
    offsets += [flatten(node.place, node.keep.shape) for node in graph.of_kind(Kept)]
    return offsets + [flatten(s.place, stored[s.output]) for s in graph.stores]


def other_indices(space: Space) -> list[Index]:
    """Indices that are used as values or compared."""
    return [c.index for c in space.graph.conditions()] + [node.index for node in space.graph.of_kind(Position)]


def find_cuts(space: Space, axes: Sequence[Axis], policy: Policy) -> list[Cut]:
    """Axes along which equal pieces are joined, as in `concatenate([-x2, x1])` or `stack([a, b], -1)`."""
    boundaries: dict[Axis, set[int]] = {}
    strides: dict[Axis, set[int]] = {}
    for condition in space.graph.conditions():
        if len(condition.index.terms) != 1 or condition.index.terms[0][1] != 1:
            continue
        atom = condition.index.terms[0][0]
        if isinstance(atom, Axis):
            ends = {condition.low - condition.index.const, condition.high - condition.index.const}
            boundaries.setdefault(atom, set()).update(end for end in ends if 0 < end < atom.size)
        elif isinstance(atom, Remainder) and len(atom.of.terms) == 1:
            inner, coef = atom.of.terms[0]  # axis % by, or (axis + 1) % by
            if isinstance(inner, Axis) and coef == 1:
                strides.setdefault(inner, set()).add(atom.by)
    for axis, ends in _read_in_pieces(space):
        boundaries.setdefault(axis, set()).update(ends)
    cuts = []
    total = 1
    whole = _read_everywhere(space)
    for axis in axes:
        pieces = None
        if len(strides.get(axis, ())) == 1:
            (pieces,) = strides[axis]
        elif boundaries.get(axis) and not strides.get(axis):
            pieces = axis.size // math.gcd(axis.size, *boundaries[axis])
        if axis in whole:
            continue
        if pieces is None or axis.size % pieces or total * pieces > numbers.COMMON.few:
            continue
        total *= pieces
        rest = Axis(f"{axis.name}r", axis.size // pieces)
        cuts.append(Cut(axis, Axis(f"{axis.name}u", pieces), rest, bool(strides.get(axis))))
    return cuts


def _read_everywhere(space: Space) -> frozenset[Axis]:
    """The axes along which there had better be no pieces: a look at a computed place would be one into all of them.

    So would a step read what it keeps at many places, each of which would be one of another piece.
    """
    kept = (axis for node in space.graph.of_kind(Keep) if node.axes & space.steps for axis in node.over)
    return space.axes_read_anywhere.union(kept)


def cuts_of(space: Space, axes: Sequence[Axis], pieces: int, policy: Policy) -> list[Cut]:
    """All axes that are cut: those whose lanes read their neighbours into so many pieces, unless that is one."""
    of_lanes = _cuts_of_lanes(space, axes, pieces) if pieces > 1 else []
    whole = {cut.axis for cut in of_lanes}
    return [*of_lanes, *find_cuts(space, [axis for axis in axes if axis not in whole], policy)]


def _cuts_of_lanes(space: Space, axes: Sequence[Axis], pieces: int) -> list[Cut]:
    """Axes along which the steps of a loop read their neighbours, so that a thread has so many of them side by side.

    c[k + 1] of k = 4 i + n is another variable of the same lane, but for n = 3. Not what each step reads or writes in
    memory, whose neighbours had better be in other threads, nor what meets in products, or what another loop lays out.
    """
    if len([*space.graph.of_kind(Recurrence)]) != 1:
        return []
    moved = [node for node in space.graph.of_kind(Take) if node.axis in space.held_axes and node.axes & space.steps]
    beside = {node.axis for node in moved if 0 < abs(_distance(node)) < pieces} - _laid_out(space)
    return [_in_pieces(axis, pieces) for axis in axes if axis in beside and axis.size % pieces == 0]


def _laid_out(space: Space) -> set[Axis]:
    """The axes of what steps read or write in memory, and of what is multiplied, swept or looked up."""
    found: set[Axis] = set()
    for node in space.graph.nodes:
        own = {*node.axes, *(node.over if isinstance(node, Collected) else ())}
        match node:
            case Product() | Swept():
                found |= own
            case Load() | Keep() | Kept() if own & space.steps:
                found |= own
            case Lookup():
                found.update(node.moved, *(index.axes for _, index in node.at))
    places = [{axis for index in place for axis in index.axes} for place in space.places]
    return found.union(*(axes for axes in places if axes & space.steps))


def _in_pieces(axis: Axis, pieces: int) -> Cut:
    return Cut(axis, Axis(f"{axis.name}u", pieces), Axis(f"{axis.name}r", axis.size // pieces), True)


def _distance(node: Take) -> int:
    """How far along its axis a lane reads; 0 where that is not one number."""
    is_shift = node.index.terms == of_axis(node.axis).terms
    return node.index.const if is_shift else 0


def _read_in_pieces(space: Space) -> Iterator[tuple[Axis, set[int]]]:
    """Axes along which an operand is read whole, and also in equal pieces: the four gates of one product."""
    indices: dict[tuple[int, int], list[Index]] = {}
    for node in space.graph.of_kind(Load):
        for d, index in enumerate(node.place):
            indices.setdefault((node.buffer, d), []).append(index)
    for found in indices.values():
        single = {
            (index.terms[0][0], index.const) for index in found if len(index.terms) == 1 and index.terms[0][1] == 1
        }
        axes = [(axis, const) for axis, const in single if isinstance(axis, Axis)]
        for whole in [axis for axis, const in axes if const == 0]:
            sizes = {axis.size for axis, const in axes if const > 0 and const + axis.size <= whole.size}
            for size in sizes if len(sizes) == 1 else ():
                if whole.size % size == 0 and all(const % size == 0 for _, const in axes):
                    yield whole, set(range(size, whole.size, size))


def alike(space: Space, axes: Sequence[Axis]) -> list[list[Axis]]:
    """Axes in groups that no reduction tells apart; grid axes and inner axes are never in one group.

    Inner axes of different outputs are not either: no program walks all pairs of what never meets.
    """
    reductions = list(space.graph.of_kind(Collected))
    groups: dict[tuple[object, ...], list[Axis]] = {}
    for axis in axes:
        root = axis in space.axes
        alone = axis if axis in space.steps or axis in space.held_axes else None
        inner = axis in space.inner
        stored = tuple(any(axis in i.axes for i in place) for place in space.places) if inner else ()
        added = tuple(axis in node.axes for node in reductions if isinstance(node, Accumulated))  # … once, not for each
        signature = (root, inner, alone, stored, added, tuple(axis in node.over for node in reductions))
        groups.setdefault(signature, []).append(axis)
    return list(groups.values())


def contiguous(outer: Axis, inner: Axis, offsets: Sequence[Index], others: Sequence[Index]) -> bool:
    """Whether one axis can run over both without division anywhere."""
    for index in offsets:
        first, second = index.coefficient(outer), index.coefficient(inner)
        if first is None or second is None or first != inner.size * second:
            return False
    return not any(outer in index.axes or inner in index.axes for index in others)


def merged(group: Sequence[Axis], offsets: Sequence[Index], others: Sequence[Index]) -> list[list[Axis]]:
    """The group in runs of axes that can be one without division."""
    runs: list[list[Axis]] = []
    for axis in group:
        if runs and contiguous(runs[-1][-1], axis, offsets, others):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def as_one(axes: Sequence[Axis], name: str) -> tuple[Axis, Mapping[Axis, Index]]:
    """One axis for several, and what each of them is in terms of it."""
    sizes = [axis.size for axis in axes]
    whole = Axis(name, math.prod(sizes))
    return whole, dict(zip(axes, unflatten(of_axis(whole), sizes)))
