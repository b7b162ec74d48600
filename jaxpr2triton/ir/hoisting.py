"""What a program holds → its leading operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import called_jaxpr, source_of
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.numbers import runs_of, spelled
from jaxpr2triton.ir.scans import apart, body_of, scanned
from jaxpr2triton.ir.tracing import argument_names, avals, result_names, retrace

# Calls that mean no more than their body. Custom derivative rules and checkpoints mean more, and stay.
TRANSPARENT = frozenset({"jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "fused"})


def hoist(closed: Closed, leading: Sequence[Any] = ()) -> tuple[Closed, list[Any]]:
    """The program with its constants as leading operands, and the constants.

        { lambda a:f32[2]; x. let b = mul x a in (b,) }   →   { lambda ; c0:f32[2] x. let b = mul x c0 in (b,) },  [a]

    `leading` are the values of leading operands that have been constants before. Known scalars become literals, and
    whole numbers in few runs are computed, so that what they are indices of is known: [3, 4, 5, 0] is iota and 0. A
    nested `jit` whose jaxpr holds arrays is written out, so that these become operands too, and what a `scan` or `cond`
    holds becomes its operands. Left alone: arrays inside the bodies of `while`, checkpoints and functions with
    derivative rules of their own.
    """
    nested = list(_nested(closed.jaxpr))
    given = [*leading, *closed.consts]
    if not nested and not closed.consts and not any(map(_spelling, given)):
        return closed, given
    captured = list({id(const): const for const in [*given, *nested] if not _spelling(const)}.values())
    places = {id(const): place for place, const in enumerate(captured)}
    count = len(leading)

    def flat(*operands: Any) -> list[Any]:
        def resolve(const: Any) -> Any:
            spell = _spelling(const)
            return spell() if spell else operands[places[id(const)]]

        values = [*map(resolve, [*closed.consts, *leading]), *operands[len(captured) :]]
        return _evaluate(closed.jaxpr, values, resolve)

    labels = [f"c{place}" for place in range(len(captured))] + list(argument_names(closed)[count:])
    operands = [*map(jax.typeof, captured), *avals(closed)[count:]]
    return retrace(flat, *operands, names=labels, results=result_names(closed)), captured


def _evaluate(jaxpr: Any, values: Sequence[Any], resolve: Callable[[Any], Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], values))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        called = _called(eqn)
        with source_of(eqn):
            if any(holds_values(*each) for each in called):
                outs = _opened(eqn, [_body_of(*each, resolve) for each in called], operands)
            else:
                outs = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(atom) for atom in jaxpr.outvars]


def _opened(eqn: Any, bodies: Sequence[Callable[..., list[Any]]], operands: Sequence[Any]) -> list[Any]:
    """What an equation computes, with bodies that close over what they held before."""
    if eqn.primitive.name == "cond":
        return list(lax.switch(operands[0], bodies, *operands[1:]))
    (body,) = bodies
    if eqn.primitive.name != "scan":
        return body(*operands)
    view = body_of(eqn.params)
    consts = operands[: view.num_consts]

    def step(carried: Sequence[Any], x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return apart(body(*consts, *carried, *x), view.num_carry)

    after, ys = scanned(eqn.params, step, view.inits(operands), view.stacked(operands))
    return [*after, *ys]


def _body_of(jaxpr: Any, consts: Sequence[Any], resolve: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    return lambda *operands: _evaluate(jaxpr, [*map(resolve, consts), *operands], resolve)


def _called(eqn: Any) -> list[tuple[Any, Sequence[Any]]]:
    """What a transparent call, a `scan` or a `cond` runs, with its constants."""
    if eqn.primitive.name == "scan":
        return [(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts)]
    if eqn.primitive.name == "cond" and not eqn.params.get("branches_platforms"):
        return [(branch.jaxpr, branch.consts) for branch in eqn.params["branches"]]
    called = transparent_call(eqn)
    return [] if called is None else [called]


def transparent_call(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """What a transparent call runs, and its constants; None for any other equation."""
    return called_jaxpr(eqn.primitive.name, eqn.params) if eqn.primitive.name in TRANSPARENT else None


def holds_values(jaxpr: Any, consts: Sequence[Any]) -> bool:
    """True if a called program has constants, or a call in it has."""
    return any(True for _ in _captured(jaxpr, consts))


def _nested(jaxpr: Any) -> Iterator[Any]:
    """The constants of what is called in a jaxpr."""
    for eqn in jaxpr.eqns:
        for called in _called(eqn):
            yield from _captured(*called)


def _captured(jaxpr: Any, consts: Sequence[Any]) -> Iterator[Any]:
    yield from consts
    yield from _nested(jaxpr)


def _spelling(const: Any) -> Callable[[], Any] | None:
    """How a program writes a constant itself; None if it has to be given it."""
    if is_scalar(const):
        return lambda: _literal(const)
    if isinstance(const, jax.core.Tracer) or not 0 < np.size(const) <= policy.COMMON.known:
        return None
    aval = jax.typeof(const)
    if not _is_whole(aval.dtype) or aval.weak_type or not getattr(const, "is_fully_addressable", True):
        return None
    runs = runs_of(np.asarray(const).reshape(-1), policy.COMMON.runs)
    return None if runs is None else lambda: spelled(aval.dtype, aval.shape, runs)


def _is_whole(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_) and unsupported(dtype) is None


def is_scalar(const: Any) -> bool:
    """True for values that can be literals."""
    if isinstance(const, jax.core.Tracer) or np.ndim(const) != 0:
        return False
    dtype = jax.typeof(const).dtype
    if jnp.issubdtype(dtype, jax.dtypes.extended) or dtype == jax.dtypes.float0:
        return False
    return bool(jax.typeof(_literal(const)) == jax.typeof(const))


def _literal(const: Any) -> Any:
    """The value as a NumPy scalar, or as Python's if its type is weak."""
    return np.asarray(const).item() if jax.typeof(const).weak_type else np.asarray(const)[()]
