"""What the last step of a loop puts out → a value that the loop carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import lax

from jaxpr2triton._compat import source_of, varies_over_mesh
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var, elements
from jaxpr2triton.ir.scans import body_of, scanned
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.rewrite import Value, is_plain, primitive_names


def carry_last(closed: Closed) -> Closed:
    """Let a scan carry what is read of its last step only.

        _, ys = scan (λ h x. let y = sin h in (y * x, y)) h0 xs;  z = slice[start_indices=(n - 1, 0)] ys
            →    _, z, ys = scan (λ h _ x. let y = sin h in (y * x, y, y)) h0 0 xs

    What reads it need not wait for all steps to be in memory then, and what nobody else reads is not written at all.
    What a step puts out and carries on anyway is there already. Left alone: what is larger than all that is carried.
    """
    if "scan" not in primitive_names(closed):
        return closed
    taken = _taken(closed)
    if not taken:
        return closed
    lasts: dict[Eqn, Value] = {}

    def rewritten(eqn: Eqn, values: list[Value]) -> list[Value] | None:
        if eqn in lasts:
            return [lasts[eqn]]
        if eqn.outvars and (slices := taken.get(eqn.outvars[0])) is not None:
            with source_of(eqn):
                found, results = _carrying(eqn, values, slices)
            lasts.update(found)
            return results
        return None

    return again(closed, lambda *args: evaluate.outputs(closed.jaxpr, closed.consts, args, rewritten))


def _taken(closed: Closed) -> dict[Var, dict[Eqn, Var]]:
    """By one of their results the scans of which slices take the last step, and what that is in the body."""
    results = {
        var: (eqn, made)
        for eqn in closed.jaxpr.eqns
        if eqn.primitive.name == "scan" and not eqn.effects and not any(map(_is_special, eqn.invars))
        for var, made in zip(eqn.outvars[body_of(eqn.params).num_carry :], body_of(eqn.params).ys)
    }
    taken: dict[Var, dict[Eqn, Var]] = {}
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "slice" and isinstance(read := eqn.invars[0], Var) and read in results:
            scan, made = results[read]
            if isinstance(made, Var) and _is_last(eqn, scan) and _is_small(scan, made):
                taken.setdefault(scan.outvars[0], {})[eqn] = made
    return taken


def _is_special(atom: Atom) -> bool:
    return not is_plain(atom.aval.dtype) or varies_over_mesh(atom.aval)


def _is_last(eqn: Eqn, scan: Eqn) -> bool:
    """Whether a slice takes the step that runs last, and no other."""
    last = 0 if scan.params["reverse"] else scan.params["length"] - 1
    return bool(eqn.params["start_indices"][0] == last and eqn.params["limit_indices"][0] == last + 1)


def _is_small(scan: Eqn, made: Var) -> bool:
    body = body_of(scan.params)
    return made in body.afters or elements(made) <= sum(map(elements, body.befores))


def _carrying(scan: Eqn, args: list[Value], slices: Mapping[Eqn, Var]) -> tuple[dict[Eqn, Value], list[Value]]:
    """What the slices take, and the results of the scan."""
    body = body_of(scan.params)
    fixed = body.fixed(args)
    made = [var for var in dict.fromkeys(slices.values()) if var not in body.afters]  # what is carried besides

    def step(before: Any, x: Any) -> Any:
        env = {**fixed, **dict(zip(body.befores, before)), **dict(zip(body.xs, x))}
        evaluate.run(body.jaxpr.eqns, env)
        after, ys = ([evaluate.read(env, atom) for atom in atoms] for atoms in (body.afters, body.ys))
        return [*after, *(evaluate.read(env, atom) for atom in made)], ys

    start = [*body.inits(args), *(lax.full(atom.aval.shape, 0, atom.aval.dtype) for atom in made)]
    after, ys = scanned(scan.params, step, start, body.stacked(args))
    lasts = {atom: value for atom, value in zip([*body.afters, *made], after) if isinstance(atom, Var)}
    found = {eqn: _rest(eqn, lasts[var]) for eqn, var in slices.items()}
    return found, [*after[: body.num_carry], *ys]


def _rest(eqn: Eqn, value: Value) -> Value:
    """What the slice takes of the step."""
    with source_of(eqn):
        step = lax.expand_dims(value, (0,))
        if step.shape == eqn.outvars[0].aval.shape:
            return step
        start, limit, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
        return lax.slice(step, (0, *start[1:]), (1, *limit[1:]), strides)
