"""Reductions by functions of one's own: a monoid, written down once, is split, looped over and carried as a sum is.

A new one is a row of `MONOIDS` here, and nothing in the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.policies import planned_with

BEHIND = 2**31 - 1  # no place


@dataclass(frozen=True)
class Monoid:
    """Elements of several parts: what they are made of, how two are combined, which one changes nothing, the result."""

    lift: Callable[..., Sequence[Any]]  # arrays, which dimension is reduced → parts
    merge: Callable[[Any, Any], Any]
    empty: tuple[Any, ...]
    end: Callable[..., Any] = lambda *parts: parts
    operands: int = 1
    in_order: bool = False  # the order of elements matters

    def __call__(self, *arrays: Any, axes: Sequence[int] = (-1,)) -> Any:
        dims = tuple(d % arrays[0].ndim for d in axes)
        return self.end(*lax.reduce(tuple(self.lift(dims, *arrays)), self.empty, self.merge, dims))


def _places(dims: Sequence[int], x: Any) -> Any:
    return lax.broadcasted_iota(jnp.int32, x.shape, dims[-1])


def _before(v: Any, i: Any, w: Any, j: Any) -> Any:
    return (v > w) | ((v == w) & (i < j))


def _two_largest(a: Any, b: Any) -> Any:
    mine = _before(a[0], a[1], b[0], b[1])
    best, place = jnp.where(mine, a[0], b[0]), jnp.where(mine, a[1], b[1])
    rest, rest_place = jnp.where(mine, b[0], a[0]), jnp.where(mine, b[1], a[1])
    other, other_place = jnp.where(mine, a[2], b[2]), jnp.where(mine, a[3], b[3])
    second = _before(rest, rest_place, other, other_place)
    return best, place, jnp.where(second, rest, other), jnp.where(second, rest_place, other_place)


def _joint_moments(a: Any, b: Any) -> Any:
    weight, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / jnp.where(weight == 0, 1, weight)
    return weight, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _log_of_sum(a: Any, b: Any) -> Any:
    top = jnp.maximum(a[0], b[0])
    safe = jnp.where(top == -jnp.inf, 0, top)
    return top, a[1] * jnp.exp(a[0] - safe) + b[1] * jnp.exp(b[0] - safe)


def _first_largest(a: Any, b: Any) -> Any:
    return tuple(jnp.where(a[1] >= b[1], one, other) for one, other in zip(a, b))


F, I = np.float32, np.int32
MONOIDS = {
    "two_largest": Monoid(
        lambda dims, x: (x, _places(dims, x), jnp.full_like(x, -jnp.inf), jnp.full(x.shape, BEHIND, jnp.int32)),
        _two_largest,
        (F(-np.inf), I(BEHIND), F(-np.inf), I(BEHIND)),
    ),
    "moments": Monoid(
        lambda dims, w, x: (w, x, jnp.zeros_like(x)),
        _joint_moments,
        (F(0), F(0), F(0)),
        lambda weight, mean, square: (mean, square / weight),
        operands=2,
    ),
    "log_of_sum": Monoid(
        lambda dims, x: (x, jnp.ones_like(x)), _log_of_sum, (F(-np.inf), F(0)), lambda top, total: top + jnp.log(total)
    ),
    "root_of_squares": Monoid(lambda dims, x: (x,), lambda a, b: (jnp.sqrt(a[0] * a[0] + b[0] * b[0]),), (F(0),)),
    "first_largest": Monoid(lambda dims, w, x: (w, x), _first_largest, (F(0), F(-np.inf)), operands=2, in_order=True),
}
BACKENDS = ("interpret", "machine")


def arrays(monoid: Monoid, *shape: int, seed: int = 0) -> list[Any]:
    """Of few values, so that many are equal; weights are positive."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(shape) * 4).astype(np.float32) / 2
    return [jnp.asarray(rng.random(shape), jnp.float32), jnp.asarray(x)][-monoid.operands :]


def compared(fn: Callable[..., Any], *args: Any, backend: str = "interpret") -> j2t.Program:
    made = j2t.transpile(fn, *args)
    assert not made.leftovers
    found, expected = j2t.fuse(fn, backend=backend, strict=True)(*args), jax.jit(fn)(*args)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5), found, expected)
    return made


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MONOIDS)
def test_lanes(name: str, backend: str) -> None:
    (kernel,) = compared(MONOIDS[name], *arrays(MONOIDS[name], 5, 100), backend=backend).kernels
    assert MONOIDS[name].in_order != ("tl.reduce(" in kernel.source and "_combine" in kernel.source)


