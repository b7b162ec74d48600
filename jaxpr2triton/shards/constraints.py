"""A program cut at what XLA does on all devices: kernels run in between.

That is where the program says how something is to be shared out, what has side effects, and what no kernel has a rule
for, a convolution: XLA splits it as it likes. A loop or a branch that calls Python is cut out as a whole: what the part
of a device calls would have to be announced before there are parts.

    y = tanh x; z = sharding_constraint y; w = z * 2
        →   y = fused { tanh x };  z = sharding_constraint y;  w = fused { z * 2 }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jaxpr2triton._compat import has_ordered_effects, is_resharded_to_the_same
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Var, calls_python
from jaxpr2triton.ir.tracing import retrace
from jaxpr2triton.shards.flow import bodies_of
from jaxpr2triton.shards.walks import CONSTRAINTS, is_known


def is_cut(jaxpr: Jaxpr) -> bool:
    return any(map(is_cut_out, jaxpr.eqns))


def why_nowhere_split(closed: Closed) -> str:
    """Why every device has to run all of a program; empty if it can be split or cut."""
    if has_ordered_effects(closed.effects):
        return "its side effects are in order"
    if any(eqn.effects and bodies_of(eqn) for eqn in closed.jaxpr.eqns):
        return "a loop in it has side effects"
    return ""


@dataclass(frozen=True)
class Piece:
    program: list[Eqn]
    needed: list[Var]
    made: list[Var]
    xlas: list[Eqn]  # afterwards


def run_between(jaxpr: Jaxpr, args: Sequence[Any], go: Callable[[Closed, Sequence[Any]], list[Any]]) -> list[Any]:
    """The outputs, by `go` of what lies between two cuts; traceable. Loops are not cut."""
    env: dict[Var, Any] = dict(zip(jaxpr.invars, args))
    for piece in _pieces(jaxpr):

        def program(*operands: Any, piece: Piece = piece) -> list[Any]:
            inside = dict(zip(piece.needed, operands))
            run(piece.program, inside)
            return [inside[var] for var in piece.made]

        if piece.made:
            operands = [env[var] for var in piece.needed]
            env.update(zip(piece.made, go(retrace(program, *map(jax.typeof, operands)), operands)))
        run(piece.xlas, env)
    return [read(env, atom) for atom in jaxpr.outvars]


def _pieces(jaxpr: Jaxpr) -> Iterator[Piece]:
    level: dict[Var, int] = {}  # how many cuts lead to a value
    levels: dict[int, tuple[list[Eqn], list[Eqn]]] = {}
    for eqn in jaxpr.eqns:
        at, cuts = max((level.get(var, 0) for var in variables(eqn.invars)), default=0), is_cut_out(eqn)
        levels.setdefault(at, ([], []))[cuts].append(eqn)
        level.update((var, at + cuts) for var in eqn.outvars)
    for _, (program, xlas) in sorted(levels.items()):
        own = dict.fromkeys(var for eqn in program for var in eqn.outvars)
        inside = {id(eqn) for eqn in program}
        elsewhere = {var for eqn in jaxpr.eqns if id(eqn) not in inside for var in variables(eqn.invars)}
        elsewhere.update(variables(jaxpr.outvars))
        yield Piece(program, inputs_of(program), [var for var in own if var in elsewhere], xlas)


def is_cut_out(eqn: Eqn) -> bool:
    """Whether XLA does it on all devices."""
    if eqn.primitive.name in CONSTRAINTS:
        return not is_resharded_to_the_same(eqn)
    return bool(eqn.effects) or not (bodies_of(eqn) or is_known(eqn)) or _calls_python(eqn)


def _calls_python(eqn: Eqn) -> bool:
    return calls_python(eqn) or any(map(_calls_python, (inner for body in bodies_of(eqn) for inner in body.eqns)))


def inputs_of(eqns: Sequence[Eqn]) -> list[Var]:
    """What some equations read and do not make."""
    own = {var for eqn in eqns for var in eqn.outvars}
    return list(dict.fromkeys(var for eqn in eqns for var in variables(eqn.invars) if var not in own))
