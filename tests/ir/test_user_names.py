"""Values are called what the user's lines call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.user_names import user_names
from jaxpr2triton.normalize.passes import normalize

X = jax.ShapeDtypeStruct((4, 5), np.float32)


def named(fn: Callable[..., Any], *avals: Any) -> dict[str, list[str]]:
    """The names, each with the primitives that compute what is called so; those in loops too."""
    found: dict[str, list[str]] = {}

    def visit(jaxpr: Any, loop: Any = None) -> None:
        names = user_names(jaxpr, loop)
        for eqn in jaxpr.eqns:
            for var in eqn.outvars:
                if var in names:
                    found.setdefault(names[var], []).append(eqn.primitive.name)
            if eqn.primitive.name in ("scan", "while"):
                visit(eqn.params["jaxpr"].jaxpr, eqn)

    visit(normalize(jax.make_jaxpr(fn)(*avals)).jaxpr)
    return found


def norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)


def test_the_last_equation_of_an_expression() -> None:
    assert named(norm, X) == {"mean": ["div"], "centred": ["sub"]}


def twice(x: Any) -> Any:
    return jnp.sin(x) * 2


def calling(x: Any) -> Any:
    first = twice(x + 1)
    second = twice(first * 3)
    return first - second


def test_a_call_is_what_it_returns_and_not_what_it_is_given() -> None:
    assert named(calling, X) == {"first": ["mul"], "second": ["mul"]}


def pair(x: Any) -> Any:
    low, high = jnp.exp(x), jnp.cos(x)
    low += high
    return low * high


def test_pairs_and_changes() -> None:
    assert named(pair, X) == {"low": ["exp", "add"], "high": ["cos"]}


def repeated(x: Any) -> Any:
    for _ in range(3):
        y = jnp.sin(x)
        x = y * 2
    return x


def test_a_line_that_runs_several_times() -> None:
    assert named(repeated, X) == {"y": ["sin"] * 3, "x": ["mul"] * 3}


def cell(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        gate = jnp.sin(x) * h
        h = jnp.tanh(gate) + h
        return h, gate

    last, gates = lax.scan(step, jnp.zeros(5), xs)
    return last.sum() + gates.sum()


def test_the_body_of_a_loop() -> None:
    names = named(cell, X)
    assert names["gate"] == ["mul"] and names["h"] == ["add"]
    assert "last" not in names and "gates" not in names


def test_cotangents_have_names_of_their_own() -> None:
    names = named(jax.grad(lambda x: norm(x)[0, 0]), X)
    assert set(names) <= {"mean", "centred", "d_mean", "d_centred"} and "d_centred" in names
    names = named(jax.grad(lambda xs: cell(xs)), X)
    assert "d_gate" in names and "tanh" not in names["d_gate"]


def test_what_has_no_source_has_no_names() -> None:
    namespace: dict[str, Any] = {"jnp": jnp}
    exec("def f(x):\n    y = jnp.sin(x)\n    return y * 2", namespace)
    assert named(namespace["f"], X) == {}


def gates(x: Any, w: Any) -> Any:
    i, _, f = jnp.split(x * w, 3, axis=-1)
    return jnp.tanh(i) * jnp.sin(f)


def test_parts_of_one_value() -> None:
    wide = jax.ShapeDtypeStruct((4, 6), np.float32)
    assert named(gates, wide, wide) == {"i": ["slice"], "f": ["slice"]}
    source = j2t.transpile(gates, wide, wide).source
    assert " i_2 = x * w\n" in source and " f = x_2 * w_2\n" in source  # the axis is called i


def told_only(x: Any) -> Any:
    nothing = jax.debug.callback(lambda _: None, x)
    return jnp.sin(x), nothing


def test_an_expression_without_a_value_has_no_name() -> None:
    assert named(told_only, X) == {}
