"""Results that one kernel writes, although one is made of the other: rows of a product that are a factor of the next.

    h = tanh (dot_general x a)      written, as the gradient reads it
    y = dot_general h b             made in the same programs, of the rows of h that they have
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.chains import chain_of
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.plan.partition.criteria import acceptable, loads_of, sums_of_results
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.levels import Levels


def chain_results(cuts: Cuts, levels: Levels) -> list[list[Var]]:
    """The results to be written by one kernel, each time: the others do not wait for the first one.

    The levels become those with such kernels.
    """
    products = [root for root in cuts.roots if any(map(is_contraction, cuts.spaces[root].graph.of_kind(Reduce)))]
    chains: dict[Var, list[Var]] = {}
    for last in _by_level(cuts, levels.of) if products else ():
        late = _made_last(cuts, last, levels.of)
        chain = chains.get(late[0], late[:1]) if late else []
        if not late or last in chains or not set(late) <= set(chain) or len(chain) == numbers.COMMON.few:
            continue
        if chain[0] not in products:
            continue
        together = [*chain, last]
        if not _is_chain(cuts, together):
            continue
        for each in together:
            chains[each] = together
        levels.chain(together)
    return list({id(chain): chain for chain in chains.values()}.values())


def _by_level(cuts: Cuts, levels: Mapping[Var, int]) -> list[Var]:
    """The results that are sums, products first: those make what the others only add up."""
    sums = [root for root in cuts.roots if next(iter(cuts.spaces[root].graph.of_kind(Reduce)), None) is not None]
    added = {root: not any(map(is_contraction, cuts.spaces[root].graph.of_kind(Reduce))) for root in sums}
    return sorted(sums, key=lambda root: (added[root], levels[root]))


def _made_last(cuts: Cuts, root: Var, levels: Mapping[Var, int]) -> list[Var]:
    """What the kernel of a root waits for: the results that it reads later than anything else, if kernels make them."""
    loads = loads_of(cuts, cuts.spaces[root])
    late = [load for load in loads if load in levels and levels[load] + 1 == levels[root]]
    return late if all(load in cuts.spaces for load in late) else []


def _is_chain(cuts: Cuts, roots: Sequence[Var]) -> bool:
    """Whether one kernel can make all of these, each of what it has made before; a kernel with a loop is no chain."""
    space = None if any(cuts.spaces[root].steps for root in roots) else cuts.joint_space(roots, union=True)
    if space is None:
        return False
    policy = cuts.policy
    is_chain = chain_of(space, policy.axes.unrolled_sum) is not None or bool(sums_of_results(space, policy))
    return is_chain and acceptable(space, policy)
