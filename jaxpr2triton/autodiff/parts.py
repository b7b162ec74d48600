"""A program in parts, where some of its equations have to be JAX's own for their derivatives to be right.

A checkpoint that tells something tells it again when its derivative computes it again. Such a derivative is not two
programs, so that the checkpoint is left to JAX, with a program inside; what is before and after it are programs again:

    b = sin a;  c = checkpoint[jaxpr={ d = cos b; debug_callback d }] b;  e = exp c
        →
    b = program[sin] a;  c = checkpoint[jaxpr={ d = program[cos, debug_callback] b }] b;  e = program[exp] c
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex

from jaxpr2triton._compat import bind_equation, called_jaxpr, side_effects_of, source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.tracing import retrace

CHECKPOINTS = frozenset({"checkpoint", "remat", "remat2"})
Bind = Callable[[Closed, Sequence[Any]], list[Any]]  # a program and its operands → its outputs


@dataclass(frozen=True)
class Part:
    """Equations in a row, as a program, and which values it takes and gives; or one that is JAX's, and its program."""

    program: Closed | None
    takes: tuple[Var, ...] = ()
    gives: tuple[Var, ...] = ()
    eqn: Eqn | None = None


@dataclass(frozen=True)
class Parts:
    """All of a program, in order."""

    parts: tuple[Part, ...]


def parts_of(jaxpr: Closed) -> Parts | None:
    """The parts of a program without constants; None if it is one part."""
    eqns = list(jaxpr.jaxpr.eqns)
    apart = [number for number, eqn in enumerate(eqns) if _is_apart(eqn)]
    if not apart or jaxpr.consts:
        return None
    found: list[Part] = []
    start = 0
    for number in [*apart, len(eqns)]:
        if number > start:
            later = [atom for eqn in eqns[number:] for atom in eqn.invars]
            found.append(_part(eqns[start:number], [*later, *jaxpr.jaxpr.outvars]))
        if number < len(eqns):
            found.append(Part(_inside(eqns[number]), eqn=eqns[number]))
        start = number + 1
    return Parts(tuple(found))


def run_in_parts(jaxpr: Closed, found: Parts, bind: Bind, args: Sequence[Any]) -> list[Any]:
    """The outputs of the program, each part of it bound by itself."""
    env: dict[Var, Any] = dict(zip(jaxpr.jaxpr.invars, args))
    for part in found.parts:
        if part.eqn is None:
            assert part.program is not None  # only equations of JAX's may have none
            env.update(zip(part.gives, bind(part.program, [env[var] for var in part.takes])))
            continue
        values = [evaluate.read(env, atom) for atom in part.eqn.invars]
        env.update(zip(part.eqn.outvars, _apart(part.eqn, part.program, bind, values)))
    return [evaluate.read(env, atom) for atom in jaxpr.jaxpr.outvars]


def _is_apart(eqn: Eqn) -> bool:
    """Whether it runs something that has effects: that may be run again by its derivative."""
    return bool(side_effects_of(eqn.effects)) and any(True for _ in jex.jaxprs_in_params(eqn.params))


def _inside(eqn: Eqn) -> Closed | None:
    """What a checkpoint or a call runs, if it is a program; a policy may ask for equations in it, so it keeps those."""
    called = called_jaxpr(eqn.primitive.name, eqn.params)
    if called is None or called[1] or eqn.params.get("policy") is not None or eqn.primitive.name not in CHECKPOINTS:
        return None
    jaxpr = called[0]

    def run(*args: Any) -> list[Any]:
        return jax.core.eval_jaxpr(jaxpr, (), *args)

    return retrace(run, *[var.aval for var in jaxpr.invars])


def _apart(eqn: Eqn, inside: Closed | None, bind: Bind, values: Sequence[Any]) -> list[Any]:
    if inside is None:
        return bind_equation(eqn, list(values))
    with source_of(eqn):
        again = jax.checkpoint(lambda *args: bind(inside, args), prevent_cse=eqn.params["prevent_cse"])
        return list(again(*values))


def _part(eqns: Sequence[Eqn], later: Sequence[Any]) -> Part:
    made = {var for eqn in eqns for var in eqn.outvars}
    takes = tuple(dict.fromkeys(_read(eqns, made)))
    gives = tuple(dict.fromkeys(var for var in evaluate.variables(later) if var in made))

    def run(*args: Any) -> list[Any]:
        env = dict(zip(takes, args))
        evaluate.run(eqns, env)
        return [env[var] for var in gives]

    return Part(retrace(run, *[var.aval for var in takes]), takes, gives)


def _read(eqns: Sequence[Eqn], made: set[Var]) -> Iterator[Var]:
    for eqn in eqns:
        yield from (var for var in evaluate.variables(eqn.invars) if var not in made)
