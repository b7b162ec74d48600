"""Running the equations of a jaxpr, or tracing them again, with the user's lines kept."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of

Rewrite = Callable[[Eqn, list[Any]], list[Any] | None]  # equation, operands → results, or None: bind it as it is


def read(env: dict[Var, Any], atom: Atom) -> Any:
    return atom.val if isinstance(atom, Literal) else env[atom]


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """Those that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def read_by(eqns: Iterable[Eqn], targets: Iterable[Atom] = ()) -> list[Var]:
    """The variables among the targets, and those that equations read, as often as they are."""
    return variables([*targets, *(atom for eqn in eqns for atom in eqn.invars)])


def run(eqns: Iterable[Eqn], env: dict[Var, Any], rewrite: Rewrite = lambda eqn, values: None) -> None:
    """Evaluate the equations in order, adding their results to `env`."""
    for eqn in eqns:
        values = [read(env, atom) for atom in eqn.invars]
        results = rewrite(eqn, values)
        env.update(zip(eqn.outvars, bind_equation(eqn, values) if results is None else results))


def outputs(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], rewrite: Rewrite = lambda eqn, values: None
) -> list[Any]:
    """What a program returns, some of its equations rewritten."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
    run(jaxpr.eqns, env, rewrite)
    return [read(env, atom) for atom in jaxpr.outvars]


def needed(eqns: Sequence[Eqn], targets: Iterable[Atom], given: Iterable[Var], effects: bool = False) -> list[Eqn]:
    """The equations that the targets need when `given` is already there, in order; on demand all effects as well."""
    there = set(given)
    wanted = set(variables(targets)) - there
    kept = []
    for eqn in reversed(eqns):
        if any(v in wanted for v in eqn.outvars) or (effects and eqn.effects):
            kept.append(eqn)
            wanted.update(v for v in variables(eqn.invars) if v not in there)
    return kept[::-1]


def needed_in(
    jaxpr: Jaxpr, targets: Iterable[Atom], given: Container[Var], among: Container[int] | None = None
) -> list[Eqn]:
    """`needed`, in the time that what it finds takes, however long the jaxpr is; only of positions in `among`."""
    makers, eqns = makers_of(jaxpr), jaxpr.eqns
    stack = variables(targets)
    found: set[int] = set()
    while stack:
        var = stack.pop()
        number = makers.get(var)
        if number is None or number in found or var in given or (among is not None and number not in among):
            continue
        found.add(number)
        stack.extend(variables(eqns[number].invars))
    return [eqns[number] for number in sorted(found)]
