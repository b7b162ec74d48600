"""Loops whose steps run loops, and read what these put out: in the other order, twice, or at computed places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(41)
PARTLY = 0.5  # of what is left of a state after a step


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def steps_of(body: Callable[[Any], Any], steps: int = 3) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda now, _: (body(now), None), x, None, length=steps)[0]


def leaky(rows: Any, reverse: bool = False) -> Any:
    def step(state: Any, row: Any) -> Any:
        state = PARTLY * state + jnp.tanh(row)
        return state, state

    return lax.scan(step, jnp.zeros(rows.shape[1:], rows.dtype), rows, reverse=reverse)[1]


def solved(u: Any, k: float) -> Any:
    """A tridiagonal system for each column: down for the factors, and up for the solution."""

    def down(above: Any, row: Any) -> Any:
        factor, rest = above
        pivot = 1 / (1 + 2 * k + k * factor)
        now = -k * pivot * jnp.ones_like(row), (row + k * rest) * pivot
        return now, now

    def up(below: Any, factors: Any) -> Any:
        now = factors[1] - factors[0] * below
        return now, now

    zero = jnp.zeros(u.shape[1], u.dtype)
    return lax.scan(up, zero, lax.scan(down, (zero, zero), u)[1], reverse=True)[1]


def alternating(u: Any) -> Any:
    """Implicit diffusion along the columns, then along the rows."""

    def half(u: Any) -> Any:
        return solved(u + 0.3 * (jnp.roll(u, 1, 1) - 2 * u + jnp.roll(u, -1, 1)), 0.3)

    return steps_of(lambda u: half(half(u).T).T)(u)


def smoothed(seen: Any) -> Any:
    """A local level: its noises are estimated again and again from a filter and the smoother behind it."""

    def estimate(noises: Any, _: Any) -> Any:
        moves, errors = noises

        def forth(level: Any, y: Any) -> Any:
            mean, variance = level
            before = variance + moves
            gain = before / (before + errors)
            now = mean + gain * (y - mean), (1 - gain) * before
            return now, (*now, before)

        def back(after: Any, now: Any) -> Any:
            mean, variance, before = now
            gain = variance / (variance + moves)
            smooth = mean + gain * (after[0] - mean), variance + gain**2 * (after[1] - variance - moves)
            return smooth, (*smooth, before)

        zero = jnp.zeros(seen.shape[1], seen.dtype)
        last, filtered = lax.scan(forth, (zero, zero + 1), seen)
        means, variances, before = lax.scan(back, last, filtered, reverse=True)[1]
        moved, missed = jnp.square(jnp.diff(means, axis=0)).mean(0), (jnp.square(seen - means) + variances).mean(0)
        return (moved + 0.1, missed), before

    ones = jnp.ones(seen.shape[1], seen.dtype)
    noises, before = lax.scan(estimate, (ones, ones), None, length=2)
    return *noises, before.mean(0)


def controlled(start: Any, controls: Any) -> Any:
    """A pendulum: it is rolled out, gains are found from its end to its start, and it is steered with these."""

    def move(x: Any, u: Any) -> Any:
        return x + 0.1 * jnp.stack([x[1], -jnp.sin(x[0]) + u[0]])

    def improve(controls: Any, _: Any) -> Any:
        def forth(x: Any, u: Any) -> Any:
            return move(x, u), x

        def back(value: Any, now: Any) -> Any:
            slope, curvature = value
            by_state, by_control = jax.jacfwd(move, (0, 1))(*now)
            q_x, q_u = 2 * now[0] + by_state.T @ slope, 0.2 * now[1] + by_control.T @ slope
            q_ux, q_uu = by_control.T @ curvature @ by_state, 0.2 + by_control.T @ curvature @ by_control
            push, gain = -q_u / q_uu[0, 0], -q_ux / q_uu[0, 0]
            curvature = 2 * jnp.eye(2) + by_state.T @ curvature @ by_state + q_ux.T @ gain
            return (q_x + q_ux.T @ push, curvature), (push, gain)

        def steer(x: Any, now: Any) -> Any:
            was, u, push, gain = now
            u = u + 0.5 * push + gain @ (x - was)
            return move(x, u), u

        end, states = lax.scan(forth, start, controls)
        gains = lax.scan(back, (2 * end, 2 * jnp.eye(2)), (states, controls), reverse=True)[1]
        return lax.scan(steer, start, (states, controls, *gains))[1], None

    return lax.scan(improve, controls, None, length=2)[0]


def learned(start: Any, order: Any) -> Any:
    """Rolled out, put in another order, and gone through in batches."""

    def update(x: Any, _: Any) -> Any:
        batches = leaky(x)[order].reshape(2, -1, x.shape[1])
        return x + lax.scan(lambda w, batch: (w - jnp.sin(batch).mean(0), None), x[0], batches)[0], None

    return lax.scan(update, start, None, length=3)[0]


def trained(weights: Any, rows: Any) -> Any:
    """Each step descends along the gradient of a scan."""

    def loss(weights: Any) -> Any:
        states = lax.scan(lambda h, x: (jnp.tanh(x + h @ weights),) * 2, jnp.zeros(rows.shape[1:]), rows)[1]
        return jnp.square(states - PARTLY).mean()

    return steps_of(lambda weights: weights - 0.1 * jax.grad(loss)(weights))(weights)


def best_path(scores: Any) -> Any:
    """The best path is found from its end by what each step has noted, and its scores are raised."""
    states = jnp.arange(scores.shape[1])

    def forth(best: Any, row: Any) -> Any:
        ways = best[:, None] + jnp.sin(states[:, None] - states)
        return ways.max(0) + row, ways.argmax(0)

    def raised(scores: Any) -> Any:
        best, came_from = lax.scan(forth, scores[0], scores[1:])
        last = best.argmax()
        path = lax.scan(lambda state, before: (before[state],) * 2, last, came_from, reverse=True)[1]
        path = jnp.concatenate([path, last[None]])
        return 0.9 * scores + 0.1 * (path[:, None] == states)

    return steps_of(raised)(scores)


@dataclass(frozen=True)
class Case:
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    full: tuple[tuple[int, ...], ...]  # shapes as users have them
    grad: int | None = 0
    kernels: int = 1  # of the gradient


CASES = {
    "there and back": Case(steps_of(lambda u: leaky(leaky(u), True)), (normal(6, 5),), ((128, 256),)),
    "there and back, a square": Case(steps_of(lambda u: leaky(leaky(u), True)), (normal(6, 6),), ((64, 64),)),
    "read reversed and as it is": Case(
        steps_of(lambda u: leaky(leaky(u), True) + leaky(u)[::-1]), (normal(6, 5),), ((128, 256),)
    ),
    "three loops": Case(steps_of(lambda u: leaky(leaky(leaky(u), True))), (normal(6, 5),), ((128, 256),)),
    "alternating directions": Case(alternating, (normal(5, 7),), ((64, 64),)),
    "a smoother": Case(smoothed, (normal(7, 3),), ((200, 100),)),
    "control": Case(controlled, (normal(2), normal(4, 1)), ((2,), (50, 1)), 1, kernels=2),
    "batches of a rollout": Case(learned, (normal(6, 5), RNG.permutation(6).astype(np.int32)), ((128, 64), (128,))),
    "training": Case(trained, (0.3 * normal(3, 3), normal(5, 2, 3)), ((16, 16), (20, 8, 16))),
    "the best path": Case(best_path, (normal(6, 4),), ((50, 16),), None),
}


def agree(fn: Callable[..., Any], *args: Any, backend: Any = "interpret") -> None:
    found, wanted = j2t.fuse(fn, backend=backend)(*args), jax.jit(fn)(*args)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def weighed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A number of all that a function gives, to be differentiated."""

    def total(*args: Any) -> Any:
        return sum((out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum() for out in jax.tree.leaves(fn(*args)))

    return total


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_one_kernel(case: Case) -> None:
    program = j2t.transpile(case.fn, *case.args)
    assert len(program.kernels) == 1 and not program.leftovers, program.explain()
    agree(case.fn, *case.args)


@pytest.mark.parametrize("name", ["there and back, a square", "alternating directions", "control", "training"])
def test_compiled(name: str) -> None:
    agree(CASES[name].fn, *CASES[name].args, backend="machine")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.grad is not None])
