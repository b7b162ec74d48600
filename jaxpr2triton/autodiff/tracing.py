"""Moves on whole programs that differentiation is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import close_like, is_along, is_high_level, low_level_results, source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.hoisting import hoist, holds_values, transparent_call
from jaxpr2triton.ir.tracing import again, argument_names, avals, result_names, traced, with_result_names


def flatten(jaxpr: Any) -> Any:
    """The same program without transparent calls: `jit { y = f x }` becomes `y = f x`.

    Left alone: calls that hold values, which `hoist` makes operands of.
    """

    def inline(eqn: Any, values: list[Any]) -> list[Any] | None:
        body = _body(eqn)
        if body is None:
            return None
        with source_of(eqn):
            return evaluate.outputs(*body, values, inline)

    if not any(_body(eqn) for eqn in jaxpr.jaxpr.eqns):
        return jaxpr
    return again(jaxpr, lambda *args: evaluate.outputs(jaxpr.jaxpr, jaxpr.consts, args, inline))


def _body(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """What a transparent call runs, and its constants."""
    body = transparent_call(eqn)
    return None if body is None or holds_values(*body) else body


@dataclass(frozen=True)
class Lowered:
    program: Any
    captured: tuple[Any, ...] = ()  # what the high-level equations held: its leading operands


def lower(jaxpr: Any) -> Lowered:
    """The same program without high-level equations: each becomes what it does, and loses its derivative rule."""
    if not any(map(is_high_level, jaxpr.jaxpr.eqns)):
        return Lowered(jaxpr)

    def results(*args: Any) -> list[Any]:
        return evaluate.outputs(jaxpr.jaxpr, jaxpr.consts, args, low_level_results)

    program, captured = hoist(traced(results, *avals(jaxpr), names=argument_names(jaxpr)))
    return Lowered(with_result_names(program, result_names(jaxpr)), tuple(captured))


def prune(jaxpr: Any, used_outputs: Sequence[bool], keep: Sequence[bool] | bool = False) -> tuple[Any, list[bool]]:
    """The program of some outputs, with the inputs that they need or that are to be kept; and which inputs those are.

    Nothing is traced again, so this also works where the mesh of a `shard_map` is out of sight.
    """
    inner, used_inputs = pe.dce_jaxpr(jaxpr.jaxpr, list(used_outputs), keep)
    return close_like(jaxpr, inner), list(used_inputs)


def reached(jaxpr: Any, seeds: Sequence[bool], axis_name: Any = None) -> list[bool]:
    """Which outputs may depend on the marked inputs, or on where along a named axis they are."""
    live = {var for var, seed in zip(jaxpr.jaxpr.invars, seeds) if seed}
    for eqn in jaxpr.jaxpr.eqns:
        if is_along(eqn, axis_name) or any(not isinstance(atom, jex.Literal) and atom in live for atom in eqn.invars):
            live.update(eqn.outvars)
    return [not isinstance(atom, jex.Literal) and atom in live for atom in jaxpr.jaxpr.outvars]
