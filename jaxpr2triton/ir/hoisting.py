"""What a program holds → its leading operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import CALLS, called_jaxpr, operands_of_call, source_of
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Closed, made
from jaxpr2triton.ir.numbers import runs_of, spelled
from jaxpr2triton.ir.scans import apart, body_of, scanned
from jaxpr2triton.ir.tracing import argument_names, avals, result_names, retrace

# Calls that mean no more than their body. Custom derivative rules and checkpoints mean more, and stay.
TRANSPARENT = frozenset({"jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "fused"})


def hoist(closed: Closed, leading: Sequence[Any] = (), calls: frozenset[str] = TRANSPARENT) -> tuple[Closed, list[Any]]:
    """The program with its constants as leading operands, and the constants.

        { lambda a:f32[2]; x. let b = mul x a in (b,) }   →   { lambda ; c0:f32[2] x. let b = mul x c0 in (b,) },  [a]

    `leading` are the values of leading operands that have been constants before. Known scalars become literals, and
    whole numbers in few runs are computed, so that what they are indices of is known: [3, 4, 5, 0] is iota and 0. One
    of the `calls` whose jaxpr holds arrays is written out, so that these become operands too, and what a `scan`,
    `while` or `cond` holds becomes its operands. Left alone: arrays inside of other calls.
    """
    nested = list(_nested(closed.jaxpr, calls))
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
        return _Opening(calls, resolve).evaluate(closed.jaxpr, values)

    labels = [f"c{place}" for place in range(len(captured))] + list(argument_names(closed)[count:])
    operands = [*map(jax.typeof, captured), *avals(closed)[count:]]
    return retrace(flat, *operands, names=labels, results=result_names(closed)), captured


def hoist_everything(closed: Closed, leading: Sequence[Any] = ()) -> tuple[Closed, list[Any]]:
    """The same where no call means more than its body any more; the program itself, if no array is held inside."""
    if all(map(is_scalar, [*closed.consts, *_nested(closed.jaxpr, CALLS)])):
        return closed, list(leading)
    return hoist(closed, leading, CALLS)


@dataclass(frozen=True)
class _Opening:
    """Runs a program, with what holds arrays written out or closing over what it held before."""

    calls: frozenset[str]
    resolve: Callable[[Any], Any]  # what was held → what takes its place

    def evaluate(self, jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], values))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, jex.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            with source_of(eqn):
                if any(any(True for _ in _captured(*each, self.calls)) for each in _called(eqn, self.calls)):
                    outs = self._opened(eqn, operands)
                else:
                    outs = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
            env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
        return [read(atom) for atom in jaxpr.outvars]

    def _opened(self, eqn: Any, operands: Sequence[Any]) -> list[Any]:
        bodies = [self._body_of(*each) for each in _called(eqn, self.calls)]
        match eqn.primitive.name:
            case "cond":
                return list(lax.switch(operands[0], bodies, *operands[1:]))
            case "scan":
                return self._scan(eqn, bodies[0], operands)
            case "while":
                return self._while(eqn, operands)
            case name:
                return bodies[0](*operands_of_call(name, eqn.params, operands))

    def _body_of(self, jaxpr: Any, consts: Sequence[Any]) -> Callable[..., list[Any]]:
        return lambda *operands: self.evaluate(jaxpr, [*map(self.resolve, consts), *operands])

    def _scan(self, eqn: Any, body: Callable[..., list[Any]], operands: Sequence[Any]) -> list[Any]:
        view = body_of(eqn.params)
        consts = operands[: view.num_consts]

        def step(carried: Sequence[Any], x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            return apart(body(*consts, *carried, *x), view.num_carry)

        after, ys = scanned(eqn.params, step, view.inits(operands), view.stacked(operands))
        return [*after, *ys]

    def _while(self, eqn: Any, operands: Sequence[Any]) -> list[Any]:
        """Bound as it was, but for more constants: the condition of a batched loop has one result for each lane."""
        ours, theirs = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        go_on, first = self._with_constants(eqn.params["cond_jaxpr"])
        body, second = self._with_constants(eqn.params["body_jaxpr"])
        params = {
            **eqn.params,
            **{"cond_jaxpr": go_on, "cond_nconsts": ours + len(first)},
            **{"body_jaxpr": body, "body_nconsts": theirs + len(second)},
        }
        given = [*first, *operands[:ours], *second, *operands[ours:]]
        return list(eqn.primitive.bind(*given, **eqn.primitive.get_bind_params(params)))

    def _with_constants(self, closed: Any) -> tuple[Any, list[Any]]:
        """The program with what it holds as leading operands, and those."""
        inner = made(closed)
        held = [const for const in _captured(inner.jaxpr, inner.consts, self.calls) if not is_scalar(const)]
        unique = list({id(const): const for const in held}.values())
        places = {id(const): place for place, const in enumerate(unique)}

        def flat(*operands: Any) -> list[Any]:
            def resolve(const: Any) -> Any:
                return _literal(const) if is_scalar(const) else operands[places[id(const)]]

            values = [*map(resolve, inner.consts), *operands[len(unique) :]]
            return _Opening(self.calls, resolve).evaluate(inner.jaxpr, values)

        return retrace(flat, *map(jax.typeof, unique), *avals(inner)), [self.resolve(const) for const in unique]


def _called(eqn: Any, calls: frozenset[str]) -> list[tuple[Any, Sequence[Any]]]:
    """What one of these calls, a loop or a `cond` runs, with its constants."""
    match eqn.primitive.name:
        case "scan":
            inner = [eqn.params["jaxpr"]]
        case "while":
            inner = [eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]]
        case "cond" if not eqn.params.get("branches_platforms"):
            inner = list(eqn.params["branches"])
        case name:
            called = called_jaxpr(name, eqn.params) if name in calls else None
            return [] if called is None else [called]
    return [(each.jaxpr, each.consts) for each in inner]


def transparent_call(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """What a transparent call runs, and its constants; None for any other equation."""
    return called_jaxpr(eqn.primitive.name, eqn.params) if eqn.primitive.name in TRANSPARENT else None


def holds_values(jaxpr: Any, consts: Sequence[Any]) -> bool:
    """True if a called program has constants, or a call in it has."""
    return any(True for _ in _captured(jaxpr, consts, TRANSPARENT))


def _nested(jaxpr: Any, calls: frozenset[str]) -> Iterator[Any]:
    """The constants of what is called in a jaxpr."""
    for eqn in jaxpr.eqns:
        for called in _called(eqn, calls):
            yield from _captured(*called, calls)


def _captured(jaxpr: Any, consts: Sequence[Any], calls: frozenset[str]) -> Iterator[Any]:
    yield from consts
    yield from _nested(jaxpr, calls)


def _spelling(const: Any) -> Callable[[], Any] | None:
    """How a program writes a constant itself; None if it has to be given it."""
    if is_scalar(const):
        return lambda: _literal(const)
    if isinstance(const, jax.core.Tracer) or not 0 < np.size(const) <= policy.COMMON.known:
        return None
    aval = jax.typeof(const)
    if not _is_whole(aval.dtype) or aval.weak_type or not getattr(const, "is_fully_addressable", True):
        return None
    runs = runs_of(np.asarray(const).reshape(-1), policy.COMMON.few)
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
