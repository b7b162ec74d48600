"""Loop distribution: one scan → several, one after the other; what carries nothing is all steps at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Params, Var
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.scans import Body, apart, put, scanned
from jaxpr2triton.normalize.rewrite import Node, Value, is_plain

Env = Mapping[Var, Value]


@dataclass(frozen=True)
class Stage:
    """One of the loops: what it carries, and what it makes in each step for those after it, or for good."""

    carries: tuple[int, ...] | None  # places; None: no loop, but all steps at once
    shown: tuple[Var, ...]
    in_memory: bool = False  # whether what it shows is written before anybody reads it


def distribute(node: Node, body: Body, stages: Sequence[Stage], same: Collection[int] = ()) -> list[Value]:
    """Make the results of a scan in stages; the places that are the `same` in all steps are constants of each.

        x, c, ys = scan (λ x c u. let x' = sin x + u; c' = exp x' * c in (x', c', c')) x0 c0 us
            →    x, xs = scan (λ x u. let x' = sin x + u in (x', x')) x0 us                 Stage((0,), (x',))
                 c, ys = scan (λ c x. let c' = exp x * c in (c', c')) c0 xs                 Stage((1,), (c',))

    A stage makes again what no earlier one shows. What none of them shows of what the scan puts out is made of all
    steps at once, after them; but for numbers, which the last loop writes beside all else.
    """
    length, there = node.params["length"], dict(zip(body.xs, body.stacked(node.args)))
    ends = [jnp.asarray(init, var.aval.dtype) for init, var in zip(body.inits(node.args), body.befores)]  # or numbers
    fixed = {**body.fixed(node.args), **{body.befores[place]: ends[place] for place in same}}
    numbers = [atom for atom in body.ys if isinstance(atom, Literal)]
    loops = [number for number, stage in enumerate(stages) if stage.carries is not None]
    written: list[Value] = []
    for number, stage in enumerate(stages):
        if stage.carries is None:
            there.update(zip(stage.shown, all_steps(body, stage.shown, there, fixed, length)))
            continue
        starts = [ends[place] for place in stage.carries]
        beside = numbers if number == loops[-1] else []
        last, ys = run_stage(node.params, body, stage.carries, [*stage.shown, *beside], fixed, starts, there)
        ends, written = put(ends, stage.carries, last), ys[len(stage.shown) :]
        shown = ys[: len(stage.shown)]
        there.update(zip(stage.shown, [boundary_p.bind(y, dim=0) for y in shown] if stage.in_memory else shown))
    if not written:
        return [*ends, *all_steps(body, body.ys, there, fixed, length)]
    others = all_steps(body, [atom for atom in body.ys if isinstance(atom, Var)], there, fixed, length)
    return [*ends, *_in_order(body.ys, others, written)]


def run_stage(
    params: Params,
    body: Body,
    places: Sequence[int],
    shown: Sequence[Atom],
    fixed: Env,
    starts: Sequence[Value],
    there: Env,
) -> tuple[list[Value], list[Value]]:
    """What a loop carries in the end in some of the places, and what it shows, where `there` is known of all steps."""
    befores, targets = [body.befores[place] for place in places], [*(body.afters[p] for p in places), *shown]
    eqns = evaluate.needed(body.jaxpr.eqns, targets, there)
    moving = _read(there, eqns, targets)

    def step(before: Sequence[Value], x: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        env = {**fixed, **dict(zip(befores, before)), **dict(zip(moving, x))}
        evaluate.run(eqns, env)
        made = (jnp.asarray(evaluate.read(env, atom), atom.aval.dtype) for atom in targets)
        return apart(made, len(befores))

    return scanned(params, step, list(starts), [there[var] for var in moving])


def all_steps(body: Body, atoms: Sequence[Atom], there: Env, fixed: Env, length: int) -> list[Value]:
    """What these atoms are in every step, stacked; made at once of what is `there` of all steps.

    Arrays without elements are made of nothing.
    """
    asked = list(dict.fromkeys(var for var in evaluate.variables(atoms) if not _is_empty(var, length)))
    eqns = evaluate.needed(body.jaxpr.eqns, asked, there)
    known = body.with_invariants(fixed, eqns)
    each = [eqn for eqn in eqns if not known.keys() >= set(eqn.outvars)]
    moving = _read(there, each, asked)

    def of_a_step(*values: Value) -> list[Value]:
        env = {**known, **dict(zip(moving, values))}
        evaluate.run(each, env)
        return [evaluate.read(env, var) for var in asked]

    found = jax.vmap(of_a_step, axis_size=length)(*(there[var] for var in moving)) if asked else []
    made = dict(zip(asked, found))

    def known_or_made(atom: Atom) -> Value:
        if isinstance(atom, Var) and not _is_empty(atom, length):
            return made[atom]
        number = atom.val if isinstance(atom, Literal) else 0
        return lax.full((length, *atom.aval.shape), number, atom.aval.dtype)

    return [known_or_made(atom) for atom in atoms]


def _in_order(atoms: Iterable[Atom], values: Iterable[Value], numbers: Iterable[Value]) -> list[Value]:
    """What these atoms are, of those of variables and those of numbers."""
    some, others = iter(numbers), iter(values)
    return [next(some if isinstance(atom, Literal) else others) for atom in atoms]


def _is_empty(var: Var, length: int) -> bool:
    return 0 in (length, *var.aval.shape) and is_plain(var.aval.dtype)


def _read(there: Env, eqns: Iterable[Eqn], targets: Sequence[Atom]) -> list[Var]:
    """What of it is read by these equations, or is a target itself."""
    read = set(evaluate.read_by(eqns, targets))
    return [var for var in there if var in read]
