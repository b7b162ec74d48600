"""A chooser of axes for programs that have no plan yet: dimensions of one class run along one axis."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxpr2triton.graph.chooser import STEP, Axes, Dims, Hints, Kinds, Number
from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.nodes import Place
from jaxpr2triton.ir.index import Axis, Index, of_axis, plain_axis
from jaxpr2triton.ir.jaxprs import Atom, Literal
from jaxpr2triton.ir.scans import Scan, outer_dims, time_dims


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
