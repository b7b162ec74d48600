"""Choices with much work on one side, as an `if`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.emit import reading
from tests.policies import planned_with

RNG = np.random.default_rng()
KEY = jax.random.PRNGKey(7)
X = RNG.standard_normal(5).astype(np.float32)


def fresh(key: Any, like: Any) -> Any:
    return jax.random.normal(key, like.shape) * jnp.exp(-like * like)


def stepping(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(x: Any, key: Any) -> Any:
        def body(carry: Any, i: Any) -> Any:
            x, key = carry
            key, sub = jax.random.split(key)
            x = step(x, (i, sub))
            return (x, key), x.sum()

        return lax.scan(body, (x, key), jnp.arange(9))

    return run


def sometimes(x: Any, now: Any) -> Any:
    return lax.cond(now[0] % 3 == 0, lambda: fresh(now[1], x), lambda: 0.5 * x)


def where(x: Any, now: Any) -> Any:
    return jnp.where(now[0] % 3 == 0, fresh(now[1], x), 0.5 * x)


def switched(x: Any, now: Any) -> Any:
    ways = [lambda: fresh(now[1], x), lambda: 0.5 * x, lambda: fresh(jax.random.fold_in(now[1], 3), 2 * x)]
    return lax.switch(now[0] % 4, ways)


def nested(x: Any, now: Any) -> Any:
    def inside() -> Any:
        return lax.cond(x.sum() > 0, lambda: fresh(now[1], x), lambda: jnp.tanh(x))

    return lax.cond(now[0] % 2 == 0, inside, lambda: -x)


def in_turns(x: Any, now: Any) -> Any:
    """The second choice on the predicate needs the first one's result."""
    first = lax.cond(now[0] % 2 == 0, lambda: fresh(now[1], x), lambda: x)
    total = first.sum()
    return lax.cond(now[0] % 2 == 0, lambda: fresh(jax.random.fold_in(now[1], 1), first * total), lambda: first)


def several(x: Any, now: Any) -> Any:
    """Two results of one branch, and a value that both sides need."""
    common = fresh(now[1], x)
    other = jax.random.fold_in(now[1], 1)
    first, second = lax.cond(
        now[0] > 4, lambda: (fresh(other, common), common.sum()), lambda: (common * x, jnp.float32(2))
    )
    return first * second


def with_a_loop(x: Any, now: Any) -> Any:
    """What a loop in one of the branches starts with is computed before it, and what follows it afterwards."""

    def climb() -> Any:
        start = fresh(now[1], x)
        end = lax.fori_loop(0, 3, lambda _, v: jnp.sin(v) + start, start)
        return fresh(jax.random.fold_in(now[1], 5), end)

    return lax.cond(now[0] % 2 == 0, climb, lambda: fresh(now[1], -x))


STEPS = (sometimes, where, switched, nested, in_turns, several, with_a_loop)
BRANCHES = {sometimes: 1, where: 1, switched: 2, nested: 2, in_turns: 2, several: 1}


def branches_of(function: ast.FunctionDef) -> list[ast.If]:
    return [node for node in ast.walk(function) if isinstance(node, ast.If)]


def only_kernel(run: Callable[..., Any], *args: Any) -> Any:
    program = j2t.transpile(run, *args)
    (kernel,) = program.kernels
    assert not program.leftovers
    return kernel


@pytest.fixture(params=["as it is", "all"])
def all_or_some(request: pytest.FixtureRequest) -> Iterator[None]:
    with planned_with(writing={"branch": 0} if request.param == "all" else {}):
        yield


