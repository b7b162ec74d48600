"""Scans in a walk by demand.

The dimensions of what a loop carries fall into classes (graph/classes.py). A class is `held` when a step reads a
carried value at another index of it than the one that is being written, or sums over it: then one program has to have
all of that class. Every other class is parallel, and may be spread over the grid, because the steps of different
indices never meet. One trial walk through the body finds out.

A walk then enters the body as if its equations stood in the loop's place, with every carried value as a leaf. What does
not depend on such a leaf nor on the step is a value of the kernel like any other, and lands before the loop by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton import policy
from jaxpr2triton.graph import brought
from jaxpr2triton.graph.by_class import ByClass
from jaxpr2triton.graph.chooser import STEP, Chooser, Number
from jaxpr2triton.graph.classes import Classes, body_classes
from jaxpr2triton.graph.demands import Demands, EnteredLoop, TooManyPlaces, numbers_in
from jaxpr2triton.graph.facts import Kind, LoopFacts, kinds_of
from jaxpr2triton.graph.live import live_carries
from jaxpr2triton.graph.nodes import Place, axes_in
from jaxpr2triton.graph.reads import every_place
from jaxpr2triton.ir.evaluate import needed_in, variables
from jaxpr2triton.ir.index import ZERO, Axis, Index, computed_in, of_axis, plain_axis
from jaxpr2triton.ir.jaxprs import Atom, Literal, Var
from jaxpr2triton.ir.scans import Scan

Roots = Sequence[tuple[Atom, Place]]  # what is wanted of a body, and where


def carried_sizes(scan: Scan, classes: Classes) -> dict[Kind, int]:
    sizes: dict[Kind, int] = {}
    for var in [before for _, before, _, _ in scan.carries] + [atom for atom, _ in scan.ys]:
        if not isinstance(var, Literal):
            pairs = zip(kinds_of(classes, var), var.aval.shape)
            sizes.update({kind: size for kind, size in pairs if size != 1 and kind not in sizes})
    return sizes


@dataclass(frozen=True)
class _OneEach:
    """An axis of its own for each kind of what a loop carries or puts out."""

    classes: Classes
    axes: Mapping[Kind, Axis]

    def place(self, var: Var) -> Place:
        return tuple(of_axis(self.axes[k]) if k in self.axes else ZERO for k in kinds_of(self.classes, var))

    def chooser(self, carried: Sequence[Var]) -> ByClass:
        """Gives reductions in the body the axes of their classes, and finds no other loop's steps."""
        by_class: dict[Hashable, Axis] = {kind: axis for (kind, copy), axis in self.axes.items() if not copy}
        state = {axis for var in carried for axis in axes_in(self.place(var), ())}
        return ByClass(self.classes, by_class, [], {}, state=state)


def loop_facts(scan: Scan, trial: Callable[[Chooser, Roots], Demands]) -> LoopFacts:
    """Which classes are held, by a trial walk in which each class has one axis of its own.

    h'[k] = tanh(sum(u[k, j] * h[j])) + x[k]      j and k are of h's class, along which a sum runs: it is held
    c'[k] = c[k] + x[k]                           is read where it is written: the class of c is parallel
    """
    classes = body_classes(scan)
    sizes = carried_sizes(scan, classes)
    one_each = _OneEach(classes, {kind: Axis(f"c{n}", size) for n, (kind, size) in enumerate(sizes.items())})
    carried = [before for _, before, _, _ in scan.carries]
    given = variables([after for _, _, after, _ in scan.carries] + [atom for atom, _ in scan.ys])
    inner = trial(one_each.chooser(carried), [(var, one_each.place(var)) for var in given])

    by_axis = {axis: kind for kind, axis in one_each.axes.items()}
    held = {kind for kind in sizes if (kind[0], 1) in sizes}  # a value has two dimensions of this class
    held.update(kind for var in carried for kind in _read_elsewhere(inner, one_each, var))
    held.update(by_axis[axis] for axis in _whole_inside(inner) if axis in by_axis)

    together = [kinds_of(classes, before) for before in carried]
    held |= _beside(sizes, held, together)
    crowded = inner.crowds.dims if inner.crowds else {}
    return LoopFacts(classes, sizes, frozenset(held), frozenset(itertools.chain(*together)), crowded, _given(scan))


def _given(scan: Scan) -> frozenset[Var]:
    found = {*scan.body.constvars, *(inside for _, inside in scan.consts)}
    for eqn in scan.body.eqns:
        if found.issuperset(variables(eqn.invars)):
            found.update(eqn.outvars)
    return frozenset(found)


def _read_elsewhere(inner: Demands, one_each: _OneEach, carried: Var) -> Iterator[Kind]:
    """The kinds along which a step reads a carried value at another index than the one that it writes."""
    usual = one_each.place(carried)
    for place, _ in inner.wanted.get(carried, ()):
        triples = zip(kinds_of(one_each.classes, carried), usual, place)
        yield from (kind for kind, expected, found in triples if expected != found and kind in one_each.axes)


def _beside(sizes: Mapping[Kind, int], held: set[Kind], together: Sequence[tuple[Kind, ...]]) -> set[Kind]:
    """Small kinds that are held for the sake of others of their size: a sum for each coordinate, beside the state.

    Programs that shared them out would each have the whole state all the same, and every step would be done again.
    """
    found = set()
    most = policy.COMMON.small_state
    for kind, size in sizes.items():
        apart = not any(kind in kinds and held & set(kinds) for kinds in together)
        if kind not in held and size <= most and apart and size in {sizes[other] for other in held}:
            found.add(kind)
    return found & set(itertools.chain(*together))


