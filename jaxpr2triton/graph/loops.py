"""Scans in a walk by demand.

The dimensions of what a loop carries fall into classes (graph/classes.py). A class is `held` when a step reads a
carried value at another index of it than the one that is being written, or sums over it: then one program has to have
all of that class. Every other class is parallel, and may be spread over the grid, because the steps of different
indices never meet. One trial walk through the body finds out.

A walk then enters the body as if its equations stood in the loop's place, with every carried value as a leaf. What does
not depend on such a leaf nor on the step is a value of the kernel like any other, and lands before the loop by itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jaxpr2triton import policy
from jaxpr2triton.graph import brought
from jaxpr2triton.graph.carried import found_at
from jaxpr2triton.graph.chooser import Axes, Chooser, Dims, Hints, Kinds, Number
from jaxpr2triton.graph.classes import Classes, body_classes
from jaxpr2triton.graph.facts import Kind, LoopFacts, kinds_of
from jaxpr2triton.graph.live import live_carries
from jaxpr2triton.graph.nodes import Carried, Demand, Final, Node, Place, Recurrence, axes_in
from jaxpr2triton.graph.walking import Looping, LoopWalk
from jaxpr2triton.ir.evaluate import needed_in, variables
from jaxpr2triton.ir.index import (
    ZERO,
    Axis,
    Index,
    computed_in,
    constant,
    of_axis,
    plain_axis,
    substitute,
)
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Scan, outer_dims, scan_of, time_dims

STEP = ("step", 0)  # where a hint says which axis should count the steps


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


def loop_facts(scan: Scan, trial: Callable[[Chooser], Looping]) -> LoopFacts:
    """Which classes are held, by a trial walk in which each class has one axis of its own.

    h'[k] = tanh(sum(u[k, j] * h[j])) + x[k]      j and k are of h's class, along which a sum runs: it is held
    c'[k] = c[k] + x[k]                           is read where it is written: the class of c is parallel
    """
    classes = body_classes(scan)
    sizes = carried_sizes(scan, classes)
    one_each = _OneEach(classes, {kind: Axis(f"c{n}", size) for n, (kind, size) in enumerate(sizes.items())})
    carried = [before for _, before, _, _ in scan.carries]
    given = variables([after for _, _, after, _ in scan.carries] + [atom for atom, _ in scan.ys])
    inner = trial(one_each.chooser(carried))
    inner.backwards([(var, one_each.place(var)) for var in given])

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


def _read_elsewhere(inner: Looping, one_each: _OneEach, carried: Var) -> Iterator[Kind]:
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


def _whole_inside(walk: Looping) -> set[Axis]:
    """The axes of which a body, or a loop in it, needs all indices at once."""
    found = set(walk.reduced_axes)
    for loop in walk.entered.values():
        found |= loop.held | _whole_inside(loop.inner)
    return found


@dataclass
class ByClass:
    """Chooses axes: for a dimension those of its class, else of its size, else new ones; and remembers its choices."""

    classes: Classes
    by_class: dict[Hashable, Axis]
    fresh: list[Axis]
    chosen: dict[Number, tuple[Axis, ...]]
    backwards: dict[Axis, bool] = field(default_factory=dict)  # in which direction a step axis is counted
    around: frozenset[Axis] = frozenset()  # the steps of the loops around, and beside them
    state: set[Axis] = field(default_factory=set)  # what carried values run along; never a step
    final: set[Axis] = field(default_factory=set)  # and what their results do
    counted: dict[Number, Axis] = field(default_factory=dict)  # what counts the steps of loops that are not entered yet

    def reduction(self, number: Number, operand: Atom, dims: Dims, in_use: Axes, hints: Hints) -> Place:
        shape = operand.aval.shape
        known = None if isinstance(operand, Literal) else operand
        kinds: list[Hashable] = [known and self.classes.find((known, d)) for d in dims]
        kinds = [kind if hint is None or hint in in_use else hint for kind, hint in zip(kinds, hints)]
        self.chosen[number] = tuple(self._pick([(kind, shape[d], "k") for kind, d in zip(kinds, dims)], in_use))
        return tuple(map(of_axis, self.chosen[number]))

    def stacked(
        self, number: Number, operand: Atom, dims: Dims, in_use: Axes, hints: Hints, loop: tuple[Number, Scan]
    ) -> Place:
        of_loop, scan = loop
        shape = operand.aval.shape
        known = None if isinstance(operand, Literal) else operand
        kinds = [hint or (known and self.classes.find((known, d))) for d, hint in zip(dims, hints)]
        if of_loop not in self.counted:
            wish = (kinds[0], shape[dims[0]], "t")
            (self.counted[of_loop],) = self._pick([wish], in_use | self.steps | self.state | self.final)
        step = self.counted[of_loop]
        self.backwards[step] = scan.reverse
        rest = self._pick([(kind, shape[d], "k") for kind, d in zip(kinds[1:], dims[1:])], in_use | self.steps)
        self.chosen[number] = (step, *rest)
        return tuple(map(of_axis, self.chosen[number]))

    def loop(
        self, number: Number, scan: Scan, facts: LoopFacts, kinds: Kinds, hints: Mapping[Kind, Axis], in_use: Axes
    ) -> Place:
        outside: dict[Hashable, Hashable] = {}
        for outer, inner in outer_dims(scan):
            outside.setdefault(facts.classes.find(inner), self.classes.find(outer))
        times = time_dims(scan)
        time = self.classes.find(times[0]) if times else None
        wrong_way = {axis for axis, backwards in self.backwards.items() if backwards is not scan.reverse}
        if number in self.counted:
            step = self.counted[number]
        else:
            count = [(hints.get(STEP, time), scan.length, "w" if scan.conditional else "t")]
            (step,) = self._pick(count, in_use | wrong_way | self.state | self.final)
        self.backwards[step] = scan.reverse
        wishes = [(hints.get(kind, outside.get(kind[0])), facts.sizes[kind], "h") for kind in kinds]
        state = self._pick(wishes, in_use | self.state | self.steps)  # no step of any loop: those are never lanes
        self.chosen[number] = (step, *state)
        return tuple(map(of_axis, self.chosen[number]))

    @property
    def steps(self) -> frozenset[Axis]:
        return frozenset(self.backwards)

    def inside(self, facts: LoopFacts, binding: Mapping[Kind, Index]) -> ByClass:
        found = {kind: plain_axis(index) for (kind, copy), index in binding.items() if not copy}
        exact: dict[Hashable, Axis] = {kind: axis for kind, axis in found.items() if axis is not None}
        around = self.around | frozenset(self.backwards)
        return replace(self, classes=facts.classes, by_class=exact, around=around)

    def _pick(self, wishes: Sequence[tuple[Hashable, int, str]], in_use: Iterable[Axis]) -> list[Axis]:
        taken = set(in_use) | self.around
        picked = []
        for kind, size, stem in wishes:
            candidates = [kind] if isinstance(kind, Axis) else []
            candidates += [self.by_class[kind]] if kind in self.by_class else []
            if stem != "w":  # two while loops never share their steps
                candidates += [axis for axis in self.fresh if axis.size == size and axis.name.startswith(stem)]
            axis = next((a for a in candidates if a not in taken and a.size == size), None)
            if axis is None:
                axis = Axis(f"{stem}{len(self.fresh)}", size)
                self.fresh.append(axis)
                if kind is not None and not isinstance(kind, Axis):
                    self.by_class.setdefault(kind, axis)
            taken.add(axis)
            picked.append(axis)
        return picked


def bind_classes(walk: Looping, scan: Scan, facts: LoopFacts) -> tuple[dict[Kind, Index], dict[Kind, Axis]]:
    """Where parallel kinds run, by the places at which the results are wanted; and where held ones would best run."""
    binding: dict[Kind, Index] = {}
    hints: dict[Kind, Axis] = {}
    # wanted at several places, or at computed ones (perhaps by the loop); small enough to be held
    conflicting: set[Kind] = set()
    for atom, result, offset in results_of(scan):
        for place, guard in walk.demands_on(result):
            if guard:
                raise walk.crowded(result, along=_dims_along(place, frozenset(axes_in((), guard)), offset))
            if offset and (axis := plain_axis(place[0])) is not None:
                hints.setdefault(STEP, axis)
            kinds = facts.of(atom) if not isinstance(atom, Literal) else ()
            for d, (kind, index) in enumerate(zip(kinds, place[offset:]), offset):
                if kind not in facts.sizes:
                    continue
                if kind in facts.held:
                    if (axis := plain_axis(index)) is not None:
                        hints.setdefault(kind, axis)
                elif kind in facts.carried and index.axes & (steps := walk.choose.steps - walk.steps):
                    along = _dims_along(place, steps, offset)
                    raise walk.crowded(result, along=along)  # else it would run once for each step of another loop
                elif binding.setdefault(kind, index) != index or any(True for _ in computed_in(index)):
                    if facts.sizes[kind] > policy.COMMON.held_anyway and kind in facts.carried:
                        raise walk.crowded(result, along=(*range(offset), d))
                    conflicting.add(kind)
    return {kind: index for kind, index in binding.items() if kind not in conflicting}, hints


def _dims_along(place: Place, axes: frozenset[Axis], offset: int) -> tuple[int, ...]:
    """The dimensions of a result in which its place runs along some axes; those before the body's own, too."""
    return (*range(offset), *(d for d, index in enumerate(place[offset:], offset) if index.axes & axes))


