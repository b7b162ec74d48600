"""What is reduced over the steps of a scan is carried by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton._compat import scan_counts_of, user_frame
from jaxpr2triton.normalize import passes
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.loops.carry import carry_reductions
from jaxpr2triton.normalize.loops.prune import prune_scans
from jaxpr2triton.policy import COMMON
from tests.normalize.passing import outputs, traced

RNG = np.random.default_rng(8)
H, XS = RNG.standard_normal((6, 4)).astype(np.float32), RNG.standard_normal((5, 6, 4)).astype(np.float32)


def states(h: Any, xs: Any, reverse: bool = False) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h * 0.9 + x)
        return h, h

    return lax.scan(step, h, xs, reverse=reverse)[1]


def carried(function: Callable[..., Any], *args: Any) -> Any:
    before = inline_calls(traced(function, *args))
    after = prune_scans(carry_reductions(before))
    assert after.out_avals == before.out_avals
    for expected, actual in zip(outputs(before, args), outputs(after, args), strict=True):
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), rtol=2e-2 if expected.dtype.itemsize == 2 else 1e-5
        )
    return after


def scans(closed: Any) -> list[tuple[int, int]]:
    """For each scan how many values it carries and how many arrays it writes."""
    found = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    counts = [(scan_counts_of(eqn.params)[1], len(eqn.outvars)) for eqn in found]
    return [(carries, results - carries) for carries, results in counts]


def test_what_has_no_results_waits_too() -> None:
    def function(h: Any, xs: Any) -> Any:
        ys = states(h, xs)
        lax.scan(lambda _, y: (None, None), None, ys)
        return jnp.sum(ys, 0)

    assert scans(carried(function, H, XS))[0] == (2, 0)


Y = RNG.standard_normal((5, 6, 4)).astype(np.float32)
ROW = RNG.standard_normal(4).astype(np.float32)
CARRIED: dict[str, Callable[..., Any]] = {
    "sum": lambda h, xs, *_: jnp.sum(states(h, xs), 0),
    "sum_of_all": lambda h, xs, *_: jnp.sum(states(h, xs)),
    "backwards": lambda h, xs, y, _: jnp.sum(states(h, xs, reverse=True) * y),
    "loss": lambda h, xs, y, _: jnp.mean((states(h, xs) - y) ** 2),
    "max": lambda h, xs, *_: jnp.max(states(h, xs), (0, 2)),
    "min": lambda h, xs, *_: jnp.min(states(h, xs), 0),
    "prod": lambda h, xs, *_: jnp.prod(states(h, xs) + 1.5, 0),
    "any": lambda h, xs, *_: jnp.any(states(h, xs) > 0.9, 0),
    "all": lambda h, xs, *_: jnp.all(states(h, xs) > -0.5, (0, 1)),
    "count": lambda h, xs, *_: jnp.sum(states(h, xs) > 0.3, (0, 1)),
    "narrow": lambda h, xs, *_: lax.reduce_sum_p.bind(
        states(h, xs).astype(jnp.bfloat16), axes=(0,), **{k: None for k in _more_of_reduce_sum()}
    ),
    "moved": lambda h, xs, y, _: jnp.sum(jnp.moveaxis(states(h, xs), 0, 2) * jnp.moveaxis(y, 0, 2), 2),
    "moved_back": lambda h, xs, *_: jnp.sum(jnp.exp(states(h, xs).transpose(2, 0, 1)), 1),
    "weights_of_steps": lambda h, xs, *_: jnp.sum(states(h, xs) * jnp.arange(5.0)[:, None, None], 0),
    "weights_of_lanes": lambda h, xs, _, row: jnp.sum(states(h, xs) * row, 0),
    "scalar": lambda h, xs, *_: jnp.sum(states(h, xs) * h[0, 0], 0),
    "one_of_two_arrays": lambda h, xs, *_: jnp.sum(states(h, xs) * states(h + 1, xs), 0),
}
MIXED: dict[str, Callable[..., Any]] = {  # along what the steps mix anyway
    "part": lambda ys, _: jnp.sum(ys[:, :, 1:], 0),
    "every_other": lambda ys, _: jnp.sum(ys[:, :, ::2], 0),
    "reversed": lambda ys, y: jnp.sum(ys[:, :, ::-1] * y, 0),
    "padded": lambda ys, y: jnp.sum(jnp.pad(ys[:, :, :3], ((0, 0), (0, 0), (0, 1))) * y, 0),
    "joined": lambda ys, y: jnp.sum(jnp.concatenate([ys[..., :2], y[..., :2]], 2) ** 2, 0),
    "norms": lambda ys, _: jnp.sum(jnp.sqrt(jnp.sum(ys**2, -1)), 0),
    "places": lambda ys, _: jnp.sum(jnp.argmax(ys, -1), 0),
    "largest": lambda ys, _: jnp.max(jnp.max(ys, -1, keepdims=True) - ys, (0, 2)),
}


def mixed_states(h: Any, xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h

    return lax.scan(step, h, xs)[1]


def _more_of_reduce_sum() -> tuple[str, ...]:
    (eqn,) = jax.make_jaxpr(lambda x: lax.reduce_sum(x, (0,)))(ROW).eqns
    return tuple(name for name in eqn.params if name != "axes")


@pytest.mark.parametrize("name", CARRIED)
def test_carried(name: str) -> None:
    after = carried(CARRIED[name], H, XS, Y, ROW)
    assert scans(after)[-1] == (2, 0), after


@pytest.mark.parametrize("name", MIXED)
def test_along_what_is_mixed_anyway(name: str) -> None:
    def function(h: Any, xs: Any, y: Any, w: Any) -> Any:
        return MIXED[name](mixed_states(h, xs, w), y)

    assert scans(carried(function, H, XS, Y, XS[0, :4] * 0.3)) == [(2, 0)]

    def elementwise(h: Any, xs: Any, y: Any) -> Any:
        return MIXED[name](states(h, xs), y)

    before = inline_calls(traced(elementwise, H, XS, Y))
    assert carry_reductions(before) is before  # programs could share out less than before


def test_a_program_is_one_kernel() -> None:
    program = j2t.transpile(lambda h, xs: jnp.sum((states(h, xs) - xs) ** 2, 0), H, XS)
    (kernel,) = program.kernels
    assert not program.leftovers
    assert kernel.bytes_written == H.nbytes


def test_of_two_loops_one_reads_what_the_other_writes() -> None:
    after = carried(CARRIED["one_of_two_arrays"], H, XS, Y, ROW)
    assert sorted(scans(after)) == [(1, 1), (2, 0)]


def test_what_is_also_read_is_also_written() -> None:
    after = carried(lambda h, xs: (states(h, xs), jnp.max(states(h, xs)), jnp.sum(states(h, xs))), H, XS)
    assert (2, 0) in scans(after)

    def function(h: Any, xs: Any) -> Any:
        ys = states(h, xs)
        return ys, jnp.sum(ys), jnp.max(ys, 0)

    assert scans(carried(function, H, XS)) == [(3, 1)]


def test_an_array_that_is_read_along_two_dimensions() -> None:
    def function(h: Any, xs: Any) -> Any:
        w = jnp.sin(xs)
        ys = states(h, xs)
        return jnp.sum(ys * w, 0) + jnp.sum(ys.transpose(1, 0, 2) * w, 1)

    assert scans(carried(function, H[:5], XS[:, :5])) == [(3, 0)]


def test_in_16_bits_sums_are_carried_in_32() -> None:
    after = carried(CARRIED["narrow"], H, XS, Y, ROW)
    (scan,) = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "scan")
    assert {str(var.aval.dtype) for var in scan.outvars} == {"float32"}


LEFT: dict[str, Callable[[Any], Any]] = {
    "nothing_is_reduced": lambda ys: ys * 2,
    "other_dimensions": lambda ys: jnp.sum(ys, 1),
    "steps_are_mixed": lambda ys: jnp.sum(ys[1:] - ys[:-1], 0),
    "steps_are_turned": lambda ys: jnp.sum(ys[::-1] * jnp.arange(5.0)[:, None, None], 0),
    "joined_steps": lambda ys: jnp.sum(jnp.concatenate([ys, ys]), 0),
    "rows_are_mixed": lambda ys: jnp.sum((ys - jnp.mean(ys, 1, keepdims=True)) ** 2, 0),
    "larger_than_a_step": lambda ys: jnp.sum(ys[..., None] * jnp.ones(64), 0),
    "products_of_matrices": lambda ys: jnp.sum(ys @ jnp.ones((4, 4)), 0),
    "reshaped": lambda ys: jnp.sum(ys.reshape(5, 24) ** 3, 0),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    before = inline_calls(traced(lambda h, xs: LEFT[name](states(h, xs)), H, XS))
    assert carry_reductions(before) is before


def test_what_waits_for_the_loop_is_left() -> None:
    def function(h: Any, xs: Any) -> Any:
        last, ys = lax.scan(lambda h, x: (h + x, h), h, xs)
        return jnp.sum(ys * last, 0)

    before = inline_calls(traced(function, H, XS))
    assert carry_reductions(before) is before


def test_long_sums_of_floats_are_left() -> None:
    def function(x: Any, length: int) -> Any:
        ys = lax.scan(lambda x, _: (4 * x * (1 - x),) * 2, x, None, length=length)[1]
        return jnp.sum(ys), jnp.sum(ys > 0.5)

    for length, most in ((COMMON.steps_added, (3, 0)), (COMMON.steps_added + 1, (2, 1))):
        after = prune_scans(carry_reductions(inline_calls(traced(lambda x, n=length: function(x, n), 0.3))))
        assert scans(after) == [most]


def test_steps_that_a_bitcast_joins_are_left() -> None:
    def function(h: Any, xs: Any) -> Any:
        bytes_of = lax.scan(lambda h, x: (h + x, h.astype(np.uint8)), h, xs)[1]
        words = lax.bitcast_convert_type(jnp.moveaxis(bytes_of, 0, -1), jnp.uint32)
        return jnp.sum(words, 0), jnp.sum(words[None], 0)

    before = inline_calls(traced(function, H, XS[:4]))
    assert carry_reductions(before) is before


def test_effects_and_single_steps_are_left() -> None:
    def printed(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            jax.debug.print("{}", h[0, 0])
            return h + x, h

        return jnp.sum(lax.scan(step, h, xs)[1])

    for function, args in ((printed, (H, XS)), (CARRIED["sum"], (H, XS[:1]))):
        before = inline_calls(traced(function, *args))
        assert carry_reductions(before) is before


def test_effects_beside_the_loop_keep_their_order() -> None:
    def function(h: Any, xs: Any) -> Any:
        jax.debug.print("first {}", xs[0, 0])
        last, hs = lax.scan(lambda h, x: (jnp.tanh(h + x), h), h, xs)
        total = jnp.sum(hs**2, 0)
        jax.debug.print("sum {}", total[0])
        jax.debug.print("last {}", xs[1, 0])
        return last, total

    after = carry_reductions(inline_calls(traced(function, H, XS)))
    assert scans(after) == [(2, 1)]
    told = [eqn.params["fmt"].split()[0] for eqn in after.jaxpr.eqns if eqn.effects]
    assert told == ["first", "sum", "last"]


def test_the_lines_of_the_user_stay() -> None:
    after = carried(CARRIED["loss"], H, XS, Y, ROW)
    (scan,) = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "scan")
    lines = {eqn.primitive.name: user_frame(eqn) for eqn in scan.params["jaxpr"].jaxpr.eqns}
    assert lines["tanh"] is not None and lines["tanh"].line - states.__code__.co_firstlineno == 2
    loss = CARRIED["loss"].__code__.co_firstlineno
    assert lines["sub"] is not None and lines["sub"].line == loss


def test_in_a_body() -> None:
    def function(h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h + jnp.sum(states(h, x) ** 2, 0), None), h, jnp.stack([xs, xs * 0.5]))[0]

    program = j2t.transpile(function, H, XS)
    (kernel,) = program.kernels
    assert not program.leftovers and not kernel.source.count("kept")
    np.testing.assert_allclose(program(H, XS), jax.jit(function)(H, XS), rtol=1e-5)


def test_it_is_one_of_the_passes() -> None:
    assert "carry_reductions" in [each.name for each in passes.LOOPS]
