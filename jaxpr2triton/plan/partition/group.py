"""Which roots share a kernel."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.chains import chain_of
from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.nodes import Reduce, Take
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Var, elements, nbytes
from jaxpr2triton.ir.region import IN_MEMORY
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.criteria import acceptable, computations, contracts_in_blocks, loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.levels import operands_of
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.policy import Grouping, Policy

WORTH_TRYING = 6  # roots without a loop that are tried together before they are tried one by one
TAKEN_APART = "what one of them combines at once, the steps of the other one would take apart"
FEW = "fused, there would be too few programs or too many live values"


@dataclass
class Group:
    level: int
    roots: list[Var]
    space: Space
    apart: str = ""  # why its first root did not come to the group before it on the same level


def group_roots(cuts: Cuts, levels: Mapping[Var, int], chains: Sequence[list[Var]] = ()) -> list[Group]:
    """Roots of one level with one iteration space and a common operand share a kernel, and those of a chain do."""
    groups: list[Group] = []
    by_level: dict[int, list[Group]] = {}
    for chain in chains:
        space = cuts.space_of(chain, union=True)
        assert space is not None  # or it was no chain
        groups.append(Group(levels[chain[0]], chain, space))
        by_level.setdefault(levels[chain[0]], []).append(groups[-1])
    chained = {root for chain in chains for root in chain}
    order = {var: number for number, var in enumerate(v for eqn in cuts.jaxpr.eqns for v in eqn.outvars)}
    alone = (root for root in cuts.roots if root not in chained)
    roots = sorted(alone, key=lambda v: (levels[v], -len(v.aval.shape), order[v]))
    pending = deque(roots)
    while pending:
        level = by_level.setdefault(levels[pending[0]], [])
        full = all(len(group.roots) >= cuts.policy.groups.outputs for group in level)
        if full and (batch := _all_at_once(cuts, pending, levels)) is not None:
            batch.roots.sort(key=lambda v: order[v])
            batch.apart = _full(cuts.policy.groups) if level else ""
            groups.append(batch)
            level.append(batch)
            continue
        root = pending.popleft()
        tried = ((group, _joined(cuts, group, root)) for group in level)
        apart = ""
        for home, joined in tried:
            if isinstance(joined, Space):
                home.roots = sorted([*home.roots, root], key=lambda v: order[v])
                home.space = joined
                break
            apart = joined
        else:
            level.append(Group(levels[root], [root], cuts.spaces[root], apart))
            groups.append(level[-1])
    _let_wait(cuts, groups, order)
    return groups


def _read_anywhere(cuts: Cuts, groups: Sequence[Group]) -> set[Atom]:
    """What kernels and XLA read, and what that is called where it is made."""
    read: set[Atom] = {var for group in groups for var in operands_of(cuts, group.roots)}
    read.update(atom for eqn in (*cuts.outside, *cuts.views) for atom in variables(eqn.invars))
    boundaries = [eqn for eqn in cuts.jaxpr.eqns if eqn.primitive in IN_MEMORY]
    read.update(atom for eqn in boundaries if not read.isdisjoint(eqn.outvars) for atom in variables(eqn.invars))
    return read


def _let_wait(cuts: Cuts, groups: list[Group], order: Mapping[Var, int]) -> None:
    """Let results that nobody waits for be made by a later kernel that multiplies what they are made of.

    d_v = p.T @ g;  d_k = s.T @ q     of the same rows and blocks, but that d_k needs a sum that comes before it
    """
    multiplying = [group for group in groups if any(map(is_contraction, group.space.graph.of_kind(Reduce)))]
    if len({group.level for group in multiplying}) < 2:
        return
    read = _read_anywhere(cuts, groups)
    for group in multiplying:
        for root in [root for root in group.roots if root not in read]:
            others = [other for other in group.roots if other is not root]
            if others and _is_made_for(cuts, root, others):
                continue
            if _comes_later(cuts, multiplying, group, root, order):
                group.roots.remove(root)
                if not others:
                    groups.remove(group)
                    continue
                group.space = cuts.joint_space(others, union=True) or group.space


def _is_made_for(cuts: Cuts, root: Var, others: Sequence[Var]) -> bool:
    """Whether a kernel of other roots reads this one, or makes it on the way."""
    return root in operands_of(cuts, others) or cuts.maker(root) in cuts.below(others)


def _comes_later(cuts: Cuts, groups: Sequence[Group], group: Group, root: Var, order: Mapping[Var, int]) -> bool:
    for later in (each for each in groups if each.level > group.level):
        joined = _joined_in_a_walk(cuts, later, root)
        if joined is not None:
            later.roots, later.space = sorted([*later.roots, root], key=lambda v: order[v]), joined
            return True
    return False


def _joined_in_a_walk(cuts: Cuts, later: Group, root: Var) -> Space | None:
    """What a kernel would be with this root as well, if it walks along what both of them multiply."""
    mine, theirs = (space.graph.of_kind(Reduce) for space in (cuts.spaces[root], later.space))
    shared = {node.eqn for node in mine if is_contraction(node)} & {node.eqn for node in theirs if is_contraction(node)}
    joined = _joined(cuts, later, root) if shared else ""
    chain = chain_of(joined, cuts.policy.axes.unrolled_sum) if isinstance(joined, Space) else None
    return joined if isinstance(joined, Space) and chain is not None and chain.walked else None


def _all_at_once(cuts: Cuts, pending: deque[Var], levels: Mapping[Var, int]) -> Group | None:
    """The next roots in one kernel, found by one walk; None where they have to be tried one by one."""
    candidates = _alike(cuts, pending, levels)
    while len(candidates) >= (2 if cuts.spaces[pending[0]].loops else WORTH_TRYING):
        joined = _space_of_all(cuts, candidates)
        if joined is not None:
            for _ in candidates:
                pending.popleft()
            return Group(levels[candidates[0]], candidates, joined)
        candidates = candidates[: len(candidates) // 2]
    return None


def _alike(cuts: Cuts, pending: Iterable[Var], levels: Mapping[Var, int]) -> list[Var]:
    """The first of these roots that have a loop in common, or a shape, as many as can share a kernel."""
    policy = cuts.policy.groups
    found: list[Var] = []
    loops: frozenset[int] = frozenset()
    loads: set[Var] = set()
    for root in pending:
        space = cuts.spaces[root]
        mine = set(loads_of(cuts, space))
        if found:
            first = found[0]
            same = bool(loops & space.loops) if loops else not space.loops and root.aval.shape == first.aval.shape
            most = policy.pointers - len(loads | mine) if loops else policy.outputs
            alike = same and levels[root] == levels[first] and _reads_alike(mine, loads, cuts.policy)
            if len(found) >= most or not alike:
                break
        found.append(root)
        loops, loads = loops | space.loops, loads | mine
    return found


def _space_of_all(cuts: Cuts, roots: Sequence[Var]) -> Space | None:
    """The space of a kernel of these roots; None if there had better be no such kernel, or it is not sure."""
    spaces = [cuts.spaces[root] for root in roots]
    common_loop = bool(spaces[0].loops)
    joined = cuts.joint_space(roots, union=common_loop)
    if joined is None or (joined.steps and any(True for _ in Order(joined.graph, joined.steps).conflicts())):
        return None
    if common_loop:
        return joined
    good = acceptable(joined, cuts.policy) and joined.held <= min(space.held for space in spaces)
    return joined if good and computations(joined) < cuts.policy.cuts.steps else None


def is_cheap(read: Set[Var], policy: Policy) -> bool:
    """Whether to read all of these takes less than a launch, so that saving one is all that counts."""
    return policy.target.moving(nbytes(*read)) <= policy.products.launch_after_gap_us


def _reads_alike(mine: Set[Var], theirs: Set[Var], policy: Policy) -> bool:
    """Whether two kernels read enough in common, or little, and not too much together."""
    if len(mine | theirs) > max(policy.groups.pointers, len(mine), len(theirs)):
        return False
    return bool(mine & theirs) or is_cheap(mine | theirs, policy)


def _full(policy: Grouping) -> str:
    return f"a kernel writes {policy.outputs} arrays at most"


def _joined(cuts: Cuts, group: Group, root: Var) -> Space | str:
    """What the kernel would be if this root came to the group; the reason if it had better not."""
    policy = cuts.policy.groups
    common_loop = bool(group.space.loops & cuts.spaces[root].loops)
    if len(group.roots) >= policy.outputs and not common_loop:
        return _full(policy)
    mine, theirs = set(loads_of(cuts, cuts.spaces[root])), set(loads_of(cuts, group.space))
    if not _reads_alike(mine, theirs, cuts.policy):
        return "they would read too many arrays" if mine & theirs else "they read nothing in common"
    roots = [*group.roots, root]
    if len(roots) + len(mine | theirs) > policy.pointers:
        return "they would take more arguments than a kernel may have"
    try:
        joined = cuts.space_of(roots, union=common_loop)
    except TooManyPlaces:
        return "what one of them makes has too many consumers in the other to be recomputed there"
    if joined is None:
        loops = group.space.loops and cuts.spaces[root].loops
        return "their loops have different steps or axes" if loops else "they have different axes"
    sums = joined.graph.of_kind(Reduce)
    if joined.steps and any(node.eqn.outvars[0] in cuts.makers for node in sums if is_contraction(node)):
        return "one of them is a matrix product, the other one a loop"
    if joined.steps and any(True for _ in Order(joined.graph, joined.steps).conflicts()):
        return "the loop of one is over before that of the other one begins"
    if common_loop:
        return joined  # no loop is run twice
    alone = group.space, cuts.spaces[root]
    return _why_too_long(joined, cuts.policy) or _why_apart(cuts, joined, alone, (mine, theirs)) or joined


def _why_too_long(space: Space, policy: Policy) -> str:
    count, most = computations(space), policy.cuts.steps
    return cut_reasons.too_long(count, most) if count >= most and not space.steps else ""


def _is_taken_apart(space: Space, policy: Policy) -> bool:
    """Whether steps of a loop take, one by one, what lanes have combined, and that for longer than a launch takes."""
    taken = [(node.axis, node.index.axes & space.steps) for node in space.graph.of_kind(Take)]
    cycles = 0
    for lanes, steps in taken:
        if lanes in space.swept_axes and steps:
            exchanges = (min(lanes.size, policy.target.warp_size) - 1).bit_length()
            cycles += math.prod(axis.size for axis in steps) * exchanges * policy.cost.shuffle
    return cycles > policy.loops.graph_launch_us * policy.target.clock * 1000


def _why_apart(program: Program, joined: Space, alone: tuple[Space, Space], loads: tuple[Set[Var], Set[Var]]) -> str:
    """Why two kernels do better alone than joined; empty if they do not."""
    policy, most = program.policy, program.policy.cuts
    shared_out = program.is_shared_out(joined)
    if not acceptable(joined, policy, shared_out):
        return FEW
    if _is_taken_apart(joined, policy) and not any(_is_taken_apart(each, policy) for each in alone):
        return TAKEN_APART
    if joined.held <= max(space.held for space in alone):
        return ""
    if not contracts_in_blocks(joined, policy) and any(contracts_in_blocks(each, policy) for each in alone):
        return cut_reasons.BLOCKS
    mine, theirs = loads
    if sum(map(elements, mine & theirs)) * numbers.COMMON.times < sum(map(elements, mine | theirs)):
        return "they share too little input to be worth fusing"

    # A program may hold more than it did for one of them, if that is what a reduction walks anyway.
    reduced = {axis for node in joined.graph.of_kind(Reduce) for axis in node.over}
    if shared_out:
        enough = joined.held <= most.held
    elif joined.held <= policy.blocks.room:
        enough = policy.keeps_busy(joined.parallel, 0.5) or joined.held * joined.parallel <= most.small
    else:
        enough = policy.keeps_busy(joined.parallel) and joined.held <= most.held
    return "" if joined.inner <= reduced and enough else FEW