def results_of(scan: Scan) -> Iterable[tuple[Atom, Var, int]]:
    """(what it is in the body, the result, how many leading dimensions the result has more)."""
    yield from ((before, result, 0) for _, before, _, result in scan.carries)
    yield from ((atom, result, 1) for atom, result in scan.ys)


def enter(walk: Looping, number: Number, eqn: Eqn) -> LoopWalk:
    """Walk backwards through a loop whose results are wanted.

    c, ys = scan[jaxpr=f] c0 xs, and c[j] and ys[t, j] are wanted
        →   of what f gives back, c'[j] and y[j] are; then of what f reads, say c[j] and x[j]
        →   c0[j] and xs[t, j]
    """
    loop = _opened(walk, number, scan_of(eqn))
    roots = [*_handed_on(walk, loop), *_put_out_at(walk, loop)]
    _connect(walk, loop)
    loop.inner.backwards(roots)
    _want_operands(walk, loop)
    return loop


def _opened(walk: Looping, number: Number, scan: Scan) -> LoopWalk:
    """A loop whose axes are chosen: those at which its results are wanted, and new ones for what it holds."""
    facts = walk.facts(scan)
    binding, hints = bind_classes(walk, scan, facts)
    bound = frozenset(axis for index in binding.values() for axis in index.axes)
    open_kinds = [kind for kind in facts.sizes if kind not in binding and kind in facts.carried]
    step, *rest = walk.choose.loop(number, scan, facts, open_kinds, hints, bound)
    held = frozenset(axis for index in rest for axis in index.axes)
    binding.update(zip(open_kinds, rest))
    walk.choose.state.update(a for kind, index in binding.items() if kind in facts.carried for a in index.axes)

    live = live_carries(scan, [result for _, result, _ in results_of(scan) if walk.demands_on(result)])
    loop = LoopWalk(scan, step, held, bound, live, walk.inside(scan, number, step, facts, binding))
    brought.enter(walk, loop.inner, scan)
    for position in live:
        usual = tuple(binding.get(kind, ZERO) for kind in facts.of(scan.carries[position][1]))
        loop.places[position] = list(every_place(usual, walk.unrolled))
    return loop