def _whole_inside(demands: Demands) -> set[Axis]:
    """The axes of which a body, or a loop in it, needs all indices at once."""
    found = set(demands.reduced_axes)
    for loop in demands.entered.values():
        found |= loop.held | _whole_inside(loop.inner)
    return found


def bind_classes(demands: Demands, scan: Scan, facts: LoopFacts) -> tuple[dict[Kind, Index], dict[Kind, Axis]]:
    """Where parallel kinds run, by the places at which the results are wanted; and where held ones would best run."""
    binding: dict[Kind, Index] = {}
    hints: dict[Kind, Axis] = {}
    # wanted at several places, or at computed ones (perhaps by the loop); small enough to be held
    conflicting: set[Kind] = set()
    for atom, result, offset in results_of(scan):
        for place, guard in demands.on(result):
            if guard:
                raise TooManyPlaces(result, along=_dims_along(place, frozenset(axes_in((), guard)), offset))
            if offset and (axis := plain_axis(place[0])) is not None:
                hints.setdefault(STEP, axis)
            kinds = facts.of(atom) if not isinstance(atom, Literal) else ()
            for d, (kind, index) in enumerate(zip(kinds, place[offset:]), offset):
                if kind not in facts.sizes:
                    continue
                if kind in facts.held:
                    if (axis := plain_axis(index)) is not None:
                        hints.setdefault(kind, axis)
                elif kind in facts.carried and index.axes & (steps := demands.choose.steps - demands.steps):
                    along = _dims_along(place, steps, offset)
                    raise TooManyPlaces(result, along=along)  # else it would run once for each step of another loop
                elif binding.setdefault(kind, index) != index or any(True for _ in computed_in(index)):
                    if facts.sizes[kind] > policy.COMMON.held_anyway and kind in facts.carried:
                        raise TooManyPlaces(result, along=(*range(offset), d))
                    conflicting.add(kind)
    return {kind: index for kind, index in binding.items() if kind not in conflicting}, hints


def _dims_along(place: Place, axes: frozenset[Axis], offset: int) -> tuple[int, ...]:
    """The dimensions of a result in which its place runs along some axes; those before the body's own, too."""
    return (*range(offset), *(d for d, index in enumerate(place[offset:], offset) if index.axes & axes))


def results_of(scan: Scan) -> Iterable[tuple[Atom, Var, int]]:
    """(what it is in the body, the result, how many leading dimensions the result has more)."""
    yield from ((before, result, 0) for _, before, _, result in scan.carries)
    yield from ((atom, result, 1) for atom, result in scan.ys)


def enter_loop(demands: Demands, number: Number, scan: Scan, facts: LoopFacts) -> EnteredLoop:
    """A loop whose axes are chosen: those at which its results are wanted, and new ones for what it holds."""
    binding, hints = bind_classes(demands, scan, facts)
    bound = frozenset(axis for index in binding.values() for axis in index.axes)
    open_kinds = [kind for kind in facts.sizes if kind not in binding and kind in facts.carried]
    step, *rest = demands.choose.loop(number, scan, facts, open_kinds, hints, bound)
    held = frozenset(axis for index in rest for axis in index.axes)
    binding.update(zip(open_kinds, rest))
    demands.choose.state.update(a for kind, index in binding.items() if kind in facts.carried for a in index.axes)

    live = live_carries(scan, [result for _, result, _ in results_of(scan) if demands.on(result)])
    loop = EnteredLoop(scan, step, held, bound, live, demands.inside(scan, number, step, facts, binding))
    brought.enter(demands, loop.inner, scan)
    for position in live:
        usual = tuple(binding.get(kind, ZERO) for kind in facts.of(scan.carries[position][1]))
        loop.places[position] = list(every_place(usual, demands.unrolled))
    return loop


def handed_on(demands: Demands, loop: EnteredLoop) -> list[tuple[Atom, Place]]:
    """What a step hands on to the next one, where it is carried; what the first one finds is asked for at once."""
    roots = []
    for position, places in loop.places.items():
        start, _, after, _ = loop.scan.carries[position]
        roots += [(after, place) for place in places]
        loop.starts += [demands.want(start, place, ()) for place in places]
    return roots


def put_out_at(demands: Demands, loop: EnteredLoop) -> Iterator[tuple[Atom, Place]]:
    """What a step puts out, where that is wanted: in this very step, and not where the loop itself says at its end."""
    elsewhere = []
    for atom, result in loop.scan.ys:
        for place, _ in demands.on(result):
            if place[0] != loop.step or _waits_for(demands, loop.scan, place):
                elsewhere.append(result)
            yield atom, place[1:]
    if elsewhere:
        raise TooManyPlaces(elsewhere[0], beside=elsewhere[1:])


def want_operands(demands: Demands, loop: EnteredLoop) -> None:
    """Ask for what the body reads of the outside."""
    operands: list[tuple[Atom, Var, Place]] = [(outside, inside, ()) for outside, inside in loop.scan.consts]
    operands += [(outside, inside, (loop.step,)) for outside, inside in loop.scan.xs]
    for outside, inside, step in operands:
        for place, guard in loop.inner.wanted.get(inside, ()):
            demands.want(outside, (*step, *place), guard)


def _waits_for(demands: Demands, scan: Scan, place: Place) -> bool:
    """Whether a place is computed from what the loop has made in the end."""
    atoms = [atom for path, atom, _ in numbers_in(place) if path == demands.path]
    return bool(atoms) and scan.eqn in needed_in(demands.jaxpr, atoms, demands.buffers)
