"""Where kernels end: which values must be in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from jaxpr2triton.graph.classes import classes_of
from jaxpr2triton.graph.covered import is_short_contraction, why_not
from jaxpr2triton.graph.nodes import Compute, Reduce, Swept, operands_of
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.space import Space
from jaxpr2triton.graph.variables import as_variables
from jaxpr2triton.graph.walk import TooManyPlaces
from jaxpr2triton.ir.dataflow import forward_equations, sources
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.region import IN_MEMORY
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.plan.decisions import FIRM, WISHES, Decisions, KeepLess, KeepMore, Refuse, Wish
from jaxpr2triton.plan.partition import because
from jaxpr2triton.plan.partition.alike import alike
from jaxpr2triton.plan.partition.before import computed_before
from jaxpr2triton.plan.partition.criteria import (
    acceptable,
    computations,
    culprits_of,
    fits,
    held_by_loops,
    kept_at_a_cost,
    loads_of,
    made_again,
    may_be_weighed,
    most_read,
    repeats,
    sums_over_lanes,
)
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.ends import end_of
from jaxpr2triton.plan.partition.keeping import held_along
from jaxpr2triton.plan.partition.lanes import (
    much_beside_steps,
    read_in,
    read_together,
    summed_by_root,
    summed_over_lanes,
)
from jaxpr2triton.plan.partition.loop_results import kept_by_choice, kept_instead, refused
from jaxpr2triton.plan.partition.overlaps import computed_again
from jaxpr2triton.plan.partition.segments import pieces
from jaxpr2triton.plan.partition.written import written_instead
from jaxpr2triton.plan.refusal import body_of, is_refused, refused_for
from jaxpr2triton.policy import DEFAULT_POLICY, Policy

NOTHING: Mapping[Var, str] = MappingProxyType({})


def find_cuts(
    jaxpr: Jaxpr, decisions: Decisions = FIRM, policy: Policy = DEFAULT_POLICY, brought: Mapping[Var, str] = NOTHING
) -> Cuts | Wish:
    """The roots of all kernels: outputs, what XLA reads, and reductions that are wanted for more than one program.

    So is what is to be `brought` there, each for a reason. A wish, where more loops have to stay with XLA, or other
    results of loops be kept in their kernels.
    """
    cuts = first_cuts(jaxpr, decisions, policy, brought)
    return _cut_until_acceptable(cuts) or cuts


def first_cuts(jaxpr: Jaxpr, decisions: Decisions, policy: Policy, brought: Mapping[Var, str] = NOTHING) -> Cuts:
    """Where kernels end whatever they are."""
    inside, outside = inside_and_outside(jaxpr, decisions)
    aliases = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive in IN_MEMORY}
    wanted = [*jaxpr.outvars, *(v for eqn in outside for v in eqn.invars), *aliases.values()]
    in_memory = [*jaxpr.invars, *(v for eqn in outside for v in eqn.outvars), *aliases]
    loaded = {var: number for number, var in enumerate(dict.fromkeys(in_memory))}
    views = _views(inside, loaded, wanted, set(aliases.values()))

    computed = {var for eqn in inside for var in eqn.outvars}
    computed -= {eqn.outvars[0] for eqn in views}
    written = dict.fromkeys(variables([*wanted, *(eqn.invars[0] for eqn in views)]))
    roots = [v for v in written if v in computed]
    cuts = Cuts(jaxpr, classes_of(jaxpr), inside, outside, loaded, views, roots, decisions, policy)
    _contractions_apart(cuts)
    _few_at_once(cuts)
    for value, why in brought.items():
        cuts.add_root(value, why)
    _end_loops(cuts)
    return cuts


def _contractions_apart(cuts: Cuts) -> None:
    """Let contractions have kernels of their own, where there are loops: what a loop makes for them is in memory."""
    of_loops = forward_equations(cuts.inside, lambda eqn, below: eqn.primitive.name in LOOPS or any(below))
    if not any(of_loops.values()):
        return
    for eqn in cuts.inside:
        if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
            for value in variables(eqn.invars):
                if of_loops.get(value) and value not in cuts.loaded and cuts.is_inside(value):
                    for each in read_together(cuts, value):
                        cuts.add_root(each, because.CONTRACTED)
            cuts.add_root(eqn.outvars[0], because.CONTRACTED)


def _few_at_once(cuts: Cuts) -> None:
    """End kernels after so many contractions of each other, so that no walk sees all layers of a network."""
    most, depths, ends = cuts.policy.products.links, dict[Atom, int](), set[Atom]()
    for eqn in cuts.inside:
        depth = max((depths.get(atom, 0) for atom in variables(eqn.invars)), default=0)
        if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
            depth += 1
            if depth == most:
                ends.add(end := end_of(cuts, eqn, eqn.outvars[0]))
                cuts.add_root(end, because.LINKS)
        depths.update((var, 0 if var in ends else depth) for var in eqn.outvars)


def _end_loops(cuts: Cuts) -> None:
    """Let all that is read of some loops come into memory, so that no other kernel runs them again."""
    for eqn in cuts.inside:
        if eqn.primitive.name in LOOPS and body_of(eqn) in cuts.decisions.ended:
            for value in eqn.outvars:
                if value in read_in(cuts.jaxpr):
                    cuts.add_root(value, because.wanted_often(eqn))


def inside_and_outside(jaxpr: Jaxpr, decisions: Decisions) -> tuple[list[Eqn], list[Eqn]]:
    """The equations that kernels compute, and those that stay with XLA; boundaries and flags are neither."""
    loops = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in LOOPS]
    kept = {body_of(eqn) for eqn in loops if not is_refused(eqn, decisions) and why_not(eqn) is None}
    inside: list[Eqn] = []
    outside: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive in IN_MEMORY:
            continue
        if eqn.primitive.name in LOOPS:
            kernel_can = body_of(eqn) in kept
        else:
            refusal = why_not(eqn)
            kernel_can = refusal is None or (bool(kept) and is_short_contraction(eqn))
        (inside if kernel_can else outside).append(eqn)
    return inside, outside


def _views(inside: list[Eqn], loaded: dict[Var, int], wanted: Iterable[Atom], chunked: Set[Atom]) -> list[Eqn]:
    """The equations that rename an array and whose results are wanted in memory: writing the operand is enough.

    What is written in chunks on purpose keeps its shape.
    """
    targets = {v for v in variables(wanted) if v not in chunked}
    views = []
    for eqn in reversed(inside):
        if eqn.outvars[0] not in targets or not _is_view(eqn, loaded):
            continue
        for operand in variables(eqn.invars):
            views.append(eqn)
            if operand not in loaded:
                targets.add(operand)
    return views[::-1]


def _is_view(eqn: Eqn, loaded: Mapping[Var, int]) -> bool:
    """Whether the result is the operand by another name; a kernel squeezes what it computes itself as it writes it."""
    if eqn.primitive.name == "squeeze":
        return not isinstance(eqn.invars[0], Literal) and eqn.invars[0] in loaded
    return eqn.primitive.name == "reshape" and eqn.params["dimensions"] is None


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
            self._roots.pop(root, None)
            self._later.pop(root, None)
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
        again = _crowding(cuts, root)
        if again == []:
            again = _too_much(cuts, root)
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
    try:
        space = cuts.space_of(readers, without=[value])
    except TooManyPlaces:
        return
    if space is None or culprits_of(cuts, space, readers[0]) or not acceptable(space, cuts.policy):
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
    else:
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


def _space_alone(cuts: Cuts, roots: list[Var]) -> Space | TooManyPlaces | Refuse | None:
    try:
        return cuts.space_of(roots)
    except TooManyPlaces as crowded:
        return crowded.with_traceback(None)  # in whose frames the walk still is
    except Exception as problem:
        if (refusal := refused_for(problem, cuts.below(roots))) is None:
            raise
        return refusal


def _too_much(cuts: Cuts, root: Var) -> list[Var] | Wish:
    """Cut what makes the kernel of a root hold too much, run in too few programs, or become too long.

    Gives back the roots that have to be looked at again.
    """
    space, most = cuts.spaces[root], cuts.policy.cuts
    if dear := kept_at_a_cost(cuts, space):
        return KeepLess(tuple(dear))
    if space.steps and (found := _too_much_for_a_loop(cuts, space, root)):
        return found
    if culprits := _culprits(cuts, space, root):
        return [root, *(each for node, why in culprits for each in _cut_before(cuts, space, root, node, why))]
    if values := computed_again(cuts, space, root):
        cuts.computed_once.update(values)
        return [root, *_cut(cuts, *values, why=because.computed_again(cuts.maker(values[0])))]
    if values := computed_before(cuts, root, space):
        cuts.reads_instead = True
        readers = [reader for value in values for reader in _cut(cuts, value, why=because.READ_INSTEAD)]
        return [*readers, root, *reversed(values)]
    steps = [node for node in space.graph.of_kind(Compute) if node.eqn.outvars[0] is not root]
    if space.steps and len(steps) > most.steps_of_loops and not as_variables(space, cuts.policy):
        return refused(_read_by(cuts, space), f"it is {len(steps)} computations long, too many for one kernel")
    if not space.steps and len(steps) >= most.steps:
        values, why = pieces(space.graph, steps, most), because.too_long(len(steps), most.steps)
        readers = [reader for value in values for reader in _cut(cuts, value, why=why)]
        return [*readers, root, *reversed(values)]  # the first one first: others read what is cut of it
    return []


def _cut_before(cuts: Cuts, space: Space, root: Var, node: Reduce | Swept, why: str) -> list[Var]:
    """Cut what is needed first, or results that are made of it and written anyway."""
    value = node.eqn.outvars[0]
    results = [] if space.steps else written_instead(cuts, root, value)
    if results:
        return [reader for result in results for reader in _cut(cuts, result, why=because.WRITTEN)]
    end = end_of(cuts, node.eqn, root)
    return _cut(cuts, value if end is root else end, why=why)


def _too_much_for_a_loop(cuts: Cuts, space: Space, root: Var) -> list[Var] | Refuse | None:
    """Cut what the programs of a loop have no room for, or would compute alone before it or after it."""
    if not fits(cuts, space) and (found := _without_room(cuts, space, root)):
        return found
    if values := much_beside_steps(cuts, space, root):
        return [root, *_cut(cuts, *values, why=because.MUCH_BESIDE_STEPS)]
    return None


def _without_room(cuts: Cuts, space: Space, root: Var) -> list[Var] | Refuse | None:
    """Cut what lanes are summed for, or the lanes of such sums; what is read in every step may be weighed instead."""
    if sums := sums_over_lanes(cuts, space, root):
        return [root, *_cut(cuts, sums[-1].eqn.outvars[0], why=because.needed_first(sums[-1].eqn))]
    if results := summed_by_root(cuts, space, root):
        return [root, *_cut(cuts, *results)]
    if may_be_weighed(cuts, space):
        return None
    carried, read = held_by_loops(cuts, space)
    why = because.not_held(carried, read, cuts.policy.cuts.carried, most_read(cuts, space))
    return refused(_read_by(cuts, space), why)


def _culprits(cuts: Cuts, space: Space, root: Var) -> list[tuple[Reduce | Swept, str]]:
    """What had better be in memory before the kernel of a root begins, each with the reason."""
    culprits = [] if acceptable(space, cuts.policy, cuts.is_shared_out(space)) else culprits_of(cuts, space, root)
    if culprits:
        others = [node for node in culprits if end_of(cuts, node.eqn, root) is not root]  # what it is for comes last
        repeated = repeats(space, culprits[-1], cuts.policy.cuts)
        why = because.made_again if repeated else because.needed_first
        return [(node, why(node.eqn)) for node in _later_half(space, others or culprits)]
    again = [node for node in made_again(cuts, space, root) if end_of(cuts, node.eqn, root) not in cuts.loaded]
    return [(node, because.made_again(node.eqn)) for node in again[-1:]]


def _later_half(space: Space, culprits: Sequence[Reduce | Swept]) -> Sequence[Reduce | Swept]:
    """The later half, last one first, of the culprits that no other one is made of.

    Once they are in memory the others may be none; and a kernel that reads hundreds takes few walks to be found.
    """
    above = sources(space.graph.nodes, operands_of, culprits)
    needed = frozenset(each for node in culprits for each in above[node] - {node})
    free = [node for node in culprits if node not in needed]
    return free[-max(len(free) // 2, 1) :][::-1]


def _noted_at_once(cuts: Cuts, batch: list[Var]) -> Space | None:
    """The one space of all these roots, if nothing has to be cut for any of them; else each is to be seen alone."""
    space = _space_alone(cuts, batch)
    if not isinstance(space, Space) or not space.steps:
        return None
    if any(True for _ in Order(space.graph, space.steps).conflicts()):
        return None
    if summed_over_lanes(cuts, space) or kept_at_a_cost(cuts, space) or not fits(cuts, space):
        return None
    steps = computations(space)
    return space if steps <= cuts.policy.cuts.steps_of_loops or as_variables(space, cuts.policy) else None


def _read_by(cuts: Cuts, space: Space) -> list[Eqn]:
    return [eqn for eqn in cuts.inside if reads(space, eqn)]


def _over_already(cuts: Cuts, space: Space) -> list[Var] | Wish:
    """Results of a loop that have to be in memory, because they are read where its steps are over."""
    for _, recurrence in Order(space.graph, space.steps).conflicts() if space.steps else ():
        results: list[Var] = next((eqn.outvars for eqn in cuts.inside if eqn is recurrence.eqn), [])
        unwritten = [var for var in results if var not in cuts.loaded]
        if not unwritten:
            why = "a loop in its body reads what another one there has made, step by step"
            refusal = refused(_read_by(cuts, space), why)
            if recurrence.eqn in cuts.inside:
                return refusal
            return KeepMore(tuple(held_along(recurrence.eqn).items()), refusal)
        return read_together(cuts, unwritten[0])
    return []


def _into_memory(cuts: Cuts, values: list[Var]) -> list[Var] | Wish:
    """Let the kernel end after these values; but keep in it what a loop makes for another loop only."""
    return kept_by_choice(cuts, values) or _cut(cuts, *values)


def _cut(cuts: Cuts, *values: Var, why: str = "") -> list[Var]:
    """Put values of one equation into memory; returns the roots that have to be looked at again."""
    for value in values:
        cuts.add_root(value, why or because.wanted_often(cuts.maker(value)))
    return [*values, *cuts.readers_of(cuts.maker(values[0]))]


def reads(space: Space, eqn: Eqn) -> bool:
    return id(eqn) in space.computes
