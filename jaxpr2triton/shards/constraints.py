"""A program cut where it says how something is to be shared out: XLA moves it there, and kernels run in between.

    y = tanh x; z = sharding_constraint y; w = z * 2
        →   y = fused { tanh x };  z = sharding_constraint y;  w = fused { z * 2 }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Var
from jaxpr2triton.ir.tracing import retrace

CONSTRAINTS = ("sharding_constraint", "reshard")


def is_constrained(jaxpr: Jaxpr) -> bool:
    return any(map(_constrains, jaxpr.eqns))


@dataclass(frozen=True)
class Piece:
    program: list[Eqn]
    needed: list[Var]
    made: list[Var]
    constraints: list[Eqn]  # afterwards


def run_between(jaxpr: Jaxpr, args: Sequence[Any], go: Callable[[Closed, Sequence[Any]], list[Any]]) -> list[Any]:
    """The outputs, by `go` of what lies between two constraints; traceable. Constraints in loops are not seen."""
    env: dict[Var, Any] = dict(zip(jaxpr.invars, args))
    for piece in _pieces(jaxpr):

        def program(*operands: Any, piece: Piece = piece) -> list[Any]:
            inside = dict(zip(piece.needed, operands))
            run(piece.program, inside)
            return [inside[var] for var in piece.made]

        if piece.made:
            operands = [env[var] for var in piece.needed]
            env.update(zip(piece.made, go(retrace(program, *map(jax.typeof, operands)), operands)))
        run(piece.constraints, env)
    return [read(env, atom) for atom in jaxpr.outvars]


def _pieces(jaxpr: Jaxpr) -> Iterator[Piece]:
    level: dict[Var, int] = {}  # how many constraints lead to a value
    levels: dict[int, tuple[list[Eqn], list[Eqn]]] = {}
    for eqn in jaxpr.eqns:
        at, constrains = max((level.get(var, 0) for var in variables(eqn.invars)), default=0), _constrains(eqn)
        levels.setdefault(at, ([], []))[constrains].append(eqn)
        level.update((var, at + constrains) for var in eqn.outvars)
    for _, (program, constraints) in sorted(levels.items()):
        own = dict.fromkeys(var for eqn in program for var in eqn.outvars)
        inside = {id(eqn) for eqn in program}
        elsewhere = {var for eqn in jaxpr.eqns if id(eqn) not in inside for var in variables(eqn.invars)}
        elsewhere.update(variables(jaxpr.outvars))
        yield Piece(program, inputs_of(program), [var for var in own if var in elsewhere], constraints)


def _constrains(eqn: Eqn) -> bool:
    return eqn.primitive.name in CONSTRAINTS


def inputs_of(eqns: Sequence[Eqn]) -> list[Var]:
    """What some equations read and do not make."""
    own = {var for eqn in eqns for var in eqn.outvars}
    return list(dict.fromkeys(var for eqn in eqns for var in variables(eqn.invars) if var not in own))
