"""What only moves keeps all its bits: -0.0, NaN of either sign, infinities and numbers that are nearly nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse

Move = Callable[..., Any]

I = np.int32(2)  # as in x[i]
PLACES = np.array([0, 3, 1, 1, 2, 0, 11, 7, 4], np.int32)


def special(dtype: Any) -> np.ndarray:
    """The least numbers are subnormal; those of bf16, XLA's CPU makes zeros of wherever it converts them to f32."""
    info = jnp.finfo(dtype)
    least = float(info.tiny if dtype == jnp.bfloat16 else info.smallest_subnormal)
    numbers = [-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf, least, -least, 3 * least, 1.0, -2.0, -np.nan]
    return np.array(numbers, np.float64).astype(dtype)


def arguments(dtype: Any) -> tuple[np.ndarray, ...]:
    x = special(dtype)
    return x, np.stack([x, x[::-1], np.roll(x, 5), np.roll(x, 7)]), I, PLACES


def stepped(step: Callable[..., Any]) -> Move:
    """A step that reads what is carried at a place that the loop counts, or is given."""
    return lambda x, m, i, places: lax.scan(step, x, places)


MOVES: Mapping[str, Move] = {
    "at known places": lambda x, m, i, places: (x[3], x[0], m[1, 2], m[3], x[2:9:3], m[:, 5]),
    "at computed places": lambda x, m, i, places: (x[i], x[i - 2], m[i], m[:, i], m[i, i]),
    "many places": lambda x, m, i, places: (x[places], m[:, places], jnp.take_along_axis(m, places[None, :1] % 4, 0)),
    "slices": lambda x, m, i, places: (lax.dynamic_slice(x, (i,), (3,)), lax.dynamic_update_slice(x, x[:3], (i,))),
    "rolled": lambda x, m, i, places: (jnp.roll(x, 3), jnp.roll(m, 1, 1), jnp.roll(x, i)),
    "reversed": lambda x, m, i, places: (x[::-1], m[::-1], m[:, ::-1], m[:, ::-2]),
    "padded": lambda x, m, i, places: (jnp.pad(x, 2, constant_values=-0.0), jnp.pad(x, 2, mode="reflect")),
    "joined": lambda x, m, i, places: (jnp.concatenate([x, x[::-1]]), jnp.stack([x, -x]), jnp.concatenate([m, m], 1)),
    "repeated": lambda x, m, i, places: (jnp.repeat(x, 2), jnp.tile(x, 2), jnp.broadcast_to(x, (3, 12))),
    "turned": lambda x, m, i, places: (m.T, m.reshape(-1), m.reshape(8, 6).T),
    "chosen": lambda x, m, i, places: (jnp.where(m == 1, m, m[0]), lax.select(i < x.shape[0], x, x[::-1]), jnp.tril(m)),
    "chosen by a number": lambda x, m, i, places: lax.switch(i, [lambda: x, lambda: -x, lambda: x[::-1]]),
    "negated": lambda x, m, i, places: (-x, jnp.negative(-x), x * -1, x / -1, jnp.abs(x), -m[i]),
    "written": lambda x, m, i, places: (
        x.at[i].set(m[0, 0]),
        m.at[i].set(x),
        m.at[:, i].set(m[:, 0]),
        x.at[2].set(-0.0),
    ),
    "written at many places": lambda x, m, i, places: (
        x.at[places[:3]].set(x[4:7]),
        m.at[:, places[:3]].set(m[:, 3:6]),
    ),
    "the diagonal": lambda x, m, i, places: (jnp.diag(m[:, :4]), jnp.fill_diagonal(m, -0.0, inplace=False)),
    "as bits": lambda x, m, i, places: (jnp.signbit(x), jnp.copysign(jnp.ones_like(x), x)),
    "carried": lambda x, m, i, places: lax.scan(lambda c, _: (c, c[1]), x, None, length=3),
    "an element of what is carried": stepped(lambda c, k: (jnp.roll(c, 1), (c[k], c[3], c[0]))),
    "carried, turned round": stepped(lambda c, k: (c[::-1], c)),
    "carried, negated": stepped(lambda c, k: (-c, (c, -c[k]))),
    "carried, written": stepped(lambda c, k: (c.at[k].set(-c[k]), c[k])),
    "carried, joined": stepped(lambda c, k: (jnp.concatenate([c[1:], c[:1]]), c[:2])),
    "of a carried matrix": lambda x, m, i, places: lax.scan(
        lambda c, k: (c[::-1], (c[k % 4, k], c[k % 4], c[:, k], c[2])), m, places
    ),
    "handed on": lambda x, m, i, places: lax.scan(lambda c, y: (y, c), x[0], x),
    "handed on twice": lambda x, m, i, places: lax.scan(lambda c, y: ((c[1], y), c[0]), (x[0], x[1]), x),
    "in a while loop": lambda x, m, i, places: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, -jnp.roll(s[1], 1)), (0, x)
    ),
    "in lanes that end": lambda x, m, i, places: jax.vmap(
        lambda y, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, -s[1]), (0, y))
    )(x, jnp.arange(12)),
    "in branches": lambda x, m, i, places: lax.cond(i > 1, lambda: (x, -x), lambda: (-x, x)),
    "in products with a one": lambda x, m, i, places: (x[:6] * 1, x[:6] / 1),
}
SORTS: Mapping[str, Move] = {  # for which numbers that are nearly nothing are zeros on a CPU, as nowhere else
    "sorted": lambda x, m, i, places: (jnp.sort(x), jnp.sort(-x), jnp.sort(m, 1), jnp.argsort(x)),
    "sorted along with others": lambda x, m, i, places: lax.sort((x, x[::-1]), num_keys=1),
    "partitioned": lambda x, m, i, places: (jnp.partition(x, 3), lax.top_k(x, 4), jnp.argpartition(x, 3)),
    "the larger ones": lambda x, m, i, places: (jnp.max(x[:2]), jnp.maximum(x[:2], x[1::-1]), jnp.min(x[:2])),
}


