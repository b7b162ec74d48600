"""Rewrite: whether something holds anywhere is a flag, which programs set as they find it, if that saves a kernel.

    wrong:bool[1024] = not ok                       shown = flagged (not ok)
    any:bool[] = reduce_or[axes=(0,)] wrong    →    error:i32[] = flag[dtype=int32 shape=()] shown
    error:i32[] = convert_element_type any               (where it may have other dimensions of one element, too)

The kernel of what is asked then writes the answer too; as a reduction it would wait for that kernel to be over. It
leaves alone what no kernel has to write, and several results: each program would set all of them, or most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax import lax

from jaxpr2triton.ir import build
from jaxpr2triton.ir.dataflow import needed_for
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.region import flag_p, flagged_p
from jaxpr2triton.plan.decisions import Decisions
from jaxpr2triton.plan.partition.program import inside_and_outside

VIEWS = ("reshape", "squeeze")
SAME = (*VIEWS, "broadcast_in_dim", "convert_element_type", "not")


@dataclass(frozen=True)
class Flag:
    """Equations that say whether something holds anywhere: a reduction, and what is made of its result."""

    eqns: tuple[Eqn, ...]
    negated: bool  # whether it does not hold everywhere

    @property
    def result(self) -> Var:
        return self.eqns[-1].outvars[0]

    def written(self) -> Iterator[Eqn]:
        first, last = self.eqns[0], self.eqns[-1]
        holds = first.invars[0]
        if self.negated:
            holds = build.variable(first.invars[0])
            yield build.after(first, lax.not_p, first.invars, [holds])
        shown = build.variable(first.invars[0])
        yield build.after(first, flagged_p, [holds], [shown])
        like = self.result.aval
        yield build.after(last, flag_p, [shown], [self.result], dtype=np.dtype(like.dtype), shape=tuple(like.shape))


def with_flags(closed: Closed, decisions: Decisions) -> Closed | None:
    """The program with all flags that it could have; None if there are none."""
    flags = {flag.eqns[-1]: flag for flag in _flags(closed.jaxpr, decisions)}
    if not flags:
        return None
    gone = {eqn for flag in flags.values() for eqn in flag.eqns[:-1]}
    eqns: list[Eqn] = []
    for eqn in closed.jaxpr.eqns:
        if eqn in flags:
            eqns += flags[eqn].written()
        elif eqn not in gone:
            eqns.append(eqn)
    return build.with_equations(closed, eqns)


def _flags(jaxpr: Jaxpr, decisions: Decisions) -> Iterator[Flag]:
    found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("reduce_or", "reduce_and") and _is_asked(eqn)]
    wanted = _wanted(jaxpr, decisions) if found else frozenset()
    readers: dict[Var, list[Eqn]] = {}
    for eqn in jaxpr.eqns if found else ():
        for atom in variables(eqn.invars):
            readers.setdefault(atom, []).append(eqn)
    for eqn in found:
        chain = [eqn]
        while (reader := _only_reader(chain[-1], readers, wanted)) is not None:
            chain.append(reader)
        negations = sum(each.primitive.name == "not" for each in chain)
        flag = Flag(tuple(chain), negations == 1)
        if negations == (eqn.primitive.name == "reduce_and") and flag.result in wanted:
            yield flag


def _is_asked(eqn: Eqn) -> bool:
    operand = eqn.invars[0]
    is_one = operand.aval.size > 1 and eqn.outvars[0].aval.size == 1
    return is_one and not isinstance(operand, Literal) and is_bool(operand.aval.dtype)


def _only_reader(eqn: Eqn, readers: Mapping[Var, Sequence[Eqn]], wanted: frozenset[Var]) -> Eqn | None:
    """The one equation that reads a result, if zero stays zero in it and one stays one, or they change places."""
    result = eqn.outvars[0]
    found = readers.get(result, [])
    if len(found) != 1 or result in wanted or found[0].primitive.name not in SAME:
        return None
    (made,) = found[0].outvars
    is_negated = found[0].primitive.name == "not" and not is_bool(made.aval.dtype)
    return None if is_negated or made.aval.size != 1 or np.dtype(made.aval.dtype).kind not in "biuf" else found[0]


def _wanted(jaxpr: Jaxpr, decisions: Decisions) -> frozenset[Var]:
    """What has to be in memory: outputs, what XLA reads, and what those are views of."""
    _, outside = inside_and_outside(jaxpr, decisions)
    found = {*variables(jaxpr.outvars), *(atom for eqn in outside for atom in variables(eqn.invars))}
    return frozenset(needed_for(jaxpr.eqns, found, lambda eqn, needed: needed and eqn.primitive.name in VIEWS))
