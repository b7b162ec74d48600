"""What loops read early: where, how many steps before, and that the values are those of JAX."""

from __future__ import annotations

import ast
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit.ahead import Early, reading_ahead
from jaxpr2triton.emit.layout import text_of
from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.walks import Fresh, names_in
from jaxpr2triton.ir.kernel import Kernel
from tests.emit import reading

RNG = np.random.default_rng(0)


def running(start: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = jnp.sin(state) * 0.5 + x
        return state, state * 2

    return lax.scan(step, start, xs)


def backwards(start: Any, xs: Any) -> Any:
    return lax.scan(lambda state, x: (jnp.sin(state) + x, state), start, xs, reverse=True)


def neighbours(start: Any, xs: Any) -> Any:
    """One array is read at two places of each step."""
    both = xs[:-1], xs[1:]
    return lax.scan(lambda state, x: (jnp.sin(state) + x[0] * x[1], state), start, both)


def twice(start: Any, xs: Any) -> Any:
    """What the second loop reads is what the first one keeps."""
    _, states = running(start, xs)
    return lax.scan(lambda state, x: (jnp.cos(state) - x, state), start, states, reverse=True)


def chosen(start: Any, xs: Any) -> Any:
    """The place that is read depends on what is carried."""

    def step(carry: Any, x: Any) -> Any:
        state, at = carry
        at = (at + 1 + (state[0] > 0)) % len(xs)
        return (jnp.sin(state) + x + xs[at], at), state

    return lax.scan(step, (start, jnp.int32(0)), xs)


def nested(start: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        return lax.scan(lambda s, y: (jnp.sin(s) + y, None), state, xs)[0] * x, state

    return lax.scan(step, start, xs)


PROGRAMS = [running, backwards, neighbours, twice, chosen, nested]


def kernels(fn: Any, *args: Any) -> list[Kernel]:
    return list(j2t.transpile(fn, *args).kernels)


def loops(kernel: Kernel) -> list[ast.For]:
    return [node for node in ast.walk(reading.function_of(kernel)) if isinstance(node, ast.For)]


@pytest.mark.parametrize("steps", [2, 3, 7, 8, 9, 17])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_values(fn: Any, steps: int) -> None:
    start = RNG.normal(size=(5,)).astype(np.float32)
    xs = RNG.normal(size=(steps, 5)).astype(np.float32)
    for backend in ("interpret", "machine"):
        found = j2t.fuse(fn, backend=backend, strict=True)(start, xs)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, jax.jit(fn)(start, xs))


@pytest.mark.parametrize("fn", PROGRAMS[:4])
def test_gradients(fn: Any) -> None:
    start, xs = RNG.normal(size=(5,)).astype(np.float32), RNG.normal(size=(9, 5)).astype(np.float32)

    def loss(run: Any) -> Any:
        return lambda *args: sum(jnp.sum(jnp.tanh(leaf)) for leaf in jax.tree.leaves(run(*args)))

    found = jax.grad(loss(j2t.fuse(fn, backend="interpret")), (0, 1))(start, xs)
    for one, other in zip(found, jax.grad(loss(fn), (0, 1))(start, xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", [running, backwards, neighbours, twice])
def test_steps_read_what_later_ones_want(fn: Any) -> None:
    (kernel,) = kernels(fn, np.zeros(8, np.float32), np.zeros((100, 8), np.float32))
    rounds = [loop for loop in loops(kernel) if "static" not in ast.unparse(loop.iter)]
    for loop in rounds:
        end, ahead = re.findall(r"range\(0, (\d+), ([48])\)", ast.unparse(loop.iter))[0]
        left = 100 - (fn is neighbours) - int(end)
        loads = [ast.unparse(call) for call in reading.calls(loop, "load")]
        masks = [re.search(rf"mask=t\w*_round < {int(end) - int(ahead)}", load) is not None for load in loads]
        read = len(loads) // int(ahead)
        assert loads and masks == ([False] * left + [True] * (int(ahead) - left)) * read, loads
    assert rounds


def test_places_that_a_step_computes_are_read_in_it() -> None:
    (kernel,) = kernels(chosen, np.zeros(8, np.float32), np.zeros((100, 8), np.float32))
    steps = [loop for loop in loops(kernel) if "static" in ast.unparse(loop.iter)]
    assert steps and "xs_next" in kernel.source
    for step in steps:
        (load,) = reading.calls(step, "load")
        assert "place" in ast.unparse(load) or "at" in ast.unparse(load)


def test_a_loop_has_room_for_what_another_one_keeps() -> None:
    """The matrices of one are not there while the other one runs."""

    def cells(w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(sum(jnp.split(x @ w, 3, axis=1)) * sum(jnp.split(h @ u, 3, axis=1)))
            return h, h

        return lax.scan(step, xs[0], xs)[1].sum()

    shapes = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((32, 96), (32, 96), (64, 8, 32)))
    source = j2t.transpile(jax.grad(cells, (0, 1, 2)), *shapes).kernels[0].source
    forth, back = source.split("tl.debug_barrier()")
    assert "_next" in forth and "_next" in back


def test_many_warps_wait_for_nothing() -> None:
    """Where some compute while others wait, nothing is read ahead."""
    (kernel,) = kernels(running, np.zeros(10**6, np.float32), np.zeros((100, 10**6), np.float32))
    assert "_next" not in kernel.source


def early(*step: str) -> str:
    body = reading.body_of("\n    ".join(["for t in range(100):", *step]))
    names = Names(name.id for name in names_in(*body))
    return "\n".join(text_of(reading_ahead(body, lambda reads, loop: Early(8, 8), Fresh.beside(body, names)), ""))


def test_what_a_loop_writes_is_read_when_it_is_there() -> None:
    step = ["x = tl.load(x_ptr + t)", "tl.store(x_ptr + t + 1, x)"]
    assert early(*step) == text_of_loop(*step)
    text = early(step[0], "tl.store(y_ptr + t, x)")
    assert "tl.load(x_ptr + (t_round + 11)),\n" in text and "tl.load(x_ptr + (t_round + 12), mask=t_round < 88)" in text


def text_of_loop(*step: str) -> str:
    return "\n".join(["for t in range(100):", *(f"    {line}" for line in step)])


def test_a_variable_that_is_wanted_before_it_is_read_keeps_its_value() -> None:
    """`x` is carried: its new value has another name until the old one is not wanted any more."""
    text = early("y = x * 2", "x = tl.load(x_ptr + t)", "tl.store(y_ptr + t, y)")
    assert "    x_2 = x_now[step]\n" in text and "    y = x * 2\n        x = x_2\n" in text


def test_only_what_follows_from_the_step_is_read_early() -> None:
    assert "_next" not in early("x = tl.load(x_ptr + place)", "place = x + t")
    assert "_next" not in early("x = tl.load(x_ptr + 3)")
    assert "tl.load(x_ptr + (84 - t_round) * 4, mask=t_round < 88)" in early("s = 99 - t", "x = tl.load(x_ptr + s * 4)")


def test_masks_hold_as_well() -> None:
    text = early("x = tl.load(x_ptr + t * 5 + k, mask=k_ok, other=0.0)")
    assert "tl.load(x_ptr + (t_round + 12) * 5 + k, mask=(t_round < 88) & k_ok, other=0.0)" in text
    assert "tl.load(x_ptr + 35 + k, mask=k_ok, other=0.0)" in text
