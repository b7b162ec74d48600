"""What is in memory of a contraction: what alone is read of it, with its bias and its activation.

    s = dot_general x w
    t = tanh (add s b)        read twice: t is written, s is not
"""

from __future__ import annotations

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.once import readers_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE


def end_of(cuts: Cuts, eqn: Eqn, root: Var) -> Var:
    """What had better be in memory: of a contraction that which alone is read of it, with its bias and activation."""
    (end,) = eqn.outvars
    if eqn.primitive.name != "dot_general":
        return end
    shape, readers = end.aval.shape, readers_of(cuts.jaxpr)
    open_ends = {end: len(readers.get(end, ()))}
    for reader in cuts.jaxpr.eqns[cuts.makers[end] + 1 :]:
        operands = [atom for atom in variables(reader.invars) if atom in open_ends]
        if not operands:
            continue
        if not reader.outvars:  # a callback
            break
        made = reader.outvars[0]
        is_light = isinstance(TABLE.get(reader.primitive.name), Pointwise) and made.aval.shape == shape
        if not is_light or (made in cuts.loaded and made is not root) or not cuts.is_inside(made):
            break
        open_ends[made] = len(readers.get(made, ()))
        for each in dict.fromkeys(operands):
            open_ends[each] -= 1
            if not open_ends[each]:
                del open_ends[each]
        if len(open_ends) == 1:
            end = made
    return end
