"""What scans store, and what is computed from it after the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton._compat import scan_counts_of, user_frame
from jaxpr2triton.normalize import passes
from jaxpr2triton.normalize.loops.prune import prune_scans
from jaxpr2triton.normalize.loops.recompute import recompute_stored
from tests.loop_programs import PROGRAMS, LoopProgram
from tests.normalize.loops.test_defer import arrays, close, prepared
from tests.normalize.passing import outputs, primitives_of, traced

RNG = np.random.default_rng(4)


def sunk(function: Callable[..., Any], *args: Any) -> Any:
    before = prune_scans(prepared(function, *args))
    after = recompute_stored(before)
    close(before, after, args)
    return after


def stored(closed: Any, number: int = 0) -> list[tuple[int, ...]]:
    """The shapes that a scan stores."""
    scan = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"][number]
    _, count = scan_counts_of(scan.params)
    return [var.aval.shape for var in scan.outvars[count:]]


def states(h: Any, xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        y = jnp.tanh(h @ w + x)
        slope = 1.0 - y * y
        return y, (y, slope, slope * x, jnp.sin(w))

    return lax.scan(step, h, xs)[1]


def test_before_and_after() -> None:
    args = arrays((4,), (6, 4), (4, 4))
    after = sunk(lambda *args: [jnp.sum(y) for y in states(*args)], *args)
    assert stored(after) == [(6, 4)]
    assert primitives_of(after)[0] == "scan"
    (scan,) = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "scan")
    assert [eqn.primitive.name for eqn in scan.params["jaxpr"].jaxpr.eqns] == ["dot_general", "add", "tanh"]


def test_what_a_contraction_reads_stays() -> None:
    """It would have to be written after the loop."""

    def multiplied(h: Any, xs: Any, w: Any, u: Any) -> Any:
        ys, slopes, parts, _ = states(h, xs, w)
        return jnp.concatenate([ys, slopes], -1).sum(), parts @ u

    args = arrays((4,), (6, 4), (4, 4), (4, 2))
    assert stored(sunk(multiplied, *args)) == [(6, 4), (6, 4)]


def test_outputs_of_the_program_stay() -> None:
    args = arrays((4,), (6, 4), (4, 4))
    assert stored(sunk(states, *args)) == [(6, 4), (6, 4), (6, 4), (6, 4, 4)]

    def function(*args: Any) -> Any:
        _, slopes, parts, _ = states(*args)
        return slopes, jnp.sum(parts)

    assert stored(sunk(function, *args)) == [(6, 4)]


def test_a_state_is_stored_in_place_of_much_that_it_leads_to() -> None:
    def function(state: Any) -> Any:
        def step(s: Any, _: Any) -> Any:
            x, y, z = s
            parts = (x * y, y * z, z * x, x - y, y - z, jnp.sin(x))
            return s + 0.01 * jnp.stack([y - x, x * z, x * y]), parts

        return [jnp.sum(part) for part in lax.scan(step, state, None, length=5)[1]]

    assert stored(sunk(function, *arrays((3,)))) == [(5, 3)]


def test_loops_without_a_state_come_apart() -> None:
    def function(xs: Any) -> Any:
        return jnp.sum(lax.scan(lambda _, x: (None, jnp.sin(x) * 2), None, xs, reverse=True)[1])

    after = sunk(function, *arrays((6, 4)))
    assert stored(after) == []


def test_contractions_are_not_done_again() -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            z = x @ w
            return jnp.sin(h + z), (z, jnp.cos(z), jnp.exp(z))

        return [jnp.sum(part) for part in lax.scan(step, h, xs)[1]]

    assert stored(sunk(function, *arrays((4,), (6, 3), (3, 4)))) == [(6, 4)]


def test_of_outer_products_the_factors_are_stored() -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.sin(h * 2 + x)
            return h, (h[:, None] @ w, jnp.cos(h))

        return [jnp.sum(part) for part in lax.scan(step, h, xs)[1]]

    assert stored(sunk(function, *arrays((4,), (6, 4), (1, 9)))) == [(6, 4)]


@pytest.mark.parametrize(
    "function",
    [
        lambda h, xs: lax.scan(lambda h, x: (jnp.sin(h) + x, h), h, xs),
        lambda h, xs: jnp.sum(lax.scan(lambda h, x: (jnp.sin(h) + x, h), h, xs)[1]),
        lambda h, xs: lax.scan(lambda h, x: (jnp.sin(h) + x, None), h, xs),
        lambda h, xs: jnp.sin(h),
    ],
)
def test_what_is_little_already_is_returned_as_it_is(function: Callable[..., Any]) -> None:
    before = prepared(function, *arrays((4,), (6, 4)))
    assert recompute_stored(before) is before


def test_only_some_outputs_are_to_be_kept() -> None:
    args = arrays((4,), (6, 4), (4, 4))
    before = prepared(states, *args)
    after = recompute_stored(before, 1)
    assert stored(after) == [(6, 4)]
    close(before, after, args)


def test_the_lines_of_the_user_stay() -> None:
    after = sunk(lambda *args: [jnp.sum(y) for y in states(*args)], *arrays((4,), (6, 4), (4, 4)))
    start = states.__code__.co_firstlineno
    frames = {eqn.primitive.name: user_frame(eqn) for eqn in after.jaxpr.eqns}
    lines = {name: frame.line - start for name, frame in frames.items() if frame is not None}
    assert lines["scan"] == 6
    assert lines["sub"] == 3


def test_it_is_one_of_the_passes() -> None:
    assert "recompute_stored" in [each.name for each in passes.LOOPS]


@pytest.mark.parametrize("name", ["rnn", "lstm", "lorenz_rk4", "inferences", "thomas", "gae", "sinkhorn", "ctc_loss"])
def test_gradients_of_programs(name: str) -> None:
    (program,) = (program for program in PROGRAMS if program.name == name)
    _check(program)


def _check(program: LoopProgram) -> None:
    leaves, tree = jax.tree.flatten(program.args(RNG))
    gradient = program.gradient()
    before = prepared(lambda *flat: jax.tree.leaves(gradient(*jax.tree.unflatten(tree, flat))), *leaves)
    close(before, recompute_stored(before), leaves)


@pytest.mark.parametrize(("name", "elements"), [("rnn", 2 * 8), ("lstm", 6 * 8), ("lorenz_rk4", 3)])
def test_what_gradients_keep_of_a_step(name: str, elements: int) -> None:
    """An RNN keeps its state before and after, an LSTM both states and four gates, an ODE its state."""
    (program,) = (program for program in PROGRAMS if program.name == name)
    leaves, tree = jax.tree.flatten(program.args(RNG))
    gradient = program.gradient()
    after = sunk(lambda *flat: jax.tree.leaves(gradient(*jax.tree.unflatten(tree, flat))), *leaves)
    assert sum(shape[-1] for shape in stored(after)) == elements


def test_scans_in_scans() -> None:
    def function(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h, parts = lax.scan(lambda h, x: (jnp.sin(h) * x, (h, h * x, h - x)), h, x)
            return h, sum(parts)

        return lax.scan(step, h, xs)[1]

    args = arrays((4,), (3, 6, 4))
    after = sunk(function, *args)
    assert len(outputs(after, args)) == 1
    assert traced(function, *args).out_avals == after.out_avals
