"""What is saved for the backward pass: the known cases by name, and drawn graphs against trying every choice."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpr2triton.autodiff import residuals, split
from jaxpr2triton.front.derived_programs import recomputable
from jaxpr2triton.ir import evaluate
from tests.transforms.functions import V, W, X, Y, dense, layer_norm, softmax


def saved(function: Any, *args: Any, nonzero: tuple[bool, ...] | None = None) -> list[str]:
    """`input 0` and `output 0` for what is there anyway, and its shape for anything else."""
    leaves, tree = jax.tree.flatten(args)
    jaxpr = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves))))(*leaves)
    halves = split.linearize(jaxpr, nonzero or (True,) * len(leaves), recomputable)
    kinds = {"in": "input", "out": "output"}
    return [
        f"{kinds[source.kind]} {source.index}" if source.kind in kinds else "x".join(map(str, aval.shape))
        for source, aval in zip(halves.sources, halves.linear.in_avals)
    ]


BIG = jnp.ones((64, 32))
WIDE = jnp.ones((160, 160))


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (jnp.tanh, (BIG,), ["output 0"]),
        (jnp.exp, (BIG,), ["output 0"]),
        (jnp.sin, (BIG,), ["input 0"]),
        (jax.nn.sigmoid, (BIG,), ["output 0"]),
        (jax.nn.gelu, (BIG,), ["input 0"]),
        (jax.nn.silu, (BIG,), ["input 0"]),
        (lambda x: x * 3 + 1, (BIG,), []),
        (lambda x: (x**2).sum(), (BIG,), ["input 0"]),
        (lambda x: jnp.sin(x).sum(), (BIG,), ["input 0"]),
        (lambda x, y: x * y, (BIG, BIG), ["input 0", "input 1"]),
        (lambda x: jnp.exp(jnp.sin(x) * 2), (BIG,), ["input 0"]),
        (jnp.dot, (BIG, BIG.T), ["input 0", "input 1"]),
        (softmax, (BIG,), ["input 0", "64x1", "64x1"]),  # the largest and the sum of each row
        (jax.nn.softmax, (BIG,), ["input 0", "64x1", "64x1"]),
        (layer_norm, (BIG, BIG[0], BIG[0]), ["input 0", "input 1", "64x1", "64x1"]),  # mean and rstd
        (lambda w, x: jnp.tanh(x @ w) @ w, (W, X), ["input 0", "input 1"]),  # a product with a small matrix is
        (lambda w, x: jnp.tanh(x @ w) @ w, (WIDE, WIDE[:8]), ["input 0", "input 1", "8x160"]),
        (lambda w, x: jnp.tanh(x @ w) @ w, (WIDE[:100, :100], WIDE[:, :100]), ["input 0", "input 1"]),
        (lambda x: jnp.cos(x.sum(1, keepdims=True) * x), (BIG,), ["input 0", "64x1"]),
        (lambda x: jnp.sin(jnp.cumsum(x, 0)), (BIG,), ["64x32"]),  # a running sum is not done again
    ],
)
def test_known_cases(function: Any, args: Any, expected: list[str]) -> None:
    assert saved(function, *args) == expected


def test_a_small_value_is_kept_before_it_is_broadcast() -> None:
    assert saved(lambda x, b: x * jnp.exp(b)[None, :], BIG, BIG[0]) == ["input 0", "input 1"]


def test_what_a_checkpoint_covers_is_not_saved() -> None:
    inner = lambda p, x: jnp.sin(dense(p, x) @ p["w"])  # noqa: E731
    params, x = {"w": WIDE, "b": WIDE[0]}, WIDE[:8]
    assert saved(lambda p, x: inner(p, x).sum(), params, x).count("8x160") == 2
    checkpointed = saved(lambda p, x: jax.checkpoint(inner)(p, x).sum(), params, x)
    assert checkpointed == ["input 0", "input 1", "input 2"]


def test_a_policy_of_a_checkpoint_is_kept() -> None:
    f = jax.checkpoint(lambda w, x: jnp.sin(jnp.sin(x @ w) @ w), policy=jax.checkpoint_policies.dots_saveable)
    assert saved(f, WIDE, WIDE[:8]) == ["input 0", "input 1", "8x160", "8x160"]


def test_random_numbers_are_not_drawn_again() -> None:
    def dropout(x: Any, key: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0.0)

    assert "input 1" not in saved(dropout, BIG, jax.random.key(0), nonzero=(True, False))


# ---------------------------------------------------------------------------------------------- against every choice
UNARY = [jnp.sin, jnp.tanh, lambda x: x[:, None] * jnp.ones((1, 3)) if x.ndim == 1 else x.sum(1), lambda x: x * x]


@st.composite
def graphs(draw: Any) -> tuple[Any, int, list[int]]:
    """A program of up to eight equations, how many of its outputs are the user's, and which values are asked for."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6))

    def program(x: Any, y: Any) -> list[Any]:
        values = [x, y]
        for kind, one, other in steps:
            a, b = values[one % len(values)], values[other % len(values)]
            values.append(UNARY[kind](a) if kind < 4 else a + (b if a.shape == b.shape else a))
        return values[2:]

    jaxpr = jax.make_jaxpr(program)(jnp.ones(2), jnp.ones((2, 3)))
    count = len(jaxpr.jaxpr.outvars)
    num_outputs = draw(st.integers(0, count))
    asked = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    return jaxpr, num_outputs, asked


