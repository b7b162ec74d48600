"""What meets at computed places: begun in a buffer of the kernel's own, and added up there before any of it is read.

    c = accumulate[op=add] a i u      →     tl.store(kept_ptr + k, a)
                                            tl.debug_barrier()
                                            tl.atomic_add(kept_ptr + i, u)
                                            tl.debug_barrier()
                                            c = tl.load(kept_ptr + k)

One program has all updates, and all places along what is indexed; along every other dimension programs share them out,
where each element is read at the very index at which it is made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.demands import Demands, TooManyPlaces
from jaxpr2triton.graph.dynamic import limits_near
from jaxpr2triton.graph.keep import can_be_written, read_of
from jaxpr2triton.graph.nodes import Accumulated, Demand, Keep, Kept, Place, axes_in, axes_of
from jaxpr2triton.graph.reads import Accumulating, Update, every_place, ordered_axes
from jaxpr2triton.ir.index import Axis, Condition, Guard, Index, add, computed_in, constant, decide, values_at
from jaxpr2triton.ir.jaxprs import Eqn

ENUMERATED = 1 << 16  # elements whose places are compared one by one


def ask(demands: Demands, number: Number, eqn: Eqn, wanted: Sequence[Demand]) -> None:
    """Choose along what is begun and along what meets there, and ask for all of both."""
    operand, _, updates = eqn.invars
    batch, indexed = eqn.params["batch"], eqn.params["indexed"]
    whole = tuple(range(batch, batch + indexed))
    _check_beside(demands, eqn, whole, wanted)
    taken = demands.choose.steps.union(*(axes_in(*demand) for demand in wanted))
    begun = demands.choose.reduction((*number, 0), operand, whole, taken, demands.hints(operand, whole))
    met = (0, *range(1 + batch, 1 + batch + indexed))
    at_begun = taken.union(*(index.axes for index in begun))
    own = [Axis(f"p{n}", updates.aval.shape[d]) for n, d in enumerate(met)]  # what else is made of them has its own
    added = demands.choose.reduction((*number, 1), updates, met, at_begun, own)
    demands.reduced_axes.update(axes_in(begun, ()), axes_in(added, ()))
    over = tuple(axis for axis in ordered_axes(begun) if axis not in demands.unrolled)
    for place, guard in wanted:
        usual = tuple(begun[whole.index(d)] if d in whole else index for d, index in enumerate(place))
        places = tuple(every_place(usual, demands.unrolled))
        starts = [demands.want(operand, each, ()) for each in places]
        made = every_place((*added, *usual[:batch], *usual[batch + indexed :]), demands.unrolled)
        parts = [part for each in made if (part := _update(demands, eqn, each)) is not None]
        along = tuple(axis for axis in ordered_axes(added) if axis not in demands.unrolled)
        demands.reads[eqn.outvars[0], (place, guard)] = Accumulating(number, places, starts, over, parts, along)


def _check_beside(demands: Demands, eqn: Eqn, whole: Sequence[int], wanted: Sequence[Demand]) -> None:
    """Along what is not indexed, an element is read where it is made, and made once; else it is to be kept as well."""
    (out,), reading = eqn.outvars, demands.choose.steps - demands.steps
    beside = [d for d in range(len(out.aval.shape)) if d not in whole]
    places = list(dict.fromkeys(tuple(place[d] for d in beside) for place, _ in wanted))
    conflicting = {
        d
        for place in places
        for d, index in zip(beside, place)
        if not can_be_written(index, out.aval.shape[d]) or index.axes & reading or not _is_met_once(place)
    }
    for one, other in itertools.combinations(places, 2):
        if not any(map(_are_apart, one, other)):
            conflicting.update(d for d, mine, theirs in zip(beside, one, other) if mine != theirs)
    if conflicting:
        raise TooManyPlaces(out, tuple(sorted((*whole, *conflicting))))


def _is_met_once(place: Place) -> bool:
    """Whether no two elements of the axes are at one place: what is there twice would be added twice.

    (row, 4 * col + 1), (k // 6, k % 6)    yes
    (k % 6,), (k // 6,), (row + col,)      no
    """
    if any(True for index in place for _ in computed_in(index)):
        return False
    alone = {axis for index in place for axis in index.axes if index.terms == ((axis, index.coefficient(axis)),)}
    others = sorted(frozenset(axis for index in place for axis in index.axes) - alone, key=lambda axis: axis.name)
    count = math.prod(axis.size for axis in others)
    if count > ENUMERATED:
        return False
    grid = np.indices([axis.size for axis in others]).reshape(len(others), count)
    at = dict(zip(others, grid)) | dict.fromkeys(alone, np.zeros(count, np.int64))
    return not others or len(np.unique(np.stack([values_at(index, at) for index in place], axis=1), axis=0)) == count


def _are_apart(one: Index, other: Index) -> bool:
    """Whether two indices are never the same, as those of the pieces into which an axis is cut."""
    (low, high), (first, last) = one.bounds, other.bounds
    step = math.gcd(*(times for _, times in (*one.terms, *other.terms)))
    return high < first or last < low or (step > 1 and (one.const - other.const) % step != 0)


def _update(demands: Demands, eqn: Eqn, place: Place) -> Update | None:
    """One update, or all along lanes: where it goes, and when; None if it always lies outside."""
    operand, indices, updates = eqn.invars
    batch, indexed = eqn.params["batch"], eqn.params["indexed"]
    number, window = place[0], place[1 : 1 + indexed]
    lead, rest = place[1 + indexed : 1 + indexed + batch], place[1 + indexed + batch :]
    shape, sizes = operand.aval.shape[batch:], updates.aval.shape[1 + batch :]
    target, guard, reads = [], list[Condition](), []
    for d in range(indexed):
        where, last = (number, *lead, constant(d)), shape[d] - sizes[d]
        reads.append(demands.want(indices, where, ()))
        anywhere = demands.number(indices, where, limits_near(shape[d]), False)
        guard.append(Condition(anywhere, 0, last + 1))
        target.append(add(demands.number(indices, where, (0, last), True), window[d]))
    decided = [decide(condition) for condition in guard]
    if False in decided:
        return None
    undecided = tuple(condition for condition, known in zip(guard, decided) if known is None)
    value = demands.want(updates, (number, *lead, *window, *rest), ())
    return Update((*lead, *target, *rest), undecided, value, tuple(reads))


def build(builder: Builder, eqn: Eqn, asked: Accumulating, demand: Demand) -> Kept:
    """What is read of the buffer at one place, after all has met there."""
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    begun = tuple(builder.node(*read) for read in asked.starts)
    updates = tuple(builder.node(*part.value) for part in asked.updates)
    places, guards = tuple(part.place for part in asked.updates), tuple(part.guard for part in asked.updates)
    needs = builder.needs([*_indices(places, guards)])
    builder.needs(index for each in asked.places for index in each)
    own = frozenset(axis for each in asked.places for axis in axes_in(each, ()))
    _check(builder, own | frozenset(asked.along), axes_of((*begun, *updates, *needs)))
    over, along, op = frozenset(asked.over), frozenset(asked.along), eqn.params["op"]
    made = axes_of((*updates, *needs)).union(*(axes_in(*each) for each in zip(places, guards)))
    again = (made - along) & builder.demands.steps
    begins = (own | axes_of(begun) | again) - over
    keep = builder.make(
        ("begin", asked.number, asked.places, begun, again),
        lambda n: Keep(n, begins, dtype, eqn, begun, asked.over, asked.places, asked.number, again=again),
    )
    axes = (made | begins) - along
    met = builder.make(
        ("accumulate", keep, places, guards, updates),
        lambda n: Accumulated(
            n,
            axes,
            dtype,
            eqn,
            updates,
            asked.along,
            places,
            asked.number,
            begun=keep,
            guards=guards,
            needs=needs,
            op=op,
        ),
    )
    return read_of(builder, met, demand)


def _indices(places: Sequence[Place], guards: Sequence[Guard]) -> Iterator[Index]:
    for place in places:
        yield from place
    for guard in guards:
        yield from (condition.index for condition in guard)


def _check(builder: Builder, own: frozenset[Axis], made: frozenset[Axis]) -> None:
    if beyond := made - own - builder.demands.steps:
        raise CompilerBug(f"what meets varies along {', '.join(axis.name for axis in beyond)}, its place does not")
