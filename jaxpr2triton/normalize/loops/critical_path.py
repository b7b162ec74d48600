"""How long the equations of a step wait for each other, in instructions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Var
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE


def waits_of(eqns: Iterable[Eqn]) -> defaultdict[Var, float]:
    """The instructions on the longest way to each value, which wait for each other; as if lanes met twice at most."""
    found: defaultdict[Var, float] = defaultdict(float)
    for eqn in eqns:
        row = TABLE.get(eqn.primitive.name)
        own = row.weight if isinstance(row, Pointwise) else 0 if does_again(eqn) else policy.COMMON.worth_ahead / 2
        longest = max((found[var] for var in evaluate.variables(eqn.invars)), default=0)
        found.update(dict.fromkeys(eqn.outvars, longest + own))
    return found


def longest(eqns: Sequence[Eqn], targets: Iterable[Atom]) -> float:
    """The longest way to any of the targets."""
    waits = waits_of(eqns)
    return max((waits[var] for var in evaluate.variables(targets)), default=0)
