"""What meets at computed places in the step of a loop, of more updates than each place can look through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from examples.algorithms.__main__ import algorithms, planned
from jaxpr2triton import policy
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import accumulate
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.cycles.model import cycles_of
from tests.normalize.passing import same_bits
from tests.policies import planned_with
from tests.policy.programs import ranks

PLACES, UPDATES, ROWS = 33, 100, 5


@pytest.fixture(autouse=True)
def nothing_is_looked_through() -> Iterator[None]:
    with mock.patch.object(policy, "COMMON", dataclasses.replace(policy.COMMON, scattered_in_a_step=0)):
        yield


def in_steps(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, u, i: lax.scan(lambda c, _: (body(c, u, i), None), x, None, length=3)[0]


def check(function: Callable[..., Any], args: tuple[Any, ...], backend: str = "interpret", rtol: float = 1e-5) -> None:
    """In kernels, with sums in memory, and as `jax.jit` has it; in one program with its gradient or not."""
    program = j2t.transpile(function, *args, contractions="triton")
    assert not program.leftovers and any("tl.atomic" in kernel.source for kernel in program.kernels)
    found, wanted = j2t.fuse(function, backend=backend, contractions="triton")(*args), jax.jit(function)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert ours.dtype == theirs.dtype
        largest = np.abs(np.asarray(theirs, np.float64)).max()
        np.testing.assert_allclose(*(np.asarray(x, np.float64) for x in (ours, theirs)), rtol=0, atol=rtol * largest)


def of(dtype: str, *shape: int, seed: int = 0) -> jax.Array:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 9, shape) if "int" in dtype else rng.normal(size=shape) * 3
    return jnp.asarray(numbers).astype(dtype)


def indices(count: int = UPDATES, places: int = PLACES) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).integers(-3, places + 3, count).astype(np.int32))


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("how", ["add", "max", "min", "set", "subtract"])
def test_what_meets(how: str, dtype: str, mode: str) -> None:
    def body(c: Any, u: Any, i: Any) -> Any:
        return getattr(c.at[i], how)(u, mode=mode)

    allowed = 2e-2 if dtype == "bfloat16" else 1e-6
    check(in_steps(body), (of(dtype, PLACES), of(dtype, UPDATES, seed=2), indices()), rtol=allowed)


@pytest.mark.parametrize("how", ["add", "max", "min"])
def test_zeros_infinities_and_nan(how: str) -> None:
    x = jnp.array([1.0, -0.0, np.nan, np.inf, -np.inf, 0.0, 2.0, -1.0])
    u = jnp.array([np.nan, 0.0, 1.0, np.nan, 3.0, -0.0, 5.0, -np.nan])
    function = in_steps(lambda c, u, i: getattr(c.at[i], how)(u))
    found = np.asarray(j2t.fuse(function, backend="interpret")(x, u, jnp.arange(8)))
    wanted = np.asarray(jax.jit(function)(x, u, jnp.arange(8)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert same_bits(np.where(np.isnan(found), np.float32(0), found), np.where(np.isnan(found), np.float32(0), wanted))


def rows(c: Any, u: Any, i: Any) -> Any:
    return c.at[i].add(u * 0.1 + c[i] * 0.01)


def two_places(c: Any, u: Any, i: Any) -> Any:
    return c.at[i % 9, i[::-1] % ROWS].add(u[:, 0] * jnp.cos(c[0, 0]))


def windows(c: Any, u: Any, i: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    return lax.scatter_add(c[:, 0], i[:, None], u[:, :3], numbers)[:, None] * jnp.ones(ROWS)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("body", [rows, two_places, windows])
def test_rows_and_windows(body: Callable[..., Any], backend: str) -> None:
    args = of("float32", PLACES, ROWS), of("float32", 40, ROWS, seed=2), indices(40)
    check(in_steps(body), args, backend)


@pytest.mark.parametrize("body", [rows, two_places])
def test_lanes_and_gradients(body: Callable[..., Any]) -> None:
    args = of("float32", PLACES, ROWS), of("float32", 40, ROWS, seed=2), indices(40)
    function = in_steps(body)
    check(jax.grad(lambda *args: (function(*args) ** 2).sum(), (0, 1)), args)
    check(jax.vmap(function, (0, None, 0)), (jnp.stack([args[0]] * 3), args[1], jnp.stack([args[2]] * 3)))
    fused = j2t.fuse(function, backend="interpret", contractions="triton")

    def gradient(of: Callable[..., Any]) -> Any:
        return jax.grad(lambda *args: (of(*args) ** 2).sum())(*args)

    found, wanted = gradient(fused), gradient(function)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_it_begins_anew_in_each_step() -> None:
    """A buffer that begins the same in all steps is filled in each of them."""
    args = of("float32", PLACES), of("float32", UPDATES, seed=2), indices()
    check(in_steps(lambda c, u, i: 0.5 * jnp.zeros_like(c).at[i].add(u * c[i])), args, "machine")


def turned(c: Any, u: Any, i: Any) -> Any:
    """Rows that are read the other way round, and shifted."""
    s = jnp.zeros_like(c).at[i].add(u * c[i])
    return jnp.sin(s[:, ::-1] + s) + 0.1 * jnp.roll(s, 1, 1)


def told_twice(c: Any, u: Any, i: Any) -> Any:
    s = jnp.zeros((PLACES, ROWS)).at[i].add(u * c[i, :ROWS])
    return jnp.repeat(jnp.sin(s), 2, 1) + 0.1 * jnp.tile(s, (1, 2)) * jnp.tanh(c.sum())


def multiplied(c: Any, u: Any, i: Any) -> Any:
    s = jnp.zeros_like(c).at[i].add(u * c[i])
    return jnp.tanh(0.01 * s @ s.T @ c)


def one_in_another(c: Any, u: Any, i: Any) -> Any:
    s = lax.fori_loop(0, 3, lambda _, s: s.at[i].add(u * 0.1 * s[i[::-1]]), c)
    return s / (1 + jnp.abs(s).max())


@pytest.mark.parametrize("body", [turned, told_twice, multiplied, one_in_another])
def test_each_update_is_added_once(body: Callable[..., Any]) -> None:
    """However the sums are read: along an axis of which each is read more than once, too."""
    args = of("float32", PLACES, 2 * ROWS if body is told_twice else ROWS), of("float32", 40, ROWS, seed=2), indices(40)
    check(in_steps(body), args)


def test_what_is_added_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulate, "_is_met_once", lambda place: True)
    args = of("float32", PLACES, 2 * ROWS), of("float32", 40, ROWS, seed=2), indices(40)

    def repeated(c: Any, u: Any, i: Any) -> Any:
        return jnp.tile(jnp.zeros((PLACES, ROWS)).at[i].add(u * c[i, :ROWS]), (1, 2))

    with pytest.raises(CompilerBug, match="adds 400 times, and there are 200 updates"):
        j2t.transpile(in_steps(repeated), *args)


def test_at_a_realistic_size() -> None:
    """The loop is one program's, and what is added up before it is many programs': it would take one 16 ms."""
    edges = jax.ShapeDtypeStruct((16384,), jnp.int32)
    with planned_with(loops={"longer": 10.0}):  # by an estimate XLA would take less time for it
        program = j2t.transpile(ranks, jax.ShapeDtypeStruct((16384,), jnp.float32), edges, edges)
    assert not program.leftovers
    first, loop = program.kernels
    assert first.grid[0] >= 100 and "tl.gather" in loop.source and "tl.atomic_add" in loop.source
    assert not any(axis.size == 16384 and axis.block < 1024 for axis in loop.axes)


def test_too_many_updates_for_one_program_stay_with_xla() -> None:
    updates = 1 << 17
    shapes = (jax.ShapeDtypeStruct((2048,), jnp.float32), jax.ShapeDtypeStruct((updates,), jnp.float32))
    function = in_steps(lambda c, u, i: c.at[i].add(u * c[i]))
    (left,) = j2t.transpile(function, *shapes, jax.ShapeDtypeStruct((updates,), jnp.int32)).leftovers
    assert left.primitive == "scan" and "would look through 131,072 updates" in str(left.why)


def test_registers_have_room_for_what_meets() -> None:
    """However long the additions take, so that any number of warps would do."""
    (kernel,) = planned(algorithms()["bellman_ford"])["value"].kernels
    assert cycles_of(kernel, TARGETS["sm_90"]).spills == 0