def test_lanes_round_alike() -> None:
    """Where products and sums may be rounded at once, the element that comes first is always the left one."""
    rounded = {name for name, each in MONOIDS.items() if not each.in_order} - {"two_largest"}
    for name in sorted(rounded | {"two_largest"}):
        (kernel,) = j2t.transpile(MONOIDS[name], *arrays(MONOIDS[name], 5, 100)).kernels
        parts = len(MONOIDS[name].empty) + (name in rounded)
        assert f"r{parts - 1}):" in kernel.source and f"r{parts}" not in kernel.source


@pytest.mark.parametrize("name", MONOIDS)
def test_programs_share_the_elements(name: str) -> None:
    made = compared(MONOIDS[name], *arrays(MONOIDS[name], 2, 30000))
    first = made.kernels[0]
    assert np.prod(first.grid) > 4 * 2
    if not MONOIDS[name].in_order:
        assert len(made.kernels) == 2 and first.bytes_read == sum(x.nbytes for x in arrays(MONOIDS[name], 2, 30000))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name, each in MONOIDS.items() if not each.in_order])
def test_a_loop_goes_through_the_elements(name: str, backend: str) -> None:
    with planned_with(blocks={"resident": 64}, cuts={"small": 1 << 30}):
        (kernel,) = compared(MONOIDS[name], *arrays(MONOIDS[name], 3, 1000), backend=backend).kernels
    assert "_acc" in kernel.source and " in range(" in kernel.source


@pytest.mark.parametrize("name", MONOIDS)
def test_few_elements_are_variables(name: str) -> None:
    (kernel,) = compared(MONOIDS[name], *arrays(MONOIDS[name], 300, 3)).kernels
    assert "tl.reduce(" not in kernel.source


@pytest.mark.parametrize("name", MONOIDS)
def test_rows_of_columns(name: str) -> None:
    compared(lambda *args: MONOIDS[name](*args, axes=(0,)), *arrays(MONOIDS[name], 400, 33))


@pytest.mark.parametrize("name", ["moments", "root_of_squares", "first_largest", "log_of_sum"])
def test_several_dimensions(name: str) -> None:
    compared(lambda *args: MONOIDS[name](*args, axes=(0, 2)), *arrays(MONOIDS[name], 6, 5, 40))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MONOIDS)