@pytest.mark.usefixtures("all_or_some")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_values(step: Any) -> None:
    run = stepping(step)
    found, expected = j2t.fuse(run, backend="interpret", strict=True)(X, KEY), jax.jit(run)(X, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


@pytest.mark.usefixtures("all_or_some")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_gradients(step: Any) -> None:
    def loss(run: Any) -> Any:
        return jax.grad(lambda x: run(x, KEY)[1].sum())

    run = stepping(step)
    found, expected = loss(j2t.fuse(run, backend="interpret", strict=True))(X), loss(jax.jit(run))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("step", BRANCHES, ids=lambda step: step.__name__)
def test_long_sides_are_branches(step: Any) -> None:
    kernel = only_kernel(stepping(step), X, KEY)
    found = branches_of(reading.function_of(kernel))
    assert len(found) == BRANCHES[step], kernel.source


def test_what_a_side_needs_is_in_it() -> None:
    kernel = only_kernel(stepping(sometimes), X, KEY)
    (branch,) = branches_of(reading.function_of(kernel))
    then, otherwise = (ast.unparse(side) for side in (ast.Module(branch.body, []), ast.Module(branch.orelse, [])))
    assert then.count("_threefry") == 2 and "exp" in then, kernel.source  # the second half of the key, and the bits
    assert otherwise.count("=") == 1, kernel.source


def test_what_both_sides_need_is_before() -> None:
    kernel = only_kernel(stepping(several), X, KEY)
    function = reading.function_of(kernel)
    (branch,), body = branches_of(function), ast.unparse(function)
    assert body.index("libdevice.exp") < body.index(" if ")
    assert ast.unparse(branch).count("libdevice.exp") == 1, kernel.source


def test_what_no_step_changes_stays_before_the_loop() -> None:
    def run(x: Any, y: Any, key: Any) -> Any:
        def body(x: Any, i: Any) -> Any:
            long = jnp.exp(y) * fresh(key, y)
            return lax.cond(i % 3 == 0, lambda: long * x + jnp.tanh(x * long), lambda: -x), None

        return lax.scan(body, x, jnp.arange(9))[0]

    with planned_with(writing={"branch": 0}):
        source = ast.unparse(reading.function_of(only_kernel(run, X, X, KEY)))
    assert source.index("libdevice.exp") < source.index("for t") < source.index(" if ") < source.index("_tanh(")


def test_short_sides_are_chosen_between() -> None:
    def run(x: Any) -> Any:
        return lax.scan(lambda x, i: (lax.cond(i > 3, lambda: x * 2, lambda: x + 1), None), x, jnp.arange(9))[0]

    kernel = only_kernel(run, X)
    assert not branches_of(reading.function_of(kernel)) and "tl.where" in kernel.source


def test_a_predicate_for_each_lane_is_no_branch() -> None:
    def run(x: Any, key: Any) -> Any:
        return stepping(lambda x, now: lax.cond(x.sum() > 0, lambda: fresh(now[1], x), lambda: -x))(x, key)

    many = RNG.standard_normal((64, 5)).astype(np.float32)
    kernel = only_kernel(jax.vmap(run, (0, None)), many, KEY)
    assert not branches_of(reading.function_of(kernel)), kernel.source


def test_a_predicate_for_all_lanes_is_one() -> None:
    many = RNG.standard_normal((64, 5)).astype(np.float32)
    kernel = only_kernel(jax.vmap(stepping(sometimes), (0, None)), many, KEY)
    assert len(branches_of(reading.function_of(kernel))) == 1, kernel.source


def sides_of_two_types(which: Any, x: Any, where: Any) -> Any:
    def small() -> Any:
        return 0.25 * x - 0.5 * jnp.sin(x.min())

    def turned() -> Any:
        chosen = jnp.where(where, x, x)
        return x - 0.25 * jnp.tanh(x * chosen.sum())

    return lax.switch(which, (small, turned, lambda: x))


@pytest.mark.compile
@pytest.mark.parametrize("size", [1, 3])
def test_nothing_has_two_types_on_two_sides(size: int) -> None:
    """A name that both sides of an `if` assign is of one type for Triton, whether or not anybody reads it."""

    def run(x: Any, which: Any, where: Any) -> Any:
        return jax.grad(lambda x: sides_of_two_types(which, x, where).sum())(x)

    x, where = RNG.standard_normal((1, size)).astype(np.float32), RNG.random((2, 2 * size if size == 1 else 3)) > 0.5
    with planned_with(writing={"branch": 0}):
        for kernel in j2t.transpile(run, x, 1, where).kernels:
            compile_kernel(kernel, TARGETS["sm_90"])


@pytest.mark.compile
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_compiles(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    compile_kernel(only_kernel(stepping(step), X, KEY), TARGETS["sm_90"])
