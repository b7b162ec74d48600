"""Sums that loops carry, taken after the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton._compat import scan_counts_of, user_frame
from jaxpr2triton.normalize import passes
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.loops.bodies import normalize_bodies
from jaxpr2triton.normalize.loops.defer import defer_accumulation
from jaxpr2triton.normalize.passes import normalize
from tests.loop_programs import PROGRAMS, LoopProgram
from tests.normalize.passing import outputs, primitives_of, traced

RNG = np.random.default_rng(3)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def prepared(function: Callable[..., Any], *args: Any) -> jex.ClosedJaxpr:
    """The program as this pass finds it: calls inlined, bodies normalised."""
    return normalize_bodies(inline_calls(traced(function, *args)), normalize)


def close(before: jex.ClosedJaxpr, after: jex.ClosedJaxpr, args: Sequence[Any], tolerance: float = 1e-5) -> None:
    assert after.out_avals == before.out_avals
    for expected, actual in zip(outputs(before, args), outputs(after, args), strict=True):
        scale = float(np.abs(expected.astype(np.float64)).max(initial=1.0))
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), tolerance, tolerance * scale)


def deferred(function: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> jex.ClosedJaxpr:
    before = prepared(function, *args)
    after = defer_accumulation(before)
    close(before, after, args, tolerance)
    return after


def carried(closed: jex.ClosedJaxpr, number: int = -1) -> list[tuple[int, ...]]:
    """The shapes that a scan carries."""
    scan = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"][number]
    _, count = scan_counts_of(scan.params)
    return [var.aval.shape for var in scan.outvars[:count]]


def untouched(function: Callable[..., Any], *args: Any) -> bool:
    before = prepared(function, *args)
    return defer_accumulation(before) is before


def test_what_is_added_may_be_made_of_one_value_in_very_many_ways() -> None:
    """Two ways a step: 2^40 terms, and each of them may be a sum over lanes."""

    def total(makes: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def of(xs: Any) -> Any:
            def step(total: Any, x: Any) -> Any:
                added = makes(x)
                for _ in range(40):
                    added = 0.5 * added + 0.5 * added[::-1]
                return total + added, None

            return lax.scan(step, jnp.zeros(4), xs)[0]

        return of

    assert untouched(total(lambda x: x[0]), *arrays((5, 64, 4)))
    assert untouched(total(lambda x: x.sum(0)), *arrays((5, 64, 4)))


def products(h: Any, xs: Any) -> Any:
    """Σ xᵀ h for a batch of 4, and h."""

    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        h = jnp.tanh(h * 0.5)
        return (g + lax.dot_general(x, h, (((0,), (0,)), ((), ()))), h), None

    return lax.scan(step, (jnp.zeros((xs.shape[2], h.shape[1])), h), xs)[0]


def test_before_and_after() -> None:
    h, xs = arrays((4, 8), (6, 4, 5))
    before = prepared(products, h, xs)
    assert carried(before) == [(5, 8), (4, 8)]
    after = deferred(products, h, xs)
    assert carried(after) == [(4, 8)]
    assert [name for name in primitives_of(after) if name not in ("broadcast_in_dim", "convert_element_type")] == [
        "scan",
        "dot_general",
    ]
    scan, dot = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name in ("scan", "dot_general"))
    assert str(scan.params["jaxpr"].jaxpr) == (
        "{ lambda ; a:f32[4,8]. let\n    b:f32[4,8] = mul a 0.5:f32[]\n    c:f32[4,8] = tanh b\n  in (c, c) }"
    )
    assert dot.invars[0] is after.jaxpr.invars[1]  # the scan's own xs
    assert dot.params["dimension_numbers"] == (((0, 1), (0, 1)), ((), ()))


def test_a_transpose_after_a_contraction_swaps_its_factors() -> None:
    def function(h: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            g, h = carry
            product = lax.dot_general(h, x, (((1,), (1,)), ((0,), (0,))))
            return (g + jnp.transpose(product, (0, 2, 3, 1)), jnp.tanh(h)), None

        return lax.scan(step, (jnp.zeros((2, 5, 7, 16)), h), xs)[0]

    after = deferred(function, *arrays((2, 4, 16), (6, 2, 4, 5, 7)))
    assert primitives_of(after)[-1] == "dot_general"


def test_what_a_start_has_is_kept() -> None:
    def function(g: Any, h: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            g, h = carry
            return (g - h.T @ x, jnp.sin(h)), None

        return lax.scan(step, (g, h), xs, reverse=True)[0]

    after = deferred(function, *arrays((8, 7), (4, 8), (6, 4, 7)))
    assert carried(after) == [(4, 8)]
    assert primitives_of(after)[-1] == "add"


def test_small_sums_over_a_batch_are_carried_by_lanes() -> None:
    def function(h: Any, scale: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            g, d, h = carry
            h = jnp.sin(h * scale)
            g = g + lax.pad(jnp.sum(h[:, :1], 0), 0.0, [(0, 2, 0)]) - lax.pad(jnp.sum(h[:, 1:2], 0), 0.0, [(0, 2, 0)])
            return (g, d + jnp.sum(h[:, 0] * h[:, 1]), h), None

        return lax.scan(step, (jnp.zeros(3), jnp.zeros(()), h), None, length=5)[0]

    after = deferred(function, *arrays((9, 3), ()))
    assert sorted(carried(after)) == [(9,), (9, 1), (9, 3)]  # both pads have one sum
    assert primitives_of(after).count("pad") == 1


def test_what_stands_for_more_than_it_has_is_spread() -> None:
    """Under `vmap` one number of each row is added to all of the row, and one of all rows to all of them."""

    def function(g: Any, h: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            g, h, t = carry
            g = (jnp.sum(h) * 0.1 + t) * 0.5 + (g + jnp.sum(jnp.full((2, 2), t)) * 0.1)
            return (g, h * 0.5, t + 1.0), None

        return lax.scan(step, (g, h, 0.0), None, length=7)[0]

    after = deferred(jax.vmap(function), *arrays((3, 2, 2), (3, 2, 2)))
    assert (3, 2, 2) in carried(after)


def test_small_contractions_over_a_batch_are_carried_by_lanes() -> None:
    after = deferred(products, *arrays((4, 3), (6, 4, 2)))
    assert carried(after) == [(4, 3), (4, 2, 3)]
    assert primitives_of(after)[-1] == "reduce_sum"


def test_a_factor_that_no_step_changes_comes_after_the_loop() -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            g, h = carry
            h = jnp.sin(h)
            return (g + xs.T @ (h * 2.0) * w, h), None

        return lax.scan(step, (jnp.zeros((20, 30)), h), None, length=5)[0]

    after = deferred(function, *arrays((4, 30), (4, 20), (20, 30)))
    assert carried(after) == [(4, 30), (4, 30)]
    assert "dot_general" in primitives_of(after)


@pytest.mark.parametrize("linear", [lambda g, w: g / w, lambda g, w: -g[:, ::-1], lambda g, w: g[5:] + g[:-5]])
def test_whatever_a_row_says_is_linear_comes_after_the_loop(linear: Callable[..., Any]) -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            g, h = carry
            h = jnp.sin(h)
            return (g + linear(x.T @ h, w), h), None

        start = jnp.zeros(jax.eval_shape(linear, w, w).shape)
        return lax.scan(step, (start, h), xs)[0]

    after = deferred(function, *arrays((4, 30), (6, 4, 20)), np.full((20, 30), 3.0, np.float32))
    assert carried(after) == [(4, 30)]


def test_terms_that_stay() -> None:
    def function(h: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            g, h, now = carry
            h = jnp.sin(h)
            return (g + (h.T @ x - now) * 2.0, h, now + 1), None

        return lax.scan(step, (jnp.zeros((16, 7)), h, 1.0), xs)[0]

    after = deferred(function, *arrays((4, 16), (6, 4, 7)))
    assert carried(after) == [(16, 7), (4, 16), ()]
    assert "dot_general" in primitives_of(after)


def test_nested_scans() -> None:
    def function(h: Any, xs: Any) -> Any:
        def outer(carry: Any, x: Any) -> Any:
            def inner(carry: Any, x: Any) -> Any:
                g, h = carry
                return (g + h.T @ x, jnp.sin(h)), None

            return lax.scan(inner, carry, x)[0], None

        return lax.scan(outer, (jnp.zeros((16, 7)), h), xs)[0]

    h, xs = arrays((4, 16), (3, 6, 4, 7))
    after = deferred(function, h, xs)
    assert carried(after) == [(4, 16)]
    (dot,) = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "dot_general")
    sizes = [[atom.aval.shape[d] for d in dims] for atom, dims in zip(dot.invars, dot.params["dimension_numbers"][0])]
    assert sizes == [[3, 6, 4], [3, 6, 4]]


def read_elsewhere(h: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        return (g + h.T @ x, jnp.sin(h) + g[0, 0]), None

    return lax.scan(step, (jnp.zeros((16, 7)), h), xs)[0]


def stored(h: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        g = g + h.T @ x
        return (g, jnp.sin(h)), g

    return lax.scan(step, (jnp.zeros((16, 7)), h), xs)


def added_twice(h: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        return (g + g + h.T @ x, jnp.sin(h)), None

    return lax.scan(step, (jnp.zeros((16, 7)), h), xs)[0]


def elementwise(h: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        return (g + h[:, :7] * x, jnp.sin(h)), None

    return lax.scan(step, (jnp.zeros((4, 7)), h), xs)[0]


def mixed_sum(h: Any, xs: Any) -> Any:
    """The sum is over what a step mixes anyway, and what it sums is large."""

    def step(carry: Any, x: Any) -> Any:
        g, h = carry
        h = jnp.sin(h @ jnp.ones((16, 16)))
        return (g + jnp.sum(h[:, :, None] * h[:, None, :], (1, 2)), h), None

    return lax.scan(step, (jnp.zeros((4,)), h), xs)[0]


@pytest.mark.parametrize("function", [read_elsewhere, stored, added_twice, elementwise, mixed_sum])
def test_what_stays(function: Callable[..., Any]) -> None:
    assert untouched(function, *arrays((4, 16), (6, 4, 7)))


def test_a_single_small_chain_keeps_its_sums() -> None:
    def function(h: Any, w: Any) -> Any:
        return lax.scan(lambda h, _: (jnp.tanh(w @ h), None), h, None, length=5)[0].sum()

    gradient = jax.grad(function, argnums=(0, 1))
    assert untouched(gradient, *arrays((6,), (6, 6)))
    after = deferred(gradient, *arrays((24,), (24, 24)))
    assert carried(after) == [(24,)]


def test_lines_of_the_user_stay() -> None:
    h, xs = arrays((4, 8), (6, 4, 5))
    after = deferred(products, h, xs)
    lines = {eqn.primitive.name: user_frame(eqn) for eqn in after.jaxpr.eqns}
    start = products.__code__.co_firstlineno
    dot, scan = lines["dot_general"], lines["scan"]
    assert dot is not None and scan is not None
    assert (dot.line, scan.line) == (start + 6, start + 8)


def test_programs_without_such_sums_are_returned_as_they_are() -> None:
    assert untouched(lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=4), *arrays((3,)))
    assert untouched(lambda x: jnp.sin(x), *arrays((3,)))


def test_it_is_one_of_the_passes() -> None:
    assert "defer_accumulation" in [each.name for each in passes.LOOPS]
    h, xs = arrays((4, 8), (6, 4, 5))
    assert carried(normalize(traced(products, h, xs))) == [(4, 8)]


DIFFERENTIATED = [program for program in PROGRAMS if program.grad is not None]


@pytest.mark.parametrize("program", DIFFERENTIATED, ids=str)
def test_gradients_of_programs(program: LoopProgram) -> None:
    with program.precision():
        args = program.args(RNG)
        leaves, tree = jax.tree.flatten(args)
        gradient = program.gradient()
        before = prepared(lambda *flat: jax.tree.leaves(gradient(*jax.tree.unflatten(tree, flat))), *leaves)
        close(before, defer_accumulation(before), leaves, 0.05 if "low" in program.tags else 1e-5)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("rnn", [(3, 8)] * 2), ("gru", [(3, 8)] * 4), ("lstm", [(3, 8)] * 6)],  # one for the bias of each gate, by lanes
)
def test_recurrent_networks_carry_no_gradient_of_a_weight(name: str, shapes: list[tuple[int, ...]]) -> None:
    (program,) = (program for program in PROGRAMS if program.name == name)
    leaves, tree = jax.tree.flatten(program.args(RNG))
    gradient = program.gradient()
    after = deferred(lambda *flat: jax.tree.leaves(gradient(*jax.tree.unflatten(tree, flat))), *leaves)
    assert carried(after) == shapes