def _handed_on(walk: Looping, loop: LoopWalk) -> list[tuple[Atom, Place]]:
    """What a step hands on to the next one, where it is carried; what the first one finds is asked for at once."""
    roots = []
    for position, places in loop.places.items():
        start, _, after, _ = loop.scan.carries[position]
        roots += [(after, place) for place in places]
        loop.starts += [walk.want(start, place, ()) for place in places]
    return roots


def _put_out_at(walk: Looping, loop: LoopWalk) -> Iterator[tuple[Atom, Place]]:
    """What a step puts out, where that is wanted: in this very step, and not where the loop itself says at its end."""
    elsewhere = []
    for atom, result in loop.scan.ys:
        for place, _ in walk.demands_on(result):
            if place[0] != loop.step or _waits_for(walk, loop.scan, place):
                elsewhere.append(result)
            yield atom, place[1:]
    if elsewhere:
        raise walk.crowded(elsewhere[0], beside=elsewhere[1:])


def _want_operands(walk: Looping, loop: LoopWalk) -> None:
    """Ask for what the body reads of the outside."""
    operands: list[tuple[Atom, Var, Place]] = [(outside, inside, ()) for outside, inside in loop.scan.consts]
    operands += [(outside, inside, (loop.step,)) for outside, inside in loop.scan.xs]
    for outside, inside, step in operands:
        for place, guard in loop.inner.wanted.get(inside, ()):
            walk.want(outside, (*step, *place), guard)


