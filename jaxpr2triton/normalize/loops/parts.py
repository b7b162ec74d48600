"""A loop that carries what is affine beside what is not → affine parts in loops of their own, before and after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from jaxpr2triton import policy
from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.cheapest import cheapest_of_step
from jaxpr2triton.ir.dataflow import affected, made_of, reachable
from jaxpr2triton.ir.digraph import backwards
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var, made, nbytes
from jaxpr2triton.ir.scans import LOOPS, Body
from jaxpr2triton.normalize.loops.affine import Carried, Kind, groups_of
from jaxpr2triton.normalize.loops.critical_path import longest, waits_of
from jaxpr2triton.normalize.loops.distribute import Stage, distribute
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.normalize.loops.sweep import body_to_sweep, is_exact, is_swept
from jaxpr2triton.normalize.rewrite import Node, Value, node_of
from jaxpr2triton.rules.indexing import MOVES


def part_loops(closed: Closed, prepare: Callable[[Closed], Closed] = lambda body: body) -> Closed:
    """Take the affine parts of what a scan carries out of the loop, where steps are shorter without them.

        x, c, ys = scan (λ x c u. let x' = sin x + u; c' = exp x' * c + log x' in (x', c', c')) x0 c0 us
            →    x, xs = scan (λ x u. let x' = sin x + u in (x', x')) x0 us
                 c, ys = scan (λ c x. let c' = exp x * c + log x in (c', c')) c0 xs

    What is carried falls into groups of values that depend on each other. Affine ones of which the others only read
    come first, and put out what the loop reads; those that only read the others come last, and read what the loop puts
    out. Both are then combined in tiles (`sweep.py`). What is made of xs in several of the loops is made in each.
    `prepare` makes a body into one without transparent calls.

    Left alone: where no step waits much less for it, or all of them together not as long as one more kernel takes, or
    not as long as what is put out takes to be written and read; what tiles could not be made of.
    """

    def plan_of(eqn: Eqn) -> Plan | None:
        plan = _plan_of(eqn, prepare)
        return None if plan is None else replace(plan, is_read=_is_read_by_loops(closed, eqn))

    return rewrite_loops(closed, {"scan"}, plan_of, lambda node, plan, _: _distributed(node, plan))


def _is_read_by_loops(closed: Closed, loop: Eqn) -> bool:
    found = made_of(closed.jaxpr.eqns, loop.outvars)
    loops = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name in (*LOOPS, "while"))
    return any(not found.isdisjoint(evaluate.variables(eqn.invars)) for eqn in loops)


@dataclass(frozen=True)
class Part:
    """A loop of its own."""

    places: tuple[int, ...]  # of the carried values
    shown: tuple[Var, ...]  # what it puts out of each step
    is_swept: bool


@dataclass(frozen=True)
class Plan:
    body: Body
    same: frozenset[int]  # places of what is carried and never changes
    parts: tuple[Part, ...]  # in order
    is_read: bool = False  # by a loop of somebody else's


@dataclass(frozen=True)
class _Groups:
    """The places of what is carried, by where they could be, and those that each value is made of."""

    same: frozenset[int]
    steps: frozenset[int]  # in the loop in between
    first: tuple[frozenset[int], ...]  # in loops before it, one for each
    last: tuple[frozenset[int], ...]
    causes: Mapping[Var, frozenset[int]]

    needs: Mapping[int, frozenset[int]]  # what of it is made of what

    @property
    def outside(self) -> tuple[frozenset[int], ...]:
        return (*self.first, *self.last)

    def without(self, group: frozenset[int]) -> _Groups:
        """With one more in the loop in between, and those that cannot be elsewhere then."""
        places = frozenset[int]().union(*(self.first if group in self.first else self.last))
        within = {place: self.needs[place] & places for place in places}
        near = backwards(within) if group in self.first else within  # readers, or what they read
        gone = frozenset(reachable(group, near.__getitem__))
        first, last = (tuple(each for each in several if not gone & each) for several in (self.first, self.last))
        return replace(self, steps=self.steps | gone, first=first, last=last)

    def divided(self, group: frozenset[int], smallest: Sequence[frozenset[int]]) -> _Groups:
        """With a loop for each of those that depend on each other, in place of one for all that have to do with it."""
        parts = tuple(each for each in smallest if each <= group)
        first, last = (
            tuple(one for each in several for one in (parts if each == group else (each,)))
            for several in (self.first, self.last)
        )
        return replace(self, first=first, last=last)


def _plan_of(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> Plan | None:
    if not _may_be_parted(eqn):
        return None
    body = body_to_sweep(eqn, prepare)
    found = groups_of(body)
    groups = _groups(body, found)
    if not groups.outside or (not groups.steps and is_swept(eqn, prepare)):
        return None
    smallest = [frozenset(places) for places, _ in found]
    for group in groups.outside:
        if not _is_swept(eqn, _parted(body, groups), prepare, group):
            groups = groups.divided(group, smallest)
    plan, length = _parted(body, groups), eqn.params["length"]
    for group in groups.outside:
        if group in groups.outside:
            fewer = _parted(body, groups.without(group))
            if _saved(fewer, length) >= _saved(plan, length) or not _is_swept(eqn, plan, prepare, group):
                groups, plan = groups.without(group), fewer
    return plan if len(plan.parts) > 1 and _saved(plan, length) > 0 else None


def _may_be_parted(eqn: Eqn) -> bool:
    numbers, (num_consts, num_carry) = policy.COMMON, scan_counts_of(eqn.params)
    lanes = [atom.aval.size for atom in eqn.invars[num_consts : num_consts + num_carry]]
    is_long = eqn.params["length"] >= numbers.shortest_swept
    return is_long and num_carry > 1 and 0 < max(lanes) <= numbers.lanes_of_steps


def _groups(body: Body, found: Sequence[tuple[list[int], Carried | None]]) -> _Groups:
    same = frozenset(places[0] for places, each in found if each and each.kind is Kind.SAME)
    causes = {var: places - same for var, places in body.dependences.reached_by.items()}
    steps = {place for places, each in found if each is None or not _is_exact(each) for place in places}
    needs = {place: others - same for place, others in body.dependences.needs.items()}
    behind, ahead = affected(needs, needs.__getitem__, steps), set(reachable(steps, needs.__getitem__))
    others = frozenset(range(body.num_carry)) - same - (behind & ahead)
    first, last = (_connected(each, needs) for each in (others & ahead, others - ahead))
    return _Groups(same, frozenset(behind & ahead), first, last, causes, needs)


def _is_exact(carried: Carried) -> bool:
    is_combined = carried.kind in (Kind.RUNNING, Kind.TOTAL)
    return not is_combined or all(is_exact(var.aval.dtype) for var in carried.befores)


def _connected(places: Iterable[int], needs: Mapping[int, frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Those of these places together that have to do with each other."""
    found: list[frozenset[int]] = []
    for place in sorted(places):
        near = [each for each in found if needs[place] & each or any(place in needs[p] for p in each)]
        found = [each for each in found if each not in near] + [frozenset((place,)).union(*near)]
    return tuple(found)


def _parted(body: Body, groups: _Groups) -> Plan:
    """What each part carries, and puts out: what is asked for, and what is fewest for those after it."""
    places = [each for each in (*groups.first, groups.steps, *groups.last) if each]
    part = _part_of(groups, places)
    otherwise = min(len(groups.first), len(places) - 1)  # of what nothing that is carried leads to
    ys = dict.fromkeys(evaluate.variables(body.ys))
    shown = [[var for var in ys if part.get(var, otherwise) == n] for n in range(len(places))]
    free = {*ys, *(var for var in groups.causes if var not in part)}
    for n in reversed(range(1, len(places))):  # what the last one reads has to be made, too
        earlier = {var for var, own in part.items() if own < n}
        targets = [*_afters(body, places[n]), *shown[n]]
        made = evaluate.needed(body.jaxpr.eqns, _afters(body, frozenset[int]().union(*places[:n])), ())
        again = does_again if places[n] in groups.last else _moves
        for var in _cheapest(body, _asked(body, targets, earlier), free, made, again):
            if var in earlier - free:
                shown[part[var]].append(var)
                free.add(var)
    parts = (Part(tuple(sorted(each)), tuple(out), each != groups.steps) for each, out in zip(places, shown))
    return Plan(body, groups.same, tuple(parts))


def _part_of(groups: _Groups, places: Sequence[frozenset[int]]) -> dict[Var, int]:
    """The last part that leads to a value."""
    number = {place: n for n, each in enumerate(places) for place in each}
    return {var: max(number[place] for place in found) for var, found in groups.causes.items() if found}


def _afters(body: Body, places: Iterable[int]) -> list[Atom]:
    return [body.afters[place] for place in places]


def _moves(eqn: Eqn) -> bool:
    return eqn.primitive.name in MOVES


def _asked(body: Body, targets: Sequence[Atom], given: Collection[Var]) -> list[Var]:
    """What of these values leads to the targets."""
    eqns = evaluate.needed(body.jaxpr.eqns, targets, given)
    read = evaluate.read_by(eqns, targets)
    return [var for var in dict.fromkeys(read) if var in given]


def _cheapest(
    body: Body, asked: Sequence[Var], free: Collection[Var], made: Sequence[Eqn], again: Callable[[Eqn], bool]
) -> list[Var]:
    """The fewest bytes from which that is made again; of as many those that are `made` anyway, or there first."""
    waits, anyway = waits_of(body.jaxpr.eqns), {var for eqn in made for var in eqn.outvars}

    def cost(var: Var) -> int:
        return 0 if var in free else (nbytes(var) << 16) + (0 if var in anyway else int(waits[var]))

    return list(cheapest_of_step(body, asked, cost, lambda var, eqn: var not in free and again(eqn)))


def _saved(plan: Plan, length: int) -> float:
    """The instructions that wait for each other which all steps have less, beyond what the parts cost."""
    numbers, body = policy.COMMON, plan.body
    ys = set(evaluate.variables(body.ys))
    stored = sum(nbytes(var) for part in plan.parts for var in part.shown if var not in ys)
    before = longest(body.jaxpr.eqns, [*body.afters, *body.ys])
    after = max((longest(*_steps_of(plan, part)) for part in plan.parts if not part.is_swept), default=0)
    least = 0 if all(part.is_swept for part in plan.parts) else numbers.worth_parting
    a_step = before - after - least - stored / numbers.bytes_of_a_wait
    return a_step * length - sum(part.is_swept for part in plan.parts) * numbers.waits_of_a_kernel


def _steps_of(plan: Plan, part: Part) -> tuple[list[Eqn], list[Atom]]:
    """The equations of a part, and what they are for."""
    earlier = plan.parts[: plan.parts.index(part)]
    targets = [*(plan.body.afters[place] for place in part.places), *part.shown]
    return evaluate.needed(plan.body.jaxpr.eqns, targets, [var for each in earlier for var in each.shown]), targets


def _is_swept(eqn: Eqn, plan: Plan, prepare: Callable[[Closed], Closed], places: Collection[int]) -> bool:
    """Whether tiles are made of the part that has these places."""
    closed = made(
        jax.make_jaxpr(lambda *args: _distributed(node_of(eqn, args), plan))(*(atom.aval for atom in eqn.invars))
    )
    scans = [each for each in closed.jaxpr.eqns if each.primitive.name == "scan"]
    return all(
        is_swept(scan, prepare) for scan, part in zip(scans, plan.parts, strict=True) if set(part.places) == set(places)
    )


def _distributed(node: Node, plan: Plan) -> list[Value]:
    """Those whose results another loop reads, which has other lanes, write them first."""
    stages = [Stage(each.places, each.shown, plan.is_read or each is not plan.parts[-1]) for each in plan.parts]
    return distribute(node, plan.body, stages, plan.same)
