"""A kernel writes what another one would only make of its results, place by place: one launch less.

    total:f32[70] = region[k0] parts         mean:f32[70] = region[k1] total       # div total 4099.0
        →
    total, mean = region[k0] parts

A mean beside the variance that needs it, and the running averages of a batch norm, are such results. So are sums that
need its results first, of what the kernel reads anyway, by the same programs:

    total:f32[8] = region[k0] x              square:f32[8] = region[k1] x total    # reduce_sum (square (sub x total))
        →
    total, square = region[k0] x
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Load, Reduce, Swept
from jaxpr2triton.graph.sides import sides_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.plan.partition.criteria import acceptable, loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.group import Group, is_cheap
from jaxpr2triton.plan.partition.levels import operands_of


def with_what_follows(cuts: Cuts, groups: Sequence[Group], outside: Mapping[Eqn, int]) -> list[Group]:
    """The kernels, fewer of them where some do nothing but follow others."""
    written = {var: level for eqn, level in outside.items() for var in eqn.outvars}
    owners = {root: group for group in groups for root in group.roots}
    order = {var: number for number, var in enumerate(v for eqn in cuts.jaxpr.eqns for v in eqn.outvars)}
    left = []
    for group in sorted(groups, key=lambda each: each.level):
        home = _home(cuts, group, owners, written)
        joined = None if home is None else _joined(cuts, home, group)
        if home is None or joined is None:
            left.append(group)
            continue
        home.roots = sorted([*home.roots, *group.roots], key=lambda var: order[var])
        home.space = joined
        owners.update(dict.fromkeys(group.roots, home))
    readers = Counter(var for group in left for var in operands_of(cuts, group.roots))
    readers.update(atom for eqn in (*outside, *cuts.views) for atom in variables(eqn.invars))
    for group in (each for each in left if len(each.roots) > 1):
        readers.subtract(operands_of(cuts, group.roots))
        _leave_out(cuts, group, readers)
        readers.update(operands_of(cuts, group.roots))
    return left


def _leave_out(cuts: Cuts, group: Group, others: Mapping[Var, int]) -> None:
    """Do not write what only this kernel reads, as what it makes of it; `others` says how many read each value."""
    for root in [root for root in group.roots if not others.get(root) and root not in cuts.written]:
        rest, why = [each for each in group.roots if each is not root], cuts.because[root]
        alone = cuts.spaces[root]
        cuts.drop_root(root)
        space = cuts.joint_space(rest) or cuts.joint_space(rest, union=True)
        if space is not None and _walks(space) == _walks(group.space):
            group.roots, group.space = rest, space
        else:
            cuts.add_root(root, why)
            cuts.note(root, alone)


def _home(cuts: Cuts, group: Group, owners: Mapping[Var, Group], written: Mapping[Var, int]) -> Group | None:
    """The kernel that writes what this one reads; all else that it reads is in memory by then."""
    if not all(isinstance(node, (Choose, Compute, Constant, Load, Reduce)) for node in group.space.graph.nodes):
        return None
    read = operands_of(cuts, group.roots)
    makers = [owners[var] for var in read if var in owners]
    home = max(makers, key=lambda each: each.level, default=None)
    sums = next(group.space.graph.of_kind(Reduce), None) is not None  # which read no more than the other kernel does
    if home is None or (not sums and not is_cheap(read - {*home.roots}, cuts.policy)):
        return None
    first = all(each is home or each.level < home.level for each in makers)
    return home if first and all(written.get(var, -1) < home.level for var in read) else None


def _reads_more(cuts: Cuts, home: Group, group: Group) -> bool:
    """Whether a kernel that also makes these would read more arrays."""
    return not {*loads_of(cuts, home.space), *home.roots}.issuperset(loads_of(cuts, group.space))


def _has_sides(space: Space, unrolled: int) -> bool:
    """Whether it combines pairs, of which programs have a block: what they read is little beside what they compute."""
    axes = frozenset(space.axes)
    return any(sides_of(node, axes, unrolled) is not None for node in space.graph.of_kind(Reduce))


def _joined(cuts: Cuts, home: Group, group: Group) -> Space | None:
    """What the kernel would be with these results, if its programs do no more for them than to make them."""
    roots, policy = [*home.roots, *group.roots], cuts.policy.groups
    *_, reduced = _walks(home.space)
    if home.space.steps or not reduced:
        return None
    if len(roots) > policy.outputs or len({cuts.levels[root] for root in roots}) > 1:
        return None
    joined = cuts.joint_space(roots) or cuts.joint_space(roots, union=True)
    if joined is None or len(roots) + len(joined.buffers) > policy.pointers:
        return None
    programs, inner, alone = _walks(group.space)
    dear = _has_sides(joined, cuts.policy.axes.unrolled_sum) or not acceptable(joined, cuts.policy)
    if alone and (dear or _reads_more(cuts, home, group)):
        return None
    same = _walks(joined) == (programs, inner, reduced + alone) if alone else _walks(joined) == _walks(home.space)
    return joined if same and joined.held <= home.space.held else None


def _walks(space: Space) -> tuple[int, int, int]:
    """What programs there are, and what each of them goes through."""
    reduced = sum(1 for _ in space.graph.of_kind((Reduce, Swept)))
    return int(space.parallel), len(space.inner), reduced
