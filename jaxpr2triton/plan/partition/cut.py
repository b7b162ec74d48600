"""Where kernels end: which values must be in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.space import Space, shared_axes, size_of
from jaxpr2triton.graph.variables import as_variables
from jaxpr2triton.ir.jaxprs import Jaxpr, Var
from jaxpr2triton.plan.decisions import FIRM, WISHES, Decisions, KeepMore, Refuse, Wish
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.alike import alike
from jaxpr2triton.plan.partition.criteria import (
    acceptable,
    computations,
    culprits_of,
    fits,
    held_by_loops,
    kept_at_a_cost,
    loads_of,
    may_be_weighed,
    most_read,
)
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.excess import cut_excess
from jaxpr2triton.plan.partition.first_cuts import NOTHING, first_cuts
from jaxpr2triton.plan.partition.keeping import held_along
from jaxpr2triton.plan.partition.lanes import read_together, summed_over_lanes
from jaxpr2triton.plan.partition.loop_results import kept_by_choice, kept_instead
from jaxpr2triton.plan.partition.sources import is_spread
from jaxpr2triton.plan.refusal import refuse_loops, refused_for
from jaxpr2triton.policy import DEFAULT_POLICY, Policy


def find_cuts(
    jaxpr: Jaxpr, decisions: Decisions = FIRM, policy: Policy = DEFAULT_POLICY, brought: Mapping[Var, str] = NOTHING
) -> Cuts | Wish:
    """The roots of all kernels: outputs, what XLA reads, and reductions that are wanted for more than one program.

    So is what is to be `brought` there, each for a reason. A wish, where more loops have to stay with XLA, or other
    results of loops be kept in their kernels.
    """
    cuts = first_cuts(jaxpr, decisions, policy, brought)
    return _cut_until_acceptable(cuts) or cuts


class Pending:
    """The roots that have to be looked at, the last one first; each once, however often it was asked for.

    Those that others have cut something of come last of all: once for all that is cut of them meanwhile.
    """

    def __init__(self, roots: Iterable[Var]) -> None:
        self._roots = dict.fromkeys(roots)
        self._later: dict[Var, None] = {}

    def __bool__(self) -> bool:
        return bool(self._roots) or bool(self._later)

    def pop(self) -> Var:
        return (self._roots or self._later).popitem()[0]

    def defer(self, roots: Iterable[Var]) -> None:
        self._later.update(dict.fromkeys(root for root in roots if root not in self._roots))

    def extend(self, roots: Iterable[Var]) -> None:
        for root in roots:
            self.drop([root])
            self._roots[root] = None

    def drop(self, roots: Iterable[Var]) -> None:
        for root in roots:
            self._roots.pop(root, None)
            self._later.pop(root, None)


def _cut_until_acceptable(cuts: Cuts) -> Wish | None:
    """Cut values out of the kernels that want them too often or for too much, until every kernel is acceptable."""
    pending = Pending(cuts.roots)
    batches = alike(cuts)
    first = frozenset(cuts.roots)
    while pending:
        root = pending.pop()
        batch = batches.get(root, [])
        for each in batch:
            del batches[each]
        if batch and (joint := _noted_at_once(cuts, batch)) is not None:
            for each in batch:
                cuts.note(each, joint)
            pending.drop(batch)
            continue
        again = _not_spread(cuts, batch) or _crowding(cuts, root)
        if again == []:
            again = cut_excess(cuts, root)
        elif not isinstance(again, WISHES):
            batches = alike(cuts)
        if isinstance(again, WISHES):
            return again
        pending.defer(each for each in again if each is not root and each in cuts.spaces)
        pending.extend(each for each in again if each is root or each not in cuts.spaces)
    if cuts.reads_instead:
        for value in [root for root in cuts.roots if root not in first]:
            _rejoin(cuts, value)
    return None


def _rejoin(cuts: Cuts, value: Var) -> None:
    """Compute a value in the one kernel that reads it, where that can be: what was too much before need not be now."""
    most = cuts.policy.cuts
    readers = [root for root in cuts.roots if value in loads_of(cuts, cuts.spaces[root])]
    if len(readers) != 1:
        return
    space = cuts.joint_space(readers, without=[value])
    if space is None or culprits_of(cuts.policy, space, readers[0]) or not acceptable(space, cuts.policy):
        return
    if computations(space) < most.steps:
        cuts.drop_root(value)
        cuts.note(readers[0], space)


def _crowding(cuts: Cuts, root: Var) -> list[Var] | Wish:
    """Cut what the kernel of a root wants at too many places, or when it is too early; note what is left.

    Gives back the roots that have to be looked at again.
    """
    space = _space_alone(cuts, [root])
    if isinstance(space, Refuse):
        return space
    if isinstance(space, TooManyPlaces):
        is_cut = space.variable in cuts.loaded and space.variable not in cuts.shared
        if space.dims is not None or not cuts.is_inside(space.variable) or is_cut:
            return kept_instead(cuts, space, cuts.below([root]))
        return _crowded_into_memory(cuts, root, space)
    assert space is not None  # one output always fits itself
    cuts.note(root, space)
    over = _over_already(cuts, space)
    if isinstance(over, WISHES):
        return over
    values = over or summed_over_lanes(cuts, space)
    if not values:
        return []
    readers = _into_memory(cuts, values)
    return readers if isinstance(readers, WISHES) else [root, *readers]


def _crowded_into_memory(cuts: Cuts, root: Var, crowded: TooManyPlaces) -> list[Var] | Wish:
    """Let a kernel read all that it wants at too many places; one walk has found it."""
    again: dict[Var, None] = {root: None}
    for value in (crowded.variable, *crowded.others):
        if value not in cuts.loaded or value in cuts.shared:
            readers = _into_memory(cuts, read_together(cuts, value))
            if isinstance(readers, WISHES):
                return readers
            again |= dict.fromkeys(readers)
    return list(again)


def _space_alone(cuts: Cuts, roots: list[Var], union: bool = False) -> Space | TooManyPlaces | Refuse | None:
    try:
        return cuts.space_of(roots, union)
    except TooManyPlaces as crowded:
        return crowded
    except Exception as problem:
        if (refusal := refused_for(problem, cuts.below(roots))) is None:
            raise
        return refusal


def _noted_at_once(cuts: Cuts, batch: list[Var]) -> Space | None:
    """The one space of all these roots, if nothing has to be cut for any of them; else each is to be seen alone."""
    space = _space_alone(cuts, batch, any(map(is_spread, cuts.below(batch))))
    if not isinstance(space, Space) or not space.steps:
        return None
    if any(True for _ in Order(space.graph, space.steps).conflicts()):
        return None
    is_held = may_be_weighed(cuts, space) if shared_axes(space.graph) else fits(cuts, space)
    if summed_over_lanes(cuts, space) or kept_at_a_cost(cuts, space) or not is_held:
        return None
    steps = computations(space)
    return space if steps <= cuts.policy.cuts.steps_of_loops or as_variables(space, cuts.policy) else None


def _not_spread(cuts: Cuts, batch: list[Var]) -> Refuse | None:
    """Why programs do not share out what a loop carries, after all, if these are results of one that is spread."""
    if not batch or not any(map(is_spread, cuts.below(batch))):
        return None
    space = _space_alone(cuts, batch, True)
    if isinstance(space, Refuse):
        return space
    if not isinstance(space, Space):
        return None  # each of them is looked at alone
    programs, (carried, read) = size_of(shared_axes(space.graph)), held_by_loops(cuts, space)
    why = cut_reasons.part_not_held(programs, carried, read, cuts.policy.carried, most_read(cuts.policy, space))
    return refuse_loops(cuts.below(batch), why)


def _over_already(cuts: Cuts, space: Space) -> list[Var] | Wish:
    """Results of a loop that have to be in memory, because they are read where its steps are over."""
    for _, recurrence in Order(space.graph, space.steps).conflicts() if space.steps else ():
        results: list[Var] = next((eqn.outvars for eqn in cuts.inside if eqn is recurrence.eqn), [])
        unwritten = [var for var in results if var not in cuts.loaded]
        if not unwritten:
            why = "a loop in its body reads what another one there has made, step by step"
            refusal = refuse_loops(cuts.computed_by(space), why)
            if recurrence.eqn in cuts.inside:
                return refusal
            return KeepMore(tuple(held_along(recurrence.eqn).items()), refusal)
        return read_together(cuts, unwritten[0])
    return []


def _into_memory(cuts: Cuts, values: list[Var]) -> list[Var] | Wish:
    """Let the kernel end after these values; but keep in it what a loop makes for another loop only."""
    return kept_by_choice(cuts, values) or cuts.cut(*values)
