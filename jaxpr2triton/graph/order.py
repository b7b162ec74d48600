"""In which order the loops of a kernel run: which have to end before a value can be computed, and who shares one.

    d, ys = scan(f, c, xs)          for t in range(4):     pass 0: d and ys[t]
    m = max(ys)              →      for t in range(4):     pass 1, if m is needed for all of ys:
    out = ys - m                        ...                        ys[t] is needed again, and its loop is over

Passes are counted in each scope apart: a loop inside of another one ends once for each step of that one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import Collected, Graph, Node, Recurrence, Reduce, Store, operands_of
from jaxpr2triton.graph.streams import Stream, streams_of
from jaxpr2triton.ir.dataflow import affected, fixpoint, reachable
from jaxpr2triton.ir.index import Axis

# The loops that are open around → how many loops have to end there before.
Passes = dict[frozenset[Axis], int]


@dataclass(frozen=True)
class LoopKey:
    """One loop of the kernel: the axes it opens, the loops around it, its pass, and whether it counts downwards."""

    opened: tuple[Axis, ...]
    around: frozenset[Axis]
    number: int
    backwards: bool


@dataclass
class Order:
    """What follows from the graph and the axes that are loops."""

    graph: Graph
    looped: frozenset[Axis]
    passes: dict[Node, Passes] = field(default_factory=dict)
    used: dict[Node, frozenset[Recurrence]] = field(default_factory=dict)  # loops a step of which the value belongs to
    streams: dict[Reduce, Stream] = field(default_factory=dict)  # what goes along with what it depends on
    _operands: dict[Node, Sequence[Node]] = field(default_factory=dict)  # … of a carried value what its loop needs
    _scopes: dict[Node, frozenset[Axis]] = field(default_factory=dict)  # the loops around a value

    def __post_init__(self) -> None:
        recurrences = list(self.graph.of_kind(Recurrence))
        leaves: dict[Node, Recurrence] = {leaf: loop for loop in recurrences for leaf in loop.carried}
        needs = {loop: _needs(loop) for loop in recurrences}
        self._scopes = {node: node.axes & self.looped for node in self.graph.nodes}
        self._operands = {node: operands_of(node) for node in self.graph.nodes}
        self._operands |= {leaf: needs[loop] for leaf, loop in leaves.items()}
        self.streams = streams_of(self.graph, self.looped)
        self.used = self._loops_of_steps(leaves)
        for loop in recurrences:
            needs[loop] += self._needed_beside(loop)
        before: dict[Node, Passes] = {loop: {} for loop in recurrences}
        for _ in range(len(self.graph.nodes) + 2):
            self.passes = self._counted({leaf: before[loop] for leaf, loop in leaves.items()}, before)
            last = before
            before = {loop: _most(self._scopes[loop], [self.passes[n] for n in needs[loop]]) for loop in recurrences}
            if before == last:
                return
        raise CompilerBug("the loops of a kernel wait for each other")

    def _loops_of_steps(self, leaves: Mapping[Node, Recurrence]) -> dict[Node, frozenset[Recurrence]]:
        """The loops a step of which makes a value: those of its operands that it varies along, or its own."""
        nothing = frozenset[Recurrence]()
        if not leaves:
            return dict.fromkeys(self.graph.nodes, nothing)

        def transfer(node: Node, below: list[frozenset[Recurrence]]) -> frozenset[Recurrence]:
            found = frozenset((leaves[node],) if node in leaves else ()).union(*below)
            return frozenset(loop for loop in found if loop.step in node.axes)

        return fixpoint(self.graph.nodes, self._operands.__getitem__, transfer, nothing)

    def _needed_beside(self, loop: Recurrence) -> list[Node]:
        """What the steps of a loop need for what they do not carry on; but nothing that waits for the loop itself."""
        gathered = (n for n in self.graph.nodes if loop not in self.used[n] and self._is_made_in(loop, n))
        late = affected(self.graph.nodes, self._operands.__getitem__, [loop, *gathered])
        steps = [node for node in self.graph.nodes if self._is_made_in(loop, node)]
        beside = {operand for node in steps for operand in operands_of(node) if loop not in self.used[operand]} - late
        return [node for node in self.graph.nodes if node in beside]

    def _is_made_in(self, loop: Recurrence, node: Node) -> bool:
        """Whether the steps of a loop make a value, or gather what becomes one when it is over."""
        gathers = self.ends_a_loop(node) and any(loop in self.used[operand] for operand in self._operands[node])
        return loop in self.used[node] or gathers

    def _counted(self, leaves: Mapping[Node, Passes], before: Mapping[Node, Passes]) -> dict[Node, Passes]:
        passes: dict[Node, Passes] = {}
        for node in self.graph.nodes:
            scope = self._scopes[node]
            if isinstance(node, Recurrence):
                ready = before[node]
            elif node in leaves:
                ready = leaves[node]
            else:
                ready = _most(scope, [known for operand in self._operands[node] if (known := passes[operand])])
            if isinstance(node, Reduce) and node in self.streams:
                along = self._goes_along(self.streams[node], scope, passes)
                if along is not None:
                    passes[node] = along
                    continue
                del self.streams[node]
            if self.ends_a_loop(node):
                ready = ready | {scope: ready.get(scope, 0) + 1}
            passes[node] = ready
        return passes

    def _goes_along(self, stream: Stream, scope: frozenset[Axis], passes: Mapping[Node, Passes]) -> Passes | None:
        """The passes of a sum in the loop of its leader; None if that loop is too early for the rest of it."""
        leading = passes[stream.leader]
        beside = _most(scope, [passes[node] for node in stream.beside])
        late = _most(scope, [passes[node] for node in stream.late])
        if beside.get(scope, 0) >= leading[scope] or late.get(scope, 0) > leading[scope]:
            return None
        return _most(scope, [leading, beside, late])

    def loops(self, node: Node) -> frozenset[Axis]:
        return node.axes & self.looped

    def ends_a_loop(self, node: Node) -> bool:
        return isinstance(node, Recurrence) or (isinstance(node, Collected) and not self.looped.isdisjoint(node.over))

    def key(self, loop: Recurrence) -> LoopKey:
        around = self.loops(loop)
        return LoopKey((loop.step,), around, self.passes[loop][around] - 1, loop.reverse)

    def keys(self, client: Collected | Store, axes: Sequence[Axis]) -> tuple[LoopKey, ...]:
        """The loops in which a reduction is accumulated or a store done, outermost first; `axes` gives their order."""
        if isinstance(client, Reduce) and client in self.streams:
            return self.keys(self.streams[client].leader, axes)
        if isinstance(client, Store):
            over = frozenset(axis for index in client.place for axis in index.axes) | client.value.axes
            operands: tuple[Node, ...] = (client.value,)
            around: frozenset[Axis] = frozenset()
        else:
            over, operands, around = frozenset(client.over), operands_of(client), self.loops(client)
        loops = sorted(frozenset().union(*(self.used[o] for o in operands)), key=lambda loop: len(self.loops(loop)))
        ready = _most(around | over, [self.passes[operand] for operand in operands])
        keys = []
        ends_within = sorted((scope for scope in ready if ready[scope]), key=len)
        for segment in _segments([a for a in axes if a in over and a in self.looped], loops, ends_within):
            own = [loop.reverse for loop in loops if loop.step in segment]
            key = LoopKey(segment, around, ready.get(around, 0), any(own))
            keys.append(key if own else self._either_way(key))
            around |= frozenset(segment)
        return tuple(keys)

    def _either_way(self, key: LoopKey) -> LoopKey:
        """Where steps do not wait for each other, they go along with those of a loop that only counts downwards."""
        backwards = replace(key, backwards=True)
        return backwards if backwards in self._counting and key not in self._counting else key

    @cached_property
    def _counting(self) -> frozenset[LoopKey]:
        return frozenset(map(self.key, self.graph.of_kind(Recurrence)))

    def recurrences(self, path: Sequence[LoopKey]) -> list[Recurrence]:
        """What the last one of these loops carries, in those around it."""
        alike = [loop for loop in self.graph.of_kind(Recurrence) if self.key(loop) == path[-1]]
        return [loop for loop in alike if self.belongs(loop, path[:-1])]

    def belongs(self, node: Node, around: Sequence[LoopKey]) -> bool:
        """Whether these are the loops around a value: what it waits for is over before them, and its steps are theirs.

        Loops along one axis, one after the other, have loops in them that are the same but for what is around those.
        """
        waits = all(self.passes[node].get(key.around, 0) <= key.number for key in around)
        other = (key for key in around for loop in self.used[node] if loop.step in key.opened and self.key(loop) != key)
        return waits and next(other, None) is None

    def conflicts(self) -> Iterable[tuple[Node, Recurrence]]:
        """The values that are needed where this loop is over, but belong to a step of it.

        Either another loop has ended before, or one around it has; or they belong to a step of another one too, and
        neither is within the other one; or the other one runs along the same axis, but once for each step of a third.
        """
        for node in self.graph.nodes:
            for loop in self.used[node]:
                around = self.loops(loop)
                if not around <= node.axes or self.passes[node].get(around, 0) != self.passes[loop][around] - 1:
                    yield node, loop
            for one, other in itertools.combinations(sorted(self.used[node], key=lambda loop: loop.number), 2):
                if one.step is other.step and self.loops(one) != self.loops(other):
                    yield node, min(one, other, key=lambda loop: len(self.loops(loop)))
                elif one.step not in (other.step, *other.axes) and other.step not in one.axes:
                    yield node, one


def _segments(
    opened: Sequence[Axis], loops: Sequence[Recurrence], scopes: Iterable[frozenset[Axis]]
) -> list[tuple[Axis, ...]]:
    """Axes that are opened together, outermost first.

    The step of a loop has a segment of its own, within the loops around that one; and where another loop has to end
    within some of the axes, those are opened before the rest.
    """
    segments: list[tuple[Axis, ...]] = []
    rest = list(opened)
    for scope in scopes:
        before = tuple(axis for axis in rest if axis in scope)
        if before and not any(loop.step in before for loop in loops):
            segments.append(before)
            rest = [axis for axis in rest if axis not in before]
    for loop in loops:
        if loop.step not in rest:
            continue
        before = tuple(axis for axis in rest if axis in loop.axes)
        segments += [segment for segment in (before, (loop.step,)) if segment]
        rest = [axis for axis in rest if axis not in before and axis is not loop.step]
    return segments + ([tuple(rest)] if rest else [])


def _needs(loop: Recurrence) -> list[Node]:
    """What a loop needs that does not depend on what it carries."""
    inside: set[Node] = set(loop.carried)
    cone = dict.fromkeys(node for node in reachable(loop.nexts, operands_of) if node not in inside)
    for node in sorted(cone, key=lambda node: node.number):
        if loop.step in node.axes and any(operand in inside for operand in operands_of(node)):
            inside.add(node)
    read = set(loop.nexts).union(*(operands_of(node) for node in inside))
    return [*loop.starts, *(node for node in cone if node in read and node not in inside)]


def _most(scope: frozenset[Axis], known: Iterable[Passes]) -> Passes:
    """The most in each scope, of those that lie around this one."""
    found: Passes = {}
    for passes in known:
        for around, count in passes.items():
            if around <= scope:
                found[around] = max(count, found.get(around, 0))
    return found
