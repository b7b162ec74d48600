"""What is too much for one kernel: what it would hold, how few programs it would run in, how long it would be."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.graph.nodes import Compute, Reduce, Swept, operands_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.graph.variables import as_variables
from jaxpr2triton.ir.dataflow import sources
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.plan.decisions import KeepLess, Refuse, Wish
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.before import computed_before
from jaxpr2triton.plan.partition.criteria import (
    acceptable,
    culprits_of,
    fits,
    held_by_loops,
    kept_at_a_cost,
    made_again,
    may_be_weighed,
    most_read,
    repeats,
    sums_over_lanes,
)
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.ends import end_of
from jaxpr2triton.plan.partition.lanes import much_beside_steps, summed_by_root
from jaxpr2triton.plan.partition.overlaps import computed_again
from jaxpr2triton.plan.partition.segments import pieces
from jaxpr2triton.plan.partition.written import written_instead
from jaxpr2triton.plan.refusal import refuse_loops


def cut_excess(cuts: Cuts, root: Var) -> list[Var] | Wish:
    """Cut what makes the kernel of a root hold too much, run in too few programs, or become too long.

    Gives back the roots that have to be looked at again.
    """
    space, most = cuts.spaces[root], cuts.policy.cuts
    if dear := kept_at_a_cost(cuts, space):
        return KeepLess(tuple(dear))
    if space.steps and (found := _too_much_for_a_loop(cuts, space, root)):
        return found
    if found := _without_culprits(cuts, space, root):
        return found
    if values := computed_again(cuts, space, root):
        cuts.computed_once.update(values)
        return [root, *cuts.cut(*values, why=cut_reasons.computed_again(cuts.maker(values[0])))]
    if values := computed_before(cuts, root, space):
        cuts.reads_instead = True
        readers = [reader for value in values for reader in cuts.cut(value, why=cut_reasons.READ_INSTEAD)]
        return [*readers, root, *reversed(values)]
    steps = [node for node in space.graph.of_kind(Compute) if node.eqn.outvars[0] is not root]
    if space.steps and len(steps) > most.steps_of_loops and not as_variables(space, cuts.policy):
        return refuse_loops(cuts.computed_by(space), f"it is {len(steps)} computations long, too many for one kernel")
    if not space.steps and len(steps) >= most.steps:
        values, why = pieces(space.graph, steps, cuts.policy), cut_reasons.too_long(len(steps), most.steps)
        readers = [reader for value in values for reader in cuts.cut(value, why=why)]
        return [*readers, root, *reversed(values)]  # the first one first: others read what is cut of it
    return []


def _cut_before(cuts: Cuts, space: Space, root: Var, node: Reduce | Swept, why: str) -> list[Var]:
    """Cut what is needed first, or results that are made of it and written anyway."""
    value = node.eqn.outvars[0]
    results = [] if space.steps else written_instead(cuts, root, value)
    if results:
        return [reader for result in results for reader in cuts.cut(result, why=cut_reasons.WRITTEN)]
    end = end_of(cuts, node.eqn, root)
    return cuts.cut(value if end is root else end, why=why)


def _without_culprits(cuts: Cuts, space: Space, root: Var) -> list[Var] | None:
    """Cut what had better be in memory before the kernel of a root begins, and what others would make again."""
    if culprits := _culprits(cuts, space, root):
        return [root, *(each for node, why in culprits for each in _cut_before(cuts, space, root, node, why))]
    again = [node for node in made_again(cuts, space, root) if end_of(cuts, node.eqn, root) not in cuts.loaded]
    return [root, *_make_once(cuts, space, root, again[-1])] if again else None


def _make_once(cuts: Cuts, space: Space, root: Var, node: Reduce) -> list[Var]:
    """Let one kernel make a contraction, and what it is for: others read that, were it what this kernel is for."""
    why = cut_reasons.made_again(node.eqn)
    if end_of(cuts, node.eqn, root) is root and len(cuts.spaces.computing(cuts.maker(root))) > 1:
        return cuts.cut(root, why=why)
    return _cut_before(cuts, space, root, node, why)


def _too_much_for_a_loop(cuts: Cuts, space: Space, root: Var) -> list[Var] | Refuse | None:
    """Cut what the programs of a loop have no room for, or would compute alone before it or after it."""
    if not fits(cuts, space) and (found := _without_room(cuts, space, root)):
        return found
    values = much_beside_steps(cuts, space, root)
    return [root, *cuts.cut(*values, why=cut_reasons.MUCH_BESIDE_STEPS)] if values else None


def _without_room(cuts: Cuts, space: Space, root: Var) -> list[Var] | Refuse | None:
    """Cut what lanes are summed for, or the lanes of such sums; what is read in every step may be weighed instead."""
    if sums := sums_over_lanes(cuts, space, root):
        return [root, *cuts.cut(sums[-1].eqn.outvars[0], why=cut_reasons.needed_first(sums[-1].eqn))]
    if results := summed_by_root(cuts, space, root):
        return [root, *cuts.cut(*results)]
    if may_be_weighed(cuts, space):
        return None
    carried, read = held_by_loops(cuts, space)
    why = cut_reasons.not_held(carried, read, cuts.policy.carried, most_read(cuts.policy, space))
    return refuse_loops(cuts.computed_by(space), why)


def _culprits(cuts: Cuts, space: Space, root: Var) -> list[tuple[Reduce | Swept, str]]:
    """What had better be in memory before the kernel of a root begins, each with the reason."""
    fine = acceptable(space, cuts.policy, cuts.is_shared_out(space))
    culprits = [] if fine else culprits_of(cuts.policy, space, root)
    if culprits:
        others = [node for node in culprits if end_of(cuts, node.eqn, root) is not root]  # what it is for comes last
        repeated = repeats(space, culprits[-1], cuts.policy)
        why = cut_reasons.made_again if repeated else cut_reasons.needed_first
        return [(node, why(node.eqn)) for node in _later_half(space, others or culprits)]
    return []


def _later_half(space: Space, culprits: Sequence[Reduce | Swept]) -> Sequence[Reduce | Swept]:
    """The later half, last one first, of the culprits that no other one is made of.

    Once they are in memory the others may be none; and a kernel that reads hundreds takes few walks to be found.
    """
    above = sources(space.graph.nodes, operands_of, culprits)
    needed = frozenset(each for node in culprits for each in above[node] - {node})
    free = [node for node in culprits if node not in needed]
    return free[-max(len(free) // 2, 1) :][::-1]
