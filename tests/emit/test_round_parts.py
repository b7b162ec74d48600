"""What no step of a round waits for is computed for all of them first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit.layout import text_of
from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.round_parts import Parted, parted
from jaxpr2triton.emit.walks import Fresh, stored_in
from tests.emit.reading import body_of
from tests.policies import planned_with

RNG = np.random.default_rng(5)
FAR = {"under_way": 1 << 14}  # cycles: steps are read ahead of in rounds, however long they take


def parts_of(text: str, outside: tuple[str, ...] = ()) -> Parted | None:
    body = body_of(text.strip())
    stored = stored_in(*body) + Counter(outside)
    return parted(body, {"x", "y", "t"}, Fresh(Names([*stored, "x", "y", "t"]), stored))


STEP = """
peak = tl.reduce(x, 0, _maximum)
shifted = x - peak
if t < last:
    total = tl.reduce(tl.exp(shifted), 0, _add)
    term = y - tl.log(total)
    c = f(c, term)
"""


def test_what_leads_to_meetings_and_follows_from_them_is_early() -> None:
    found = parts_of(STEP, ("c",))
    assert found is not None
    assert text_of(found.early, "")[-1] == "term = y - tl.log(total)"
    assert text_of(found.rest, "") == ["if t < last:", "    c = f(c, term)"]
    assert list(found.handed) == ["term"]


@pytest.mark.parametrize(
    "text",
    [
        "a = tl.exp(x)\nc = f(c, a)",  # no lanes meet
        "a = tl.reduce(c + x, 0, _add)\nc = f(c, a)",  # of what is carried
        "a = tl.reduce(tl.load(p_ptr + x), 0, _add)\nc = f(c, a)",  # read where the step reads it
        "a = tl.reduce(x, 0, _add)\nb = a * 2\nd = a + y\nc = f(c, a, b, d, y)",  # more than it is made of
        "a = tl.reduce(x, 0, _add)\nc = f(c, a, x)",  # what it is made of is wanted all the same
        "for i in range(3):\n    a = tl.reduce(x, 0, _add)\n    c = f(c, a)",
        "x = x + 1\na = tl.reduce(x, 0, _add)\nc = f(c, a)",  # not what was given any more
    ],
)
def test_what_stays_together(text: str) -> None:
    assert parts_of(text, ("c",)) is None


def test_what_has_a_value_before_the_loop_stays() -> None:
    assert parts_of("if t < last:\n    a = tl.reduce(x, 0, _add)", ("a",)) is None
    assert parts_of("if t < last:\n    a = tl.reduce(x, 0, _add)\n    c = f(c, a)", ("a", "c")) is None


def test_what_the_rest_computes_of_it_is_early_too() -> None:
    found = parts_of("d = x - tl.reduce(x, 0, _maximum)\ns = tl.log(tl.reduce(d, 0, _add))\nc = c + (d - s)", ("c",))
    assert found is not None
    assert len(found.handed) == 1
    assert text_of(found.rest, "") == [f"c = c + {found.handed[0]}"]


def test_what_is_stored_of_it_is_stored_in_its_step() -> None:
    found = parts_of("a = tl.reduce(x, 0, _add)\nc = c + y\ntl.store(p_ptr, a * 2)", ("c",))
    assert found is not None
    assert text_of(found.rest, "") == ["c = c + y", f"tl.store(p_ptr, {found.handed[0]})"]


def test_what_both_parts_want_is_made_in_both() -> None:
    assert parts_of("w = x * 2\na = tl.reduce(w, 0, _add)\nc = f(c, a, w)", ("c",)) is None  # nothing is gained
    found = parts_of("k = t * 2\na = tl.reduce(x + k, 0, _add)\nc = f(c, a, k)", ("c",))
    assert found is not None
    assert "k = t * 2" in text_of(found.early, "") and "k = t * 2" in text_of(found.rest, "")


def normalised(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = jnp.logaddexp(c, jnp.roll(c, 1)) + jax.nn.log_softmax(x)
        return c, None

    return lax.scan(step, c, xs)


def for_some_steps(c: Any, xs: Any) -> Any:
    """As many steps as a number says count."""

    def step(carry: Any, x: Any) -> Any:
        c, t, peak = carry
        new = jnp.logaddexp(c, jnp.roll(c, 1)) + jax.nn.log_softmax(x)
        now = t < 29
        return (jnp.where(now, new, c), t + 1, jnp.where(now, x.max(), peak)), None

    return lax.scan(step, (c, 0, jnp.float32(-3)), xs)


def for_few_steps(c: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        c, t = carry
        return (jnp.where(t < 29, jnp.tanh(c + jnp.roll(c, 1) + jax.nn.softmax(x) * 3), c), t + 1), None

    return lax.scan(step, (c, 0), xs)


def backwards(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        scale = jnp.sqrt(jnp.mean(x * x) + 1)
        c = jnp.tanh(c + jnp.roll(c, 2) / scale)
        return c, c * scale

    return lax.scan(step, c, xs, reverse=True)


PROGRAMS = [normalised, for_some_steps, for_few_steps, backwards]


def compared(fn: Callable[..., Any], *args: Any, backend: str = "interpret") -> None:
    with planned_with(loops=FAR):
        found, expected = j2t.fuse(fn, backend=backend, strict=True)(*args), jax.jit(fn)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), 3e-5, 3e-5)


def inputs(steps: int, lanes: int, batch: int = 2) -> tuple[Any, Any]:
    shapes = (batch, lanes), (batch, steps, lanes)
    return tuple(jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes)


@pytest.mark.parametrize("steps", [31, 32, 50])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_values(fn: Callable[..., Any], steps: int) -> None:
    args = inputs(steps, 40)
    with planned_with(loops=FAR):
        (kernel,) = j2t.transpile(jax.vmap(fn), *args).kernels
    assert ("_each = ()" in kernel.source) == (fn is not for_some_steps)  # two numbers would be handed on, of one
    compared(jax.vmap(fn), *args)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_steps_that_do_not_count_give_nothing(value: float) -> None:
    c, xs = inputs(50, 40)
    compared(jax.vmap(for_some_steps), c, xs.at[:, 29:].set(value))


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_gradients(fn: Callable[..., Any]) -> None:
    def loss(*args: Any) -> Any:
        return sum(jnp.sum(jnp.sin(each)) for each in jax.tree.leaves(jax.vmap(fn)(*args)) if each.dtype == "float32")

    compared(jax.grad(loss, (0, 1)), *inputs(35, 20))


@pytest.mark.compile
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_on_the_machine(fn: Callable[..., Any]) -> None:
    compared(jax.vmap(fn), *inputs(35, 40), backend="machine")
