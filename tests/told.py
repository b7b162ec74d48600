"""Programs with an effect put into them: a value of theirs is told to Python, or checked, which may raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir.evaluate import needed, read, run

Effect = Callable[[Any], Any]  # a value → the value to go on with
BODIES = {"scan": "jaxpr", "while": "body_jaxpr"}


class Told:
    """What an effect has seen."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def tells(self, value: Any) -> Any:
        jax.debug.callback(lambda value: self.seen.append(np.array(value)), value)
        return value

    def in_order(self, value: Any) -> Any:
        jax.debug.callback(lambda value: self.seen.append(np.array(value)), value, ordered=True)
        return value


def checks(is_bad: Callable[[Any], Any]) -> Effect:
    """An error where the value is bad, as libraries write it."""

    def refuse(value: Any) -> np.ndarray:
        raise RuntimeError("this value is bad")

    def raising(value: Any) -> Any:
        return jax.pure_callback(
            refuse,
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            lax.stop_gradient(value),
            vmap_method="broadcast_all",
        )

    def check(value: Any) -> Any:
        return lax.cond(jnp.any(is_bad(value)), raising, lambda value: value, value)

    return check


def at_output(function: Callable[..., Any], effect: Effect) -> Callable[..., Any]:
    """The function with an effect on the first of its outputs that is an array of numbers."""

    def with_effect(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(function(*args))
        return jax.tree.unflatten(tree, _changed(leaves, effect))

    return with_effect


def in_the_middle(function: Callable[..., Any], effect: Effect) -> Callable[..., Any]:
    """The function with an effect on a value that half of what it computes comes before."""

    def at(closed: Any, args: list[Any]) -> list[Any]:
        eqns = closed.jaxpr.eqns
        wanted = needed(eqns, closed.jaxpr.outvars, ())
        later = [eqn for eqn in wanted if any(map(_is_number, eqn.outvars))]
        middle = later[len(later) // 2] if later else None
        change = lambda eqn, values: _changed(bind_equation(eqn, values), effect) if eqn is middle else None  # noqa: E731
        return _evaluated(closed, args, change)

    return _rewritten(function, at)


def in_a_body(function: Callable[..., Any], effect: Effect) -> Callable[..., Any]:
    """The function with an effect on what each step of its first loop makes."""

    def at(closed: Any, args: list[Any]) -> list[Any]:
        todo = [True]

        def change(eqn: Any, values: list[Any]) -> list[Any] | None:
            if eqn.primitive.name == "jit" and todo:
                inner = eqn.params["jaxpr"]
                return _evaluated(inner, values, change)
            if eqn.primitive.name not in BODIES or not todo:
                return None
            todo.pop()
            key = BODIES[eqn.primitive.name]
            body = eqn.params[key]
            step = lambda *args: _changed(_evaluated(body, args, lambda eqn, values: None), effect)  # noqa: E731
            return bind_equation(eqn.replace(params={**eqn.params, key: jax.make_jaxpr(step)(*body.in_avals)}), values)

        return _evaluated(closed, args, change)

    return _rewritten(function, at)


def _rewritten(function: Callable[..., Any], at: Callable[[Any, list[Any]], list[Any]]) -> Callable[..., Any]:
    def with_effect(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        return jax.tree.unflatten(jax.tree.structure(shapes), at(closed, jax.tree.leaves(args)))

    return with_effect


def _evaluated(closed: Any, args: Any, change: Callable[[Any, list[Any]], list[Any] | None]) -> list[Any]:
    inner = closed.jaxpr
    env = dict(zip([*inner.constvars, *inner.invars], [*closed.consts, *args], strict=True))
    run(inner.eqns, env, change)
    return [read(env, atom) for atom in inner.outvars]


def _changed(values: list[Any], effect: Effect) -> list[Any]:
    """The values, the first one that can be told being what the effect makes of it."""
    chosen = next((k for k, value in enumerate(values) if _is_number(value)), None)
    return [effect(value) if k == chosen else value for k, value in enumerate(values)]


def _is_number(value: Any) -> bool:
    aval = getattr(value, "aval", None) or jax.typeof(value)
    return not jnp.issubdtype(aval.dtype, jax.dtypes.extended)