def bits(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.view(f"u{array.dtype.itemsize}") if jnp.issubdtype(array.dtype, jnp.floating) else array


def keeps(move: Move, args: Any, backend: Any) -> None:
    wanted = jax.tree.leaves(jax.jit(move)(*args))
    found = jax.tree.leaves(fuse(move, backend=backend, strict=True)(*args))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other), f"{one}\n{other}")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", MOVES)
def test_moved(name: str, dtype: str) -> None:
    keeps(MOVES[name], arguments(jnp.dtype(dtype)), "interpret")


@pytest.mark.parametrize(
    "name", ["at computed places", "negated", "carried, written", "of a carried matrix", "handed on"]
)
def test_moved_with_64_bits(name: str) -> None:
    with jax.enable_x64(True):
        keeps(MOVES[name], arguments(np.float64), "interpret")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SORTS)
def test_sorted(name: str, dtype: str) -> None:
    x, m, i, places = arguments(jnp.dtype(dtype))
    keeps(SORTS[name], (x[:6], m[:, [0, 1, 4, 5, 9, 10]], i, places), "interpret")


ON_THE_MACHINE = [
    *("at computed places", "many places", "negated", "written", "chosen", "as bits", "in lanes that end"),
    *("an element of what is carried", "carried, written", "of a carried matrix", "handed on"),
]


@pytest.mark.parametrize("name", ON_THE_MACHINE)
def test_moved_on_the_machine(name: str) -> None:
    keeps(MOVES[name], arguments(np.float32), "machine")


def test_an_element_of_a_carried_vector_that_is_minus_zero() -> None:
    def f(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (c * 2, 1 / c[1]), x, None, length=2)[1]

    x = np.array([-0.0, -0.0, 1.0], np.float32)
    for backend in ("interpret", "machine"):
        assert (np.asarray(fuse(f, backend=backend)(x)) == -np.inf).all()  # type: ignore[arg-type]


def test_steps_that_are_taken_one_by_one_in_a_tile() -> None:
    """Where the coefficients are too large to be combined, what a step reads is found among those of its tile."""
    a, b = np.full(64, 1e30, np.float32), np.full(64, -0.0, np.float32)

    def f(a: jax.Array, b: jax.Array) -> jax.Array:
        return 1 / lax.scan(lambda c, ab: (ab[0] * c + ab[1],) * 2, jnp.float32(-0.0), (a, b))[1]

    keeps(f, (a, b), "interpret")


def test_a_sine_of_16_bits_is_that_of_its_rounded_argument() -> None:
    """What exceeds 16 bits is infinite there, and the sine of that is no number."""
    x = np.array([65504, 20000, 300, 1.5, -65504], np.float16)
    for function in (jnp.sinc, lambda x: jnp.sin(x * 2), lambda x: jnp.cos(x * x), lambda x: jnp.tan(x + x)):
        wanted = np.asarray(jax.jit(function)(x), np.float32)
        found = np.asarray(fuse(function, backend="interpret")(x), np.float32)
        np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_reduced_precision_in_loops() -> None:
    """NaN stays what it is; XLA's CPU forgets it where no digit of a mantissa is left, but in loops only."""

    def f(x: jax.Array) -> Any:
        def step(c: jax.Array, y: jax.Array) -> Any:
            return lax.reduce_precision(c * 2, 8, 3), (lax.reduce_precision(y, 5, 10), c)

        return lax.scan(step, x, jnp.stack([x, -x, x / 3]))

    x = np.array([-0.0, 1.4, np.nan, np.inf, -np.inf, 3e38, 7e4, -1e-7], np.float32)
    for one, other in zip(jax.tree.leaves(fuse(f, backend="interpret")(x)), jax.tree.leaves(jax.jit(f)(x))):
        np.testing.assert_array_equal(one, other)

    def without_mantissa(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (lax.reduce_precision(c, 8, 0), None), x, None, length=2)[0]

    nothing = fuse(without_mantissa, backend="interpret")
    assert np.isnan(np.asarray(nothing(x))[2])


SUMS: Mapping[str, Callable[..., Any]] = {
    "two": lambda x: 1 / x[0, :2].sum(),
    "three": lambda x: 1 / x[0, :3].sum(),
    "rows": lambda x: 1 / x.sum(0),
    "columns": lambda x: 1 / -x.sum(1),
    "all": lambda x: jnp.arctan2(x.sum(), -1.0),
    "a mean": lambda x: jnp.signbit(x.mean(1)),
    "of what is doubled": lambda x: lax.rsqrt(jnp.sum(x * 2, 0)),
    "running": lambda x: 1 / jnp.cumsum(x, 0),
    "running, short": lambda x: jnp.signbit(jnp.cumsum(x[:3], 0)),
    "running, from the end": lambda x: 1 / lax.cumsum(x, 1, reverse=True),
    "in a loop": lambda x: lax.scan(lambda c, y: (c * 0.5, 1 / jnp.sum(y)), x[0], x),
    "of one": lambda x: 1 / x[:1].sum(0),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_zeros_is_the_zero_that_it_begins_with(name: str) -> None:
    x = np.full((16, 4), -0.0, np.float32)
    keeps(SUMS[name], (x,), "interpret")
    keeps(SUMS[name], (-x,), "interpret")


def test_a_sum_of_zeros_on_the_machine() -> None:
    keeps(lambda x: (1 / x.sum(1), 1 / jnp.cumsum(x, 1)), (np.full((3, 8), -0.0, np.float32),), "machine")