def _waits_for(walk: Looping, scan: Scan, place: Place) -> bool:
    """Whether a place is computed from what the loop has made in the end."""
    numbers = [walk.numbers[number.key] for index in place for number in computed_in(index)]
    atoms = [atom for other, atom, _ in numbers if other is walk]
    return bool(atoms) and scan.eqn in needed_in(walk.jaxpr, atoms, walk.buffers)


def _connect(walk: Looping, loop: LoopWalk) -> None:
    """Let the walk through the body find what lies outside of it.

    At once, because an index that the body computes may be needed to build what it reads of the outside.
    """
    scan, inner = loop.scan, loop.inner
    for position in loop.live:
        before = scan.carries[position][1]
        tiles = {}
        for place in loop.places[position]:
            axes = frozenset(axes_in(place, ())) | loop.step.axes | walk.steps
            leaf = walk.make(("carried", inner.path, position, place), _leaf(axes, before, loop.step))
            tiles[place] = loop.leaves[position, place] = leaf
        inner.outside[before] = functools.partial(_tile, inner, tiles)
    for outside, inside in scan.consts:
        inner.outside[inside] = functools.partial(_element, walk, outside, ())
    for outside, inside in scan.xs:
        inner.outside[inside] = functools.partial(_element, walk, outside, (loop.step,))


def _tile(walk: Looping, tiles: Mapping[Place, Node], demand: Demand) -> Node:
    return found_at(walk, tiles, demand[0])


def _element(walk: Looping, outside: Atom, step: Place, demand: Demand) -> Node:
    """What a body reads of the outside: `x[j]` of the body is `xs[t, j]` there."""
    place, guard = demand
    return walk.node(*walk.reading(outside, (*step, *place), guard))


def _put_out(walk: Looping, atom: Atom, demand: Demand) -> Node:
    """What a step puts out: `ys[t, j]` is `y[j]` of the body."""
    place, _ = demand
    return walk.node(*walk.reading(atom, place[1:], ()))


def _leaf(axes: frozenset[Axis], var: Var, step: Index) -> Callable[[int], Carried]:
    (step_axis,) = step.axes
    return lambda number: Carried(number, axes, np.dtype(var.aval.dtype), step_axis)


def every_place(place: Place, unrolled: frozenset[Axis]) -> Iterable[Place]:
    """The place, once for each index of the unrolled axes in it."""
    axes = sorted({a for i in place for a in i.axes if a in unrolled}, key=lambda a: a.name)
    for values in itertools.product(*(range(axis.size) for axis in axes)):
        yield tuple(substitute(i, dict(zip(axes, map(constant, values)))) for i in place)


def leave(walk: Looping, loop: LoopWalk) -> None:
    """Build the nodes of a loop and of its body, and make its results known to the walk.

    None of these is built yet: the place at which one is wanted may be a number that waits for a loop which is just
    being left, and which reads another result of this one.
    """
    scan, inner = loop.scan, loop.inner
    (step_axis,) = loop.step.axes
    slots = list(loop.leaves)
    starts = [walk.node(*read) for read in loop.starts]
    inner.forwards()
    nexts = tuple(inner.node(*inner.reading(scan.carries[p][2], place, ())) for p, place in slots)
    leaves = tuple(loop.leaves.values())
    axes = frozenset().union(*(leaf.axes for leaf in leaves)) - {step_axis}
    recurrence = walk.make(
        ("recurrence", inner.path, leaves),
        lambda n: Recurrence(
            n,
            axes,
            np.dtype(bool),
            scan.eqn,
            step_axis,
            loop.held,
            loop.bound,
            scan.reverse,
            scan.conditional,
            tuple(starts),
            leaves,
            nexts,
        ),
    )
    finals = {
        slot: walk.make(("final", recurrence, n), functools.partial(_final, leaf, recurrence, n))
        for n, (slot, leaf) in enumerate(zip(slots, leaves))
    }
    for position in loop.live:
        tiles = {place: finals[position, place] for place in loop.places[position]}
        walk.outside[scan.carries[position][3]] = functools.partial(_tile, walk, tiles)
    for atom, result in scan.ys:
        walk.outside[result] = functools.partial(_put_out, inner, atom)


def build_results(walk: Looping, eqn: Eqn) -> None:
    """Build the nodes of all that is wanted of a loop that is over."""
    for result in eqn.outvars:
        for demand in walk.demands_on(result):
            walk.node(result, demand)


def _final(leaf: Carried, recurrence: Recurrence, position: int, number: int) -> Final:
    return Final(number, leaf.axes - {recurrence.step}, leaf.dtype, recurrence, position)