def test_in_the_steps_of_a_loop(name: str, backend: str) -> None:
    """A step combines its lanes, and carries on with what that is."""
    monoid = MONOIDS[name]

    def fn(start: Any, *args: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            values = [*row[:-1], row[-1] + state]
            found = jax.tree.leaves(monoid(*values))
            return 0.5 * state + 0.1 * found[0], found[-1]

        return lax.scan(step, start, args)

    args = arrays(monoid, 7, 20)
    (kernel,) = compared(fn, args[-1][0], *args, backend=backend).kernels
    assert "for t in range(7)" in kernel.source


@pytest.mark.parametrize("name", ["moments", "root_of_squares", "log_of_sum"])
def test_gradients(name: str) -> None:
    """All parts have tangents: JAX's own derivative of such a reduction knows no others."""
    lift = MONOIDS[name].lift
    monoid = replace(MONOIDS[name], lift=lambda dims, *args: [each + 0 * args[-1] for each in lift(dims, *args)])
    args = [jnp.abs(each) + 0.25 for each in arrays(monoid, 3, 17)]

    def loss(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: sum((each**2).sum() for each in jax.tree.leaves(f(*args)))

    every = tuple(range(len(args)))
    expected = jax.grad(loss(monoid), every)(*args)
    fused = j2t.fuse(monoid, backend="interpret")
    for found in (
        jax.grad(loss(fused), every)(*args),
        j2t.fuse(jax.grad(loss(monoid), every), backend="interpret")(*args),
    ):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_vmap_and_half_precision() -> None:
    x = jnp.asarray(np.random.default_rng(1).standard_normal((4, 6, 50)), jnp.bfloat16)

    def root(x: Any) -> Any:
        return lax.reduce(x, jnp.bfloat16(0), lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), (1,))

    compared(jax.vmap(root), x)


@pytest.mark.parametrize(
    ("start", "function", "says"),
    [
        (1.0, lambda a, b: jnp.sqrt(a * a + b * b), "change what they are combined with"),
        (0.0, lambda a, b: a + b * jnp.where(a == 0, 1, 0.5), "not associative"),
        (0.0, lambda a, b: lax.cond(a > b, jnp.abs, lambda each: each, a) + b, "no operation on single numbers"),
    ],
)
def test_what_is_no_monoid_stays_with_xla(start: float, function: Callable[..., Any], says: str) -> None:
    def fn(x: Any) -> Any:
        return lax.reduce(x, np.float32(start), function, (1,)) * 2

    x = arrays(MONOIDS["root_of_squares"], 4, 8)[0]
    made = j2t.transpile(fn, x)
    assert says in made.leftovers[0].why
    np.testing.assert_allclose(j2t.fuse(fn, backend="interpret")(x), jax.jit(fn)(x), rtol=1e-6)


def raw_moments(w: Any, x: Any, axes: Sequence[int] = (-1,)) -> Any:
    """Weighted, of three plain sums."""
    total, first, second = w.sum(axes), (w * x).sum(axes), (w * x * x).sum(axes)
    return first / total, second / total - (first / total) ** 2


def largest_and_place(x: Any, axes: Sequence[int] = (-1,)) -> Any:
    return x.max(axes), jnp.argmax(x, *axes)


ALL: dict[str, Any] = {**MONOIDS, "raw_moments": raw_moments, "largest_and_place": largest_and_place}
OF_TWO = ("moments", "raw_moments")
del ALL["first_largest"]  # in order


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("many", [False, True])
def test_elements_are_read_once(name: str, many: bool, axis: int) -> None:
    shape = (4096, 4096) if many else (3, 1000000) if axis else (1000000, 3)
    operands = [jax.ShapeDtypeStruct(shape, np.float32)] * (1 + (name in OF_TWO))
    made = j2t.transpile(lambda *args: ALL[name](*args, axes=(axis,)), *operands)
    first, *others = made.kernels
    assert not made.leftovers and len(others) == (not many)
    assert first.bytes_read == len(operands) * 4 * math.prod(shape) and math.prod(first.grid) >= 128


@pytest.mark.parametrize("name", ALL)
def test_lanes_of_steps_are_read_once(name: str) -> None:
    rows = jax.ShapeDtypeStruct((30, 4096), np.float32)
    made = j2t.transpile(of_steps(name), jax.ShapeDtypeStruct((4096,), np.float32), *[rows] * (1 + (name in OF_TWO)))
    first, _ = made.kernels
    assert not made.leftovers and math.prod(first.grid) == 128 and first.bytes_written < 4 * 30 * 4096 // 4


def of_steps(name: str) -> Callable[..., Any]:
    """A loop that carries nothing of what its lanes come to."""

    def fn(start: Any, *args: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            return 0.5 * jnp.tanh(state) + row[-1], ALL[name](*row[:-1], row[-1] + state)

        return lax.scan(step, start, args)

    return fn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ALL)
def test_programs_share_the_lanes_of_steps_that_carry_nothing_of_them(name: str, backend: str) -> None:
    """Each program has a part of them, and what it is of is not written."""
    args = arrays(MONOIDS["moments"], 3, 1024)[-2 if name in OF_TWO else -1 :]
    made = compared(of_steps(name), args[-1][0], *args, backend=backend)
    assert len(made.kernels) == 2 and made.kernels[0].grid[0] > 4
    assert made.kernels[0].bytes_written < 4 * 1024 + 4 * 3 * 1024


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int32, bool])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("find", [jnp.argmax, jnp.argmin])
def test_places_in_parts(find: Callable[..., Any], axis: int, dtype: Any) -> None:
    """The first one of equal elements, and of NaNs; one kernel reads the elements once."""
    x = np.round(np.random.default_rng(3).standard_normal((2, 40000)) * 2).astype(dtype)
    if dtype == np.float32:
        x[1, [39999, 12345, 30001]] = np.nan
    x = x if axis == 1 else x.T
    first, _ = compared(lambda x: find(x, axis), jnp.asarray(x)).kernels
    assert first.bytes_read == x.nbytes


@pytest.mark.parametrize("in_loop", [False, True])
def test_gradients_of_what_is_in_parts(in_loop: bool) -> None:
    fn = of_steps("raw_moments") if in_loop else raw_moments

    def loss(*args: Any) -> Any:
        return sum(jnp.sum(jnp.sin(each)) for each in jax.tree.leaves(fn(*args)))

    w, x = arrays(MONOIDS["moments"], 2, 1024 if in_loop else 30000)
    args = [*([x[0]] if in_loop else []), w + 0.5, x]
    every = tuple(range(len(args)))
    found = j2t.fuse(jax.grad(loss, every), backend="interpret")(*args)
    for one, other in zip(found, jax.grad(loss, every)(*args), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5 * np.abs(other).max())
