"""What had better be in memory of a contraction, or of a sum: what alone is read of it, or made of it by all who do.

s = dot_general x w
t = tanh (add s b)        read twice: t is written, s is not

l = reduce_sum e          one kernel
d = sub x (log l)         another one, which then reads log l for each row, instead of l for each element
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Var, nbytes
from jaxpr2triton.ir.once import once, readers_of
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.group import Group
from jaxpr2triton.policy import COMMON
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

SUMS = ("reduce_sum", "reduce_max", "reduce_min")
VIEWS = ("reshape", "broadcast_in_dim", "squeeze")


def end_of(cuts: Cuts, eqn: Eqn, root: Var) -> Var:
    """What had better be in memory: of a contraction that which alone is read of it, with its bias and activation."""
    (end,) = eqn.outvars
    if eqn.primitive.name != "dot_general":
        return end
    later = itertools.islice(cuts.jaxpr.eqns, cuts.makers[end] + 1, None)
    return _last(cuts, end, Readers(counts_of(cuts.jaxpr), later), root)


@once
def counts_of(jaxpr: Jaxpr) -> Mapping[Var, int]:
    """How many equations read each value; what calls the program is one more."""
    return {var: len(each) for var, each in readers_of(jaxpr).items()}


def made_of_sums(cuts: Cuts, groups: Sequence[Group]) -> dict[Var, str]:
    """What all kernels that read a sum make of it first, of what the kernel that sums has there; and why it sums."""
    found: dict[Var, str] = {}
    for group in groups:
        for root in (root for root in group.roots if cuts.maker(root).primitive.name in SUMS):
            others = [each for each in groups if each is not group and root in loads_of(cuts, each.space)]
            if others and root not in cuts.written:
                end = _made_by_readers(cuts, root, others, frozenset((*group.roots, *loads_of(cuts, group.space))))
                read = sum(nbytes(*loads_of(cuts, each.space)) for each in others)
                if end is not root and COMMON.times * nbytes(end) <= read:
                    found[end] = cuts.because[root]
    return found


def _made_by_readers(cuts: Cuts, root: Var, readers: Sequence[Group], there: Set[Var]) -> Var:
    """What all these kernels make of a value first, of what is there, or of numbers of the program."""
    below = sorted({cuts.makers[eqn.outvars[0]] for each in readers for eqn in cuts.below(each.roots)})
    eqns = [cuts.jaxpr.eqns[place] for place in below]
    counts = Counter(atom for eqn in eqns for atom in dict.fromkeys(variables(eqn.invars)))

    def have(value: Var) -> bool:
        while value not in there and value in cuts.makers and _is_view(cuts.maker(value)):
            (value,) = variables(cuts.maker(value).invars)
        return value in there or (value in cuts.makers and not variables(cuts.maker(value).invars))

    return _last(cuts, root, Readers(counts, eqns, have))


@dataclass(frozen=True)
class Readers:
    """How often each value is read, the equations that do in order, and whether they may need another one for that."""

    counts: Mapping[Var, int]
    eqns: Iterable[Eqn]
    have: Callable[[Var], bool] = lambda var: True


def _last(cuts: Cuts, end: Var, readers: Readers, root: Var | None = None) -> Var:
    """The last value that everything else is made of that is made of one, place by place."""
    size, first = end.aval.size, cuts.makers[end]
    open_ends = {end: readers.counts.get(end, 0)}
    for reader in readers.eqns:
        operands = [atom for atom in variables(reader.invars) if atom in open_ends]
        if not operands or (reader.outvars and cuts.makers[reader.outvars[0]] <= first):
            continue
        if not reader.outvars:  # a callback
            break
        made = reader.outvars[0]
        others = [atom for atom in variables(reader.invars) if atom not in open_ends]
        is_light = _is_light(reader) and made.aval.size == size and all(map(readers.have, others))
        if not is_light or (made in cuts.loaded and made is not root) or not cuts.is_inside(made):
            break
        open_ends[made] = readers.counts.get(made, 0)
        for each in dict.fromkeys(operands):
            open_ends[each] -= 1
            if not open_ends[each]:
                del open_ends[each]
        if len(open_ends) == 1 and not _is_view(reader):
            end = made
    return end


def _is_light(eqn: Eqn) -> bool:
    """Whether it makes one number of one, place by place."""
    return isinstance(TABLE.get(eqn.primitive.name), Pointwise) or _is_view(eqn)


def _is_view(eqn: Eqn) -> bool:
    """Whether nothing changes but where dimensions of one element are."""
    operands, out = variables(eqn.invars), eqn.outvars[0].aval
    if len(operands) != 1 or operands[0].aval.size != out.size:
        return False
    if eqn.primitive.name == "transpose":
        long = [d for d in eqn.params["permutation"] if operands[0].aval.shape[d] > 1]
        return long == sorted(long)
    return eqn.primitive.name in VIEWS