def test_gradients(name: str) -> None:
    case = CASES[name]
    backward = jax.grad(weighed(case.fn), case.grad)
    program = j2t.transpile(backward, *case.args)
    assert len(program.kernels) == case.kernels and not program.leftovers, program.explain()
    agree(backward, *case.args)


@pytest.mark.parametrize("name", ["there and back", "batches of a rollout", "training"])
def test_gradients_of_what_is_fused(name: str) -> None:
    case = CASES[name]
    found = jax.grad(weighed(j2t.fuse(case.fn, backend="interpret")), case.grad)(*case.args)
    np.testing.assert_allclose(found, jax.jit(jax.grad(weighed(case.fn), case.grad))(*case.args), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_batches(case: Case) -> None:
    agree(jax.vmap(case.fn), *(np.stack([arg, arg[::-1]]) for arg in case.args))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_loop_of_full_size_is_left(case: Case) -> None:
    full = [jax.ShapeDtypeStruct(shape, arg.dtype) for shape, arg in zip(case.full, case.args, strict=True)]
    assert not j2t.transpile(case.fn, *full).leftovers
    if case.grad is not None:
        assert not j2t.transpile(jax.grad(weighed(case.fn), case.grad), *full).leftovers


def test_a_direction_of_a_large_grid_is_one_kernel() -> None:
    """No program holds the grid, so XLA runs the loop; the factors, which no step changes, are made before it."""
    steps = steps_of(lambda u: solved(solved(u, 0.3).T, 0.3).T, 50)
    program = j2t.transpile(steps, jax.ShapeDtypeStruct((256, 256), np.float32))
    assert "each step launches 2 kernels" in program.explain()
    assert len(program.kernels) == 1
