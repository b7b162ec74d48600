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


def trace_flat(
    fun: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str] = ()
) -> tuple[jex.ClosedJaxpr, list[Any]]:
    """The program of `fun` for these arguments (arrays, tracers, avals or shapes), and what it closes over.

        w, c = array([1., 2.]), array(3.)        { lambda ; c0:f32[2] x:f32[2]. let
        trace_flat(lambda x: x * w + c, [x])  →      a = mul x c0;  b = add a 3.0  in (b,) },  [w]

    The jaxpr holds no constants: arrays and outer tracers that `fun` closes over come back as a list and are its
    leading operands. Known scalars become literals. A nested `jit` is kept, unless its jaxpr holds arrays of its own:
    then its equations are written out, so that these can be operands too. The user's lines and names are kept.
    Left alone: constants inside the bodies of loops.
    """
    traced, hoisted = trace(fun, *arguments, names=names)
    nested = list(_nested(traced.jaxpr))
    if not nested and not any(map(_is_scalar, hoisted)):
        return traced, hoisted
    captured = list({id(const): const for const in [*hoisted, *nested] if not _is_scalar(const)}.values())
    places = {id(const): place for place, const in enumerate(captured)}

    def flat(*operands: Any) -> list[Any]:
        def resolve(const: Any) -> Any:
            return _literal(const) if _is_scalar(const) else operands[places[id(const)]]

        return _evaluate(traced.jaxpr, [*map(resolve, hoisted), *operands[len(captured) :]], resolve)

    given = len(hoisted)
    labels = [f"c{place}" for place in range(len(captured))] + list(argument_names(traced)[given:])
    return retrace(flat, *map(jax.typeof, captured), *avals(traced)[given:], names=labels), captured


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
        called = called_jaxpr(eqn.primitive.name, eqn.params)
        with source_of(eqn):
            if called is not None and any(True for _ in _captured(*called)):
                inner, consts = called
                outs = _evaluate(inner, [*map(resolve, consts), *operands], resolve)
            else:
                outs = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(atom) for atom in jaxpr.outvars]


def _nested(jaxpr: Any) -> Iterator[Any]:
    """The constants of the calls in a jaxpr."""
    for eqn in jaxpr.eqns:
        called = called_jaxpr(eqn.primitive.name, eqn.params)
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