def cheap(eqn: Any) -> bool:
    return eqn.primitive.name != "reduce_sum"


def cost(jaxpr: Any, num_outputs: int, var: Any) -> int:
    there = var in jaxpr.jaxpr.invars or var in jaxpr.jaxpr.outvars[:num_outputs]
    return math.prod(var.aval.shape) * var.aval.dtype.itemsize * (4 if there else 9)


def suffices(jaxpr: Any, kept: Any, asked: Any) -> bool:
    needed = evaluate.needed(jaxpr.jaxpr.eqns, asked, kept)
    made = {var for eqn in needed for var in eqn.outvars} | set(kept)
    read = [*asked, *(atom for eqn in needed for atom in eqn.invars)]
    return all(map(cheap, needed)) and all(isinstance(atom, jex.Literal) or atom in made for atom in read)


@given(graphs())
def test_no_choice_is_cheaper(graph: tuple[Any, int, list[int]]) -> None:
    jaxpr, num_outputs, positions = graph
    asked = [jaxpr.jaxpr.outvars[position] for position in positions]
    kept = residuals.choose(jaxpr, num_outputs, asked, cheap)
    assert suffices(jaxpr, kept, asked)
    found = sum(cost(jaxpr, num_outputs, var) for var in kept)
    candidates = [*jaxpr.jaxpr.invars, *(var for eqn in jaxpr.jaxpr.eqns for var in eqn.outvars)][:11]
    for size in range(4):
        for choice in itertools.combinations(candidates, size):
            if suffices(jaxpr, choice, asked):
                assert found <= sum(cost(jaxpr, num_outputs, var) for var in choice)


def test_the_cut_is_the_one_nearest_the_backward_side() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(jnp.sin(jnp.sin(x.sum(1)))))(BIG)
    (kept,) = residuals.choose(jaxpr, 0, jaxpr.jaxpr.outvars, cheap)
    assert kept is jaxpr.jaxpr.outvars[0]


def test_gradients_of_the_known_cases_are_right() -> None:
    for function, args in (
        (layer_norm, (X, V, V)),
        (softmax, (X,)),
        (lambda x: jnp.cos(x.sum(1, keepdims=True) * x), (Y,)),
    ):
        jaxpr = jax.make_jaxpr(function)(*args)
        halves = split.linearize(jaxpr, (True,) * len(args), recomputable)
        results = jax.core.eval_jaxpr(halves.forward.jaxpr, halves.forward.consts, *args)
        held = halves.residuals(args, results[:1], results[1:])
        (found,) = jax.core.eval_jaxpr(halves.linear.jaxpr, halves.linear.consts, *held, *args)
        np.testing.assert_allclose(found, jax.jvp(function, args, args)[1], rtol=1e-5, atol=1e-5)
