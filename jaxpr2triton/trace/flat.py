"""Functions → closed jaxprs without constants: what a function closes over becomes leading operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jaxpr2triton._compat import called_jaxpr, source_of
from jaxpr2triton.ir.tracing import argument_names, avals, retrace, trace

# Calls that mean no more than their body. Custom derivative rules and checkpoints mean more, and stay.
TRANSPARENT = frozenset({"jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "fused"})


def trace_flat(
    fun: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str] = ()
) -> tuple[jex.ClosedJaxpr, list[Any]]:
    """The program of `fun` for these arguments (arrays, tracers, avals or shapes), and what it closes over.

        w, c = array([1., 2.]), array(3.)        { lambda ; c0:f32[2] x:f32[2]. let
        trace_flat(lambda x: x * w + c, [x])  →      a = mul x c0;  b = add a 3.0  in (b,) },  [w]

    The user's lines and names are kept. See `hoist` for what becomes an operand.
    """
    traced, outer = trace(fun, *arguments, names=names)
    return hoist(traced, outer)


def hoist(closed: jex.ClosedJaxpr, leading: Sequence[Any] = ()) -> tuple[jex.ClosedJaxpr, list[Any]]:
    """The program with its constants as leading operands, and the constants.

        { lambda a:f32[2]; x. let b = mul x a in (b,) }   →   { lambda ; c0:f32[2] x. let b = mul x c0 in (b,) },  [a]

    `leading` are the values of leading operands that have been constants before. Known scalars become literals. A
    nested `jit` whose jaxpr holds arrays is written out, so that these become operands too. Left alone: arrays inside
    the bodies of loops, checkpoints and functions with derivative rules of their own.
    """
    nested = list(_nested(closed.jaxpr))
    given = [*leading, *closed.consts]
    if not nested and not closed.consts and not any(map(_is_scalar, given)):
        return closed, given
    captured = list({id(const): const for const in [*given, *nested] if not _is_scalar(const)}.values())
    places = {id(const): place for place, const in enumerate(captured)}
    count = len(leading)

    def flat(*operands: Any) -> list[Any]:
        def resolve(const: Any) -> Any:
            return _literal(const) if _is_scalar(const) else operands[places[id(const)]]

        values = [*map(resolve, [*closed.consts, *leading]), *operands[len(captured) :]]
        return _evaluate(closed.jaxpr, values, resolve)

    labels = [f"c{place}" for place in range(len(captured))] + list(argument_names(closed)[count:])
    return retrace(flat, *map(jax.typeof, captured), *avals(closed)[count:], names=labels), captured


def jaxpr_function(closed: jex.ClosedJaxpr) -> Callable[..., list[Any]]:
    """A JAX function that computes the program: flat operands in, a list of outputs out."""

    def run(*operands: Any) -> list[Any]:
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *operands)

    return run


def _evaluate(jaxpr: Any, values: Sequence[Any], resolve: Callable[[Any], Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], values))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        called = _transparent(eqn)
        with source_of(eqn):
            if called is not None and any(True for _ in _captured(*called)):
                inner, consts = called
                outs = _evaluate(inner, [*map(resolve, consts), *operands], resolve)
            else:
                outs = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(atom) for atom in jaxpr.outvars]


def _transparent(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    return called_jaxpr(eqn.primitive.name, eqn.params) if eqn.primitive.name in TRANSPARENT else None


def _nested(jaxpr: Any) -> Iterator[Any]:
    """The constants of the transparent calls in a jaxpr."""
    for eqn in jaxpr.eqns:
        called = _transparent(eqn)
        if called is not None:
            yield from _captured(*called)


def _captured(jaxpr: Any, consts: Sequence[Any]) -> Iterator[Any]:
    yield from consts
    yield from _nested(jaxpr)


def _is_scalar(const: Any) -> bool:
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
