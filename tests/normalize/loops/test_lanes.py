"""Loops that go on for the sake of any lane: each lane by itself where that is the same, and otherwise as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse, policy, transpile
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import traced

LANES = 80
Fn = Callable[..., Any]


def where(flags: Any, new: Any, old: Any) -> Any:
    return jnp.where(flags.reshape(flags.shape + (1,) * (new.ndim - flags.ndim)), new, old)


def chosen_by_the_wish(x: Any) -> Any:
    return lax.while_loop(lambda x: jnp.any(x < 9), lambda x: jnp.where(x < 9, x * 1.5 + 0.5, x), x)


def carried_flags(x: Any) -> Any:
    """As libraries write it: flags that are carried, and a count of steps that nobody reads."""

    def go_on(state: Any) -> Any:
        step, _, x, _ = state
        return jnp.any(x < 9) & (step < 7)

    def body(state: Any) -> Any:
        step, alive, x, wide = state
        new = x * 1.5 + 0.5
        after = jnp.where(alive, new, x)
        return step + 1, alive & (new < 9), after, where(alive, wide + after[:, None], wide)

    start = 0, jnp.ones(x.shape, bool), x, jnp.zeros((*x.shape, 3))
    return lax.while_loop(go_on, body, start)[2:]


def all_are_done(x: Any) -> Any:
    def body(state: Any) -> Any:
        done, x = state
        x = jnp.where(done, x, x * 1.5 + 0.5)
        return done | (x >= 9), x

    return lax.while_loop(lambda state: ~jnp.all(state[0]), body, (x >= 9, x))[1]


def falling_flag(x: Any) -> Any:
    """As solvers ask whether anybody has to begin anew: what a lane does depends on the others, for some steps."""

    def body(state: Any) -> Any:
        x, early = state
        faster = jnp.where(jnp.any(early), 2.0, 1.25)
        new = x * faster + 0.5
        return jnp.where(x < 99, new, x), jnp.where(x < 99, jnp.where(new < 9, early, False), early)

    return lax.while_loop(lambda state: jnp.any(state[0] < 99), body, (x, jnp.ones(x.shape, bool)))[0]


def put(table: Any, place: Any, new: Any, due: Any, read: Any = None) -> Any:
    """Each lane writes into a row of its own, where something is due; elsewhere it writes what it reads there."""

    def one(row: Any, place: Any, read: Any, new: Any, due: Any) -> Any:
        return row.at[place].set(jnp.where(due, new, row[read]))

    return jax.vmap(one)(table, place, place if read is None else read, new, due)


def written_where_due(x: Any) -> Any:
    """Rows are not chosen whole: who has nothing to write, writes what stands there."""

    def body(state: Any) -> Any:
        x, place, table = state
        due = x < 9
        table = put(table, place, jnp.stack([x, -x], 1), due)
        return jnp.where(due, x * 1.5 + 0.5, x), jnp.where(due, (place + 1) % 4, place), table

    start = x, jnp.zeros(x.shape, int), jnp.zeros((*x.shape, 4, 2), x.dtype)
    return lax.while_loop(lambda state: jnp.any(state[0] < 9), body, start)


def saved_at_times(x: Any, guarded: bool = True) -> Any:
    """As solvers save: a loop in each step writes what is due by then, for the sake of any lane."""
    times = jnp.array([0.5, 2.0, 3.0, 8.0, 20.0], x.dtype)

    def due_of(now: Any, place: Any) -> Any:
        return (times[place] <= now) & (place < 5)

    def body(state: Any) -> Any:
        count, alive, x, place, table = state
        new = x * 1.5 + 0.5

        def save(inner: Any) -> Any:
            count, due, place, table = inner
            value = x + (times[place] - x) * 0.5
            table = put(table, place, value, due & alive if guarded else due)
            place = jnp.where(due, place + 1, place)
            return count + 1, due & due_of(new, place), place, table

        due = due_of(new, place)
        inner = lax.while_loop(
            lambda inner: jnp.any(due_of(new, inner[2])) & (inner[0] < 5), save, (0, due, place, table)
        )
        after = jnp.where(alive, new, x)
        return count + 1, alive & (after < 9), after, jnp.where(alive, inner[2], place), inner[3]

    start = 0, x < 9, x, jnp.zeros(x.shape, int), jnp.zeros((*x.shape, 5), x.dtype)
    return lax.while_loop(lambda state: jnp.any(state[2] < 9) & (state[0] < 50), body, start)[2:]


PARTED = [chosen_by_the_wish, carried_flags, all_are_done, falling_flag, written_where_due, saved_at_times]


def the_count_is_read(x: Any) -> Any:
    def body(state: Any) -> Any:
        step, x = state
        return step + 1, jnp.where(x < 9, x * 1.5 + 0.5, x)

    return lax.while_loop(lambda state: jnp.any(state[1] < 9), body, (0, x))


def lanes_go_on_with_the_others(x: Any) -> Any:
    return lax.while_loop(lambda x: jnp.any(x < 9), lambda x: x * 1.5 + 0.5, x)


def some_go_on_beyond_their_wish(x: Any) -> Any:
    return lax.while_loop(lambda x: jnp.any(x < 9), lambda x: jnp.where(x < 12, x * 1.25 + 0.5, x), x)


def some_stop_before_their_wish(x: Any) -> Any:
    """The wish of a lane that has stopped may keep the others going, which read the count."""

    def body(state: Any) -> Any:
        step, x = state
        return step + 1, jnp.where(x < 5, x + 1.0, x)

    return lax.while_loop(lambda state: jnp.any(state[1] < 9) & (state[0] < 20), body, (0, x))


def lanes_begin_again(x: Any) -> Any:
    """A lane that stands still in one step does not in a later one."""

    def body(state: Any) -> Any:
        step, x = state
        return step + 1, jnp.where((x < 9) & (step % 3 != 1), x + 1.0, x)

    return lax.while_loop(lambda state: jnp.any(state[1] < 9), body, (0, x))[1]


def one_value_is_not_held(x: Any) -> Any:
    def body(state: Any) -> Any:
        x, y = state
        return jnp.where(x < 9, x * 1.5 + 0.5, x), y + x

    return lax.while_loop(lambda state: jnp.any(state[0] < 9), body, (x, x))


def rising_flag(x: Any) -> Any:
    def body(state: Any) -> Any:
        x, late = state
        new = x * jnp.where(jnp.any(late), 1.25, 2.0) + 0.5
        return jnp.where(x < 99, new, x), jnp.where(x < 99, late | (new > 9), late)

    return lax.while_loop(lambda state: jnp.any(state[0] < 99), body, (x, jnp.zeros(x.shape, bool)))[0]


def lanes_ask_each_other(x: Any) -> Any:
    def body(x: Any) -> Any:
        return jnp.where(x < 9, x * jnp.where(jnp.any(x < 2), 2.0, 1.25) + 0.5, x)

    return lax.while_loop(lambda x: jnp.any(x < 9), body, x)


def saved_for_those_that_have_ended(x: Any) -> Any:
    return saved_at_times(x, guarded=False)


def written_beside(x: Any) -> Any:
    """A lane that has nothing to write writes what stands beside that place."""

    def body(state: Any) -> Any:
        x, place, table = state
        due = x < 9
        table = put(table, place, x, due, read=(place + 1) % 4)
        return jnp.where(due, x * 1.5 + 0.5, x), jnp.where(due, (place + 1) % 4, place), table

    start = x, jnp.zeros(x.shape, int), jnp.zeros((*x.shape, 4), x.dtype) + jnp.arange(4)
    return lax.while_loop(lambda state: jnp.any(state[0] < 9), body, start)


def looked_up_in_other_lanes(x: Any) -> Any:
    place = jnp.argsort(x)

    def body(x: Any) -> Any:
        return jnp.where(x < 9, x + 0.5 + jnp.abs(x[place]), x)

    return lax.while_loop(lambda x: jnp.any(x < 9), body, x)


def lanes_read_their_neighbours(x: Any) -> Any:
    def body(x: Any) -> Any:
        return jnp.where(x < 9, x + 0.1 + jnp.abs(jnp.roll(x, 1)), x)

    return lax.while_loop(lambda x: jnp.any(x < 9), body, x)


TOGETHER = [
    the_count_is_read,
    lanes_go_on_with_the_others,
    some_go_on_beyond_their_wish,
    some_stop_before_their_wish,
    lanes_begin_again,
    one_value_is_not_held,
    rising_flag,
    lanes_ask_each_other,
    lanes_read_their_neighbours,
    saved_for_those_that_have_ended,
    written_beside,
    looked_up_in_other_lanes,
]


def drawn(seed: int, lanes: int = LANES) -> np.ndarray:
    """Lanes of which some are done at once, and some much later than others."""
    return np.random.default_rng(seed).uniform(0.0, [1.0, 4.0, 40.0][seed % 3], lanes).astype(np.float32)


def is_parted(fn: Fn, *args: Any) -> bool:
    closed = normalize(traced(fn, *args))
    return any(eqn.primitive is repeat_p and eqn.outvars[0].aval.shape for eqn in closed.jaxpr.eqns)


@pytest.mark.parametrize("fn", PARTED, ids=lambda fn: fn.__name__)
def test_each_lane_by_itself(fn: Fn) -> None:
    assert is_parted(fn, drawn(0))


@pytest.mark.parametrize("fn", TOGETHER, ids=lambda fn: fn.__name__)
def test_lanes_that_have_to_be_together(fn: Fn) -> None:
    assert not is_parted(fn, drawn(0))


@pytest.mark.parametrize("fn", [*PARTED, *TOGETHER], ids=lambda fn: fn.__name__)
def test_values(fn: Fn) -> None:
    x = drawn(0)
    closed = normalize(traced(fn, x))
    ours = jax.jit(lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x))
    for seed in range(6):
        expected = jax.tree.leaves(jax.jit(fn)(drawn(seed)))
        for found, value in zip(ours(drawn(seed)), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize("fn", PARTED, ids=lambda fn: fn.__name__)
def test_values_of_kernels(fn: Fn) -> None:
    for seed in range(3):
        found = jax.tree.leaves(fuse(fn, backend="interpret")(drawn(seed)))
        for ours, value in zip(found, jax.tree.leaves(jax.jit(fn)(drawn(seed))), strict=True):
            np.testing.assert_allclose(ours, value, rtol=1e-5)


@pytest.mark.parametrize("fn", [chosen_by_the_wish, all_are_done, falling_flag], ids=lambda fn: fn.__name__)
def test_lanes_along_two_axes(fn: Fn) -> None:
    x = drawn(1).reshape(5, 16)
    assert is_parted(fn, x)
    np.testing.assert_allclose(fuse(fn, backend="interpret")(x), jax.jit(fn)(x), rtol=1e-5)


def test_few_lanes_stay_together() -> None:
    assert not is_parted(chosen_by_the_wish, drawn(0, policy.COMMON.held_anyway))
    assert is_parted(chosen_by_the_wish, drawn(0, policy.COMMON.held_anyway + 1))


def test_programs_share_out_the_lanes() -> None:
    """Both loops of a flag that falls, and nothing between them: each program finds the last step by itself."""
    kernels = transpile(falling_flag, drawn(0, 1 << 12)).kernels
    assert len(kernels) == 2
    assert all(np.prod(kernel.grid) > 1 for kernel in kernels)


def test_lanes_that_write_into_tables_of_their_own() -> None:
    """What is written at a computed place of each lane's row leaves the lanes apart."""

    def fn(x: Any) -> Any:
        def body(state: Any) -> Any:
            step, x, made = state
            alive = x < 9
            new = x * 1.5 + 0.5
            return step + 1, jnp.where(alive, new, x), where(alive, made.at[:, step % 4].set(new), made)

        start = 0, x, jnp.zeros((*x.shape, 4))
        return lax.while_loop(lambda state: jnp.any(state[1] < 9), body, start)[1:]

    assert is_parted(fn, drawn(0))
    for ours, value in zip(fuse(fn, backend="interpret")(drawn(2)), jax.jit(fn)(drawn(2)), strict=True):
        np.testing.assert_allclose(ours, value, rtol=1e-5)
