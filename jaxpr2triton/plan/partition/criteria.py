"""Whether one kernel does something well: what its programs hold, walk and do again, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.chains import aside_of, chain_of
from jaxpr2triton.graph.nodes import Compute, Keep, Load, Recurrence, Reduce, Swept, operands_of
from jaxpr2triton.graph.sides import is_contraction, is_small, is_two_sided, sides_of
from jaxpr2triton.graph.space import (
    Space,
    crossings,
    feeds_a_reduction,
    multiplied_in,
    parallel_axes,
    size_of,
    spread_axes,
)
from jaxpr2triton.graph.summed import summed_of
from jaxpr2triton.hardware import SECTOR
from jaxpr2triton.ir.dataflow import sources
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Var, elements, nbytes
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.plan.library import multiplying_again
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.policy import Policy


def kept_at_a_cost(program: Program, space: Space) -> list[Var]:
    """What is kept although programs could share out more of the work without that."""
    kept = [node for node in space.graph.of_kind(Keep) if node.eqn.outvars[0] in makers_of(program.jaxpr)]
    if not program.decisions.chooses or not kept:
        return []
    lanes = frozenset(space.axes) - space.steps
    most = program.policy.cuts.small_loop
    loops = list(space.graph.of_kind(Recurrence))
    many = [loop.axes - loop.held - space.steps for loop in loops if size_of(loop.axes - space.steps) > most]
    taken = frozenset().union(*(axes - (lanes - space.inner) for axes in many))
    if taken:
        dear = [node for node in kept if not taken.isdisjoint(node.over)] or kept
        return [var for node in dear for var in variables(node.eqn.invars)]
    if size_of(lanes) <= most:
        return []
    whole = [*space.graph.of_kind((Reduce, Recurrence)), *space.graph.of_kind(Swept)]
    walked_anyway = frozenset().union(*(lanes - parallel_axes(node) for node in whole))
    dear = [node for node in kept if lanes - node.axes - walked_anyway]
    return [var for node in dear for var in variables(node.eqn.invars)]


def fits(cuts: Cuts, space: Space) -> bool:
    """Whether a program can hold what its loops carry, and what they read in every step."""
    return _holds(cuts, space, cuts.policy.cuts.read_each_step)


def may_be_weighed(cuts: Cuts, space: Space) -> bool:
    """Whether it reads more than that, and there is no other way, but `beside_xla.py` can say what that takes."""
    return not cuts.decisions.keeps_by_choice and _holds(cuts, space, most_read(cuts.policy, space))


def _holds(cuts: Cuts, space: Space, most: int) -> bool:
    carried, read = held_by_loops(cuts, space)
    return carried <= cuts.policy.carried and carried + read <= most


def most_read(policy: Policy, space: Space) -> int:
    """The numbers that a program may read in every step."""
    most = policy.cuts
    return most.held if multiplied_in(space.graph, space.steps) else most.read_each_step


def held_by_loops(cuts: Cuts, space: Space) -> tuple[int, int]:
    """The numbers that a program carries from step to step, and those that it reads in every step."""
    grid = frozenset(space.axes) - space.inner

    def count(axes: frozenset[Axis]) -> int:
        return size_of(axes - grid - space.steps)

    carried = sum(count(leaf.axes) for loop in space.graph.of_kind(Recurrence) for leaf in loop.carried)
    loaded: dict[int, int] = {}
    for node in space.graph.of_kind(Load):
        if not node.axes & space.steps:
            loaded[node.buffer] = loaded.get(node.buffer, 0) + count(node.axes)
    read = sum(min(count, elements(cuts.numbered[number])) for number, count in loaded.items())
    return carried, read


def culprits_of(policy: Policy, space: Space, root: Var) -> list[Reduce | Swept]:
    """The reductions that make a program walk what it would not have to, the last one last."""
    fed = feeds_a_reduction(space.graph)
    beside = beside_contractions(space, policy)
    if any(node.eqn.outvars[0] is not root for node in beside):
        return [node for node in beside if node.eqn.outvars[0] is not root]
    again = [node for node in holding(space) if repeats(space, node, policy)] or _crossing(space, policy)
    nodes: Sequence[Reduce | Swept] = again
    nodes = nodes or [node for node in holding(space) if space.wanted_whole(node) or node in fed]
    nodes = nodes or list(space.graph.of_kind(Swept))  # of whose axes a program has all
    nodes = [node for node in nodes if node.eqn.outvars[0] is not root]
    return [node for node in _without_which_enough(space, policy) if node in nodes] or nodes


def _without_which_enough(space: Space, policy: Policy) -> list[Reduce | Swept]:
    """What alone makes programs have all of some axis, where they are enough without that.

    sum(e[i, j, :]) and sum(a[i, :]) for j = 0    →    the second one, if programs with an i and a j each are enough
    """
    nodes = holding(space)
    if policy.keeps_busy(space.parallel, 0.5) or any(map(is_contraction, nodes)) or beside_contractions(space, policy):
        return []
    whole = {node: space.wanted_whole(node) for node in nodes}
    for node in nodes:
        rest = frozenset().union(*(whole[other] for other in nodes if other is not node))
        if (freed := whole[node] - rest) and policy.keeps_busy(space.parallel * size_of(freed), 0.5):
            return [node]
    return []


def sums_over_lanes(program: Program, space: Space, root: Var) -> list[Reduce | Swept]:
    """What loops have to wait for, and a program has all of their lanes for."""
    lanes = frozenset().union(*(loop.axes - loop.held for loop in space.graph.of_kind(Recurrence)))
    found, makers = holding(space), program.makers
    nodes = [node for node in found if node.eqn.outvars[0] in makers and not lanes.isdisjoint(node.over)]
    return [node for node in nodes if node.eqn.outvars[0] is not root]


def made_again(cuts: Cuts, space: Space, root: Var) -> list[Reduce]:
    """The contractions on the way to a root that other kernels would make as well, and that are dear."""
    made = [node for node in space.graph.of_kind(Reduce) if is_contraction(node)]
    if len(made) < 2:
        return []
    others = [node for node in made if node.eqn.outvars[0] in cuts.makers and node.eqn.outvars[0] is not root]
    return [node for node in others if len(cuts.spaces.computing(node.eqn)) > 1 and _is_dear(node, cuts.policy)]


def _is_dear(node: Reduce, policy: Policy) -> bool:
    """Whether to compute it again takes longer than to write and to read it: many terms, or more to be read for it."""
    made = node.eqn.outvars[0]
    read = sum(elements(operand) for operand in variables(node.eqn.invars))
    return read > elements(made) or multiplying_again(node.eqn, policy) > policy.target.moving(2 * nbytes(made))


def holding(space: Space) -> list[Reduce | Swept]:
    """What makes a program hold, or walk, more than it had to; not sweeps along one axis which it has anyway."""
    nodes = space.graph.of_kind((Reduce, Swept))
    several = len(space.swept_axes) > 1
    return [node for node in nodes if isinstance(node, Reduce) or several or space.wanted_whole(node) - {node.axis}]


def acceptable(space: Space, policy: Policy, shared_out: bool = False) -> bool:
    """Whether one kernel computes this well: no program holds too much, and there are programs enough."""
    reductions = holding(space)
    if space.steps or not reductions:
        return True  # a loop is a chain anyway; `find_cuts` has seen to it that its state fits
    if beside_contractions(space, policy):
        return False
    if any(map(is_contraction, reductions)) or sums_of_results(space, policy):
        return True
    if _crossing(space, policy) or any(repeats(space, node, policy) for node in reductions):
        return False
    if not space.inner and not feeds_a_reduction(space.graph):
        return True
    if space.held > policy.cuts.held:
        return False
    shared_well = shared_out and _is_shared_well(space, reductions, policy)
    return shared_well or _has_programs_enough(space, reductions, policy)


def _is_shared_well(space: Space, reductions: Sequence[Reduce | Swept], policy: Policy) -> bool:
    """Whether programs that share out chunks are not too few, or have little to do; a sweep goes along what is held."""
    reduced = {axis for node in reductions if isinstance(node, Reduce) for axis in node.over}
    walked = space.held * size_of(reduced - set(space.axes))
    return policy.keeps_busy(4 * space.parallel) or walked <= policy.cuts.small


def contracts_in_blocks(space: Space, policy: Policy) -> bool:
    """Whether there is a contraction of which programs have blocks: of all that it makes, or of rows that are whole."""
    if not any(map(is_contraction, space.graph.of_kind(Reduce))):
        return False
    return not space.inner or is_chain(space, policy) or sums_of_results(space, policy)


def is_chain(space: Space, policy: Policy) -> bool:
    """Whether contractions are factors of each other, or are reduced, and one kernel can make them all."""
    chain = chain_of(space, policy.axes.unrolled_sum)
    return chain is not None and chain.fits(policy)


def sums_of_results(space: Space, policy: Policy) -> bool:
    """Whether a kernel reduces what it makes of two sides, along an axis of which a program has room for all."""
    summed = summed_of(space, policy.axes.unrolled_sum)
    if summed is None or summed.size > 2 * numbers.COMMON.side_of_a_matrix:
        return False
    others = max(size_of(node.axes - summed.held) for node in summed.made)
    return has_blocks_enough(others, max(size_of(node.over) for node in summed.made), policy)


def has_blocks_enough(others: int, terms: int, policy: Policy) -> bool:
    """Whether programs that have one side whole are many, or soon done; `others` are on the other side."""
    blocks = numbers.COMMON.times * others / (numbers.COMMON.side_of_a_matrix // 4)
    return policy.keeps_busy(blocks) or terms <= policy.products.terms_of_a_chunk


def beside_contractions(space: Space, policy: Policy) -> list[Reduce | Swept]:
    """What had better be in memory, because a contraction needs it first, or it is one that something waits for.

    A block of rows times a block of columns is all that one program makes of a contraction: a sum of its results would
    need more, and a sum that it needs would be made again for each block, as would one beside it, of rows or of columns
    alone; but for rows that one program has whole. Nor has it all of an axis along which something is sorted, or has a
    running sum, wherever that is wanted.
    """
    unrolled = policy.axes.unrolled_sum
    if is_chain(space, policy) or sums_of_results(space, policy):
        return []
    if aside := aside_of(space, unrolled):
        return [*aside]
    two_sided = {node for node in space.graph.of_kind(Reduce) if _is_much(node, policy, unrolled)}
    if not two_sided:
        return []
    found = _with_other_sides(space, unrolled)
    combined = [node for node in space.graph.of_kind((Reduce, Swept)) if not is_small(node, unrolled)]
    above = sources(space.graph.nodes, operands_of, combined)
    for node in combined:
        before = above[node] - {node}
        found |= {each for each in before if node in two_sided or each in two_sided}
        if isinstance(node, Swept) and not space.steps and two_sided.isdisjoint(before):
            found.add(node)
    if any(size_of(node.axes.union(node.over)) > policy.much for node in two_sided):
        found.update(filter(space.wanted_whole, {*combined} - two_sided - space.beside))
    return sorted(found, key=lambda node: node.number)


def _with_other_sides(space: Space, unrolled: int) -> set[Reduce | Swept]:
    """The contractions that are wanted whole, or have other blocks than the first one has."""
    roots, found, first = frozenset(space.axes), set[Reduce | Swept](), None
    for node in space.graph.of_kind(Reduce):
        if is_contraction(node) and not is_small(node, unrolled):
            mine = sides_of(node, roots, unrolled)
            if space.wanted_whole(node) or (first is not None and mine is not None and not mine.fits(first)):
                found.add(node)
            first = first or mine
    return found


def _is_much(node: Reduce, policy: Policy, unrolled: int) -> bool:
    """Whether it is a contraction, or the like and not done in no time."""
    if is_contraction(node):
        return True
    return size_of(node.axes) * size_of(node.over) > policy.much and is_two_sided(node, unrolled)


def _has_programs_enough(space: Space, reductions: Sequence[Reduce | Swept], policy: Policy) -> bool:
    """Whether what programs walk for the sake of reductions is little, or shared out among many of them."""
    cuts = policy.cuts
    reduced = {axis for node in reductions for axis in node.over}
    spread = spread_axes(space) if not space.inner else frozenset()
    parallel = space.parallel * size_of(spread)
    walked = space.held * size_of(reduced - spread - set(space.axes))
    if walked * parallel <= cuts.small:
        return True

    along_rows = any(node.place and node.place[-1].axes & (reduced | space.inner) for node in space.graph.of_kind(Load))
    programs = parallel if along_rows else parallel // SECTOR
    enough = policy.keeps_busy(programs, 0.5 if walked * parallel <= policy.much else 1.0)
    if enough and (space.inner <= reduced or policy.keeps_busy(programs, 8)):
        return True

    # Rows are walked by one program each even when they are few, if that takes no longer than launches would.
    alone = reduced | space.inner
    is_row = len(alone) == 1 and space.inner <= reduced
    return along_rows and walked <= (8 * cuts.small if is_row else cuts.small // 8)


def repeats(space: Space, node: Reduce | Swept, policy: Policy) -> bool:
    """Whether a reduction would be done again and again, as when its results are wanted through a reshape."""
    results = elements(node.eqn.outvars[0])
    times = size_of(node.axes - space.inner)
    return (times - results) * size_of(node.over) > policy.much


def _crossing(space: Space, policy: Policy) -> Sequence[Reduce]:
    """Reductions along an axis, for each index of another one along which what they lead to is reduced for each index
    of the first: no two loops can be within each other. A short row has lanes.
    """
    found: dict[Reduce, None] = {}
    for first, _ in crossings(space.graph):
        if size_of(first.over) > policy.blocks.piece:
            found[first] = None
    return sorted(found, key=lambda node: node.number)


def computations(space: Space) -> int:
    """How many a kernel is long."""
    return sum(1 for _ in space.graph.of_kind(Compute))


def loads_of(cuts: Cuts, space: Space) -> list[Var]:
    """The variables in memory that a space reads, each once."""
    return [cuts.numbered[number] for number in space.buffers]

