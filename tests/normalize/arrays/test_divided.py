"""Exponentials that are divided by their sums: once, however often they are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from jaxpr2triton.normalize.arrays.divided import divide_once
from jaxpr2triton.normalize.arrays.exchanged import exchange_sums
from jaxpr2triton.normalize.passes import normalize

PAIRS = 64 * 160


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.where(jnp.arange(64)[:, None] >= jnp.arange(160), q @ k.T, -jnp.inf)
    return jax.nn.softmax(scores) @ v


def capped(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(5 * jnp.tanh(q @ k.T / 5)) @ v


def with_where(q: Any, k: Any, v: Any) -> Any:
    """Some rows have no key at all: what they would be divided by is 0."""
    return jax.nn.softmax(q @ k.T, where=jnp.arange(64)[:, None] - 8 >= jnp.arange(160)) @ v


def dropped(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape), weights / 0.9, 0) @ v


def gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    def pulled(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, pull = jax.vjp(program, q, k, v)
        return out, pull(g)

    return pulled


def divisions(closed: Any) -> int:
    """By numbers that each row has one of."""
    eqns = closed.jaxpr.eqns
    large = (eqn for eqn in eqns if eqn.primitive.name == "div" and eqn.outvars[0].aval.size == PAIRS)
    return sum(eqn.invars[1].aval.shape != () for eqn in large)


def arrays(dtype: Any) -> list[Any]:
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in ((64, 8), (160, 8), (160, 8), (64, 8))]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("program", [attention, causal, capped, with_where, dropped])
def test_gradients_divide_nothing_of_all_pairs(program: Callable[..., Any], dtype: Any) -> None:
    args = arrays(dtype)
    before = exchange_sums(normalize(jax.make_jaxpr(gradients(program))(*args)))
    after = divide_once(before)
    assert divisions(before) == 2 and divisions(after) == 1  # of the result, whose sum may go along
    exact = jax.tree.leaves(jax.jit(gradients(program))(*(each.astype(jnp.float32) for each in args)))
    for one, other, expected in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), exact, strict=True):
        found, as_before = (float(jnp.abs(each.astype(jnp.float32) - expected).max()) for each in (one, other))
        assert found <= 4 * as_before + 2e-6 * float(jnp.abs(expected).max())


@pytest.mark.parametrize(("low", "logarithms"), [(-jnp.inf, 1), (-1e9, 0)])
def test_a_row_of_16_bits_is_one_number(low: float, logarithms: int) -> None:
    """The logarithm of its sum; but for rows that a large number may hide, of which the logarithm would be nothing."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(jnp.where(jnp.arange(64)[:, None] >= jnp.arange(160), q @ k.T, low)) @ v

    for dtype, expected in ((jnp.bfloat16, logarithms), (jnp.float32, 0)):
        traced = jax.make_jaxpr(gradients(program))(*arrays(dtype))
        after = divide_once(exchange_sums(normalize(traced)))
        logs = [eqn.outvars[0].aval.size for eqn in after.jaxpr.eqns if eqn.primitive.name == "log"]
        assert logs == [64] * expected


def test_products_that_are_widened_are_not_rounded_before() -> None:
    """… if that is all that becomes of them; what exponentials are made of is what their maxima are of."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax((q @ k.T).astype(jnp.float32)).astype(v.dtype) @ v

    traced = jax.make_jaxpr(gradients(program))(*arrays(jnp.bfloat16))
    after = divide_once(exchange_sums(normalize(traced)))
    products = (eqn.outvars[0].aval for eqn in after.jaxpr.eqns if eqn.primitive.name == "dot_general")
    assert [each.dtype for each in products if each.size == PAIRS] == [jnp.bfloat16, jnp.float32]


def test_what_is_subtracted_is_a_number_of_the_row() -> None:
    """Nothing is left of the products and quotients with the sum: results times cotangents are summed."""
    args = arrays(jnp.float32)
    after = divide_once(exchange_sums(normalize(jax.make_jaxpr(gradients(attention))(*args))))
    of_rows = Counter(eqn.primitive.name for eqn in after.jaxpr.eqns if eqn.outvars[0].aval.size == 64)
    assert of_rows["mul"] == 0 and of_rows["div"] == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda q, k: (q @ k.T) / jnp.sum(q, 1, keepdims=True),  # of no exponential
        lambda q, k: jax.nn.softmax(q @ k.T),  # that nothing multiplies
        lambda q, k: jax.nn.softmax(q @ k.T) @ k,  # whose sum may go along
    ],
)
def test_left_alone(program: Callable[..., Any]) -> None:
    q, k, *_ = arrays(jnp.float32)
    before = normalize(jax.make_jaxpr(program)(q, k))
    assert divide_once(before) is before


def exponentials(s: Any) -> tuple[Any, Any]:
    e = jnp.exp(s - jnp.max(s, -1, keepdims=True))
    return e, jnp.sum(e, -1, keepdims=True)


def left_and_right(x: Any, y: Any, z: Any) -> Any:
    """A symmetric matrix divided along its rows and along its columns, by the same numbers."""
    n = jnp.sum(x * x, 1)
    e = jnp.exp((2 * x @ x.T - n[None, :] - n[:, None]) / 16)
    left, right = e / jnp.sum(e, 1)[:, None], e / jnp.sum(e, 1)[None, :]
    return left.T @ y, right.T @ z, left @ y, right @ z, (left + right) @ y


def of_columns(s: Any, x: Any, c: Any, k: Any) -> Any:
    """What is subtracted lies along the columns, and is divided there."""
    e, total = exponentials(s)
    return (e / total) @ k, ((x / total - c) * e) @ k, ((x / total - c / total[:, 0]) * e) @ k


def turned(s: Any, x: Any, b: Any, k: Any) -> Any:
    """What divides has its dimensions in another order than what is subtracted."""
    e, total = exponentials(s)
    apart = (x / total).transpose(1, 0, 2) - b[:, :, None]
    return jnp.einsum("tbk,bkd->btd", e / total, k), jnp.einsum("btk,bkd->btd", apart * e.transpose(1, 0, 2), k)


def divided_by_it(s: Any, x: Any, q: Any, k: Any) -> Any:
    e, total = exponentials(s)
    return (e / total) @ k, ((jnp.abs(x) + 1) / total / e).T @ q


def partly_hidden(q: Any, k: Any, v: Any) -> Any:
    """Rows whose sum is of nothing, and in which something is shown all the same."""
    shown = jnp.arange(64)[:, None] - 8 >= jnp.arange(160)
    e, _ = exponentials(q @ k.T)
    p = e / jnp.sum(jnp.where(shown, e, 0), 1, keepdims=True)
    return (jnp.where(shown, p, 0) + 0.1 * p) @ v


def with_normalizer(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T
    e, total = exponentials(scores)
    return (e / total) @ v, jnp.max(scores, 1, keepdims=True) + jnp.log(total)


def added_by_columns(q: Any, k: Any, v: Any, c: Any) -> Any:
    e, total = exponentials(q @ k.T)
    return ((e / total) @ v) ** 2 + jnp.sum(e * c)


def of_whole_numbers(s: Any, x: Any, k: Any) -> Any:
    e, total = exponentials(s)
    whole = (100 * x / total - jnp.max(x, 1, keepdims=True)).astype(jnp.int32)
    return (e / total) @ k, jnp.dot(whole, jnp.ones((160, 3), jnp.int32))


ROWS, KEYS, SQUARE = (64, 8), (160, 8), (160, 160)
FOUND = {
    left_and_right: (KEYS, KEYS, KEYS),
    of_columns: (SQUARE, SQUARE, (160,), KEYS),
    turned: ((16, 3, 160), (16, 3, 160), (3, 16), (3, 160, 8)),
    divided_by_it: ((64, 160), (64, 160), ROWS, KEYS),
    partly_hidden: (ROWS, KEYS, KEYS),
    with_normalizer: (ROWS, KEYS, KEYS),
    added_by_columns: (ROWS, KEYS, KEYS, (160,)),
    of_whole_numbers: ((64, 160), (64, 160), KEYS),
}


@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.__name__)
def test_rows_are_known_by_their_dimensions(program: Callable[..., Any]) -> None:
    """Values, and gradients of what is a float."""
    rng = np.random.default_rng(7)  # small scores: what is divided by nearly nothing has few digits in any order
    args = [jnp.asarray(0.3 * rng.normal(size=shape), jnp.float32) for shape in FOUND[program]]

    def pulled(*args: Any) -> Any:
        out, pull = jax.vjp(program, *args)
        return out, pull(jax.tree.map(lambda x: jnp.cos(x) if jnp.issubdtype(x.dtype, jnp.inexact) else zero(x), out))

    def zero(x: Any) -> Any:
        return np.zeros(x.shape, jax.dtypes.float0)

    closed = exchange_sums(normalize(jax.make_jaxpr(pulled)(*args)))
    for one, other in zip(jaxpr_as_fun(divide_once(closed))(*args), jaxpr_as_fun(closed)(*args), strict=True):
        assert (jnp.isfinite(one) == jnp.isfinite(other)).all()
        one, other = (np.where(jnp.isfinite(other), each, 0) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-5 * np.max(np.abs(other), initial=1e-3))


def test_maxima_are_of_the_scores_that_are_compared_with_them() -> None:
    """Products of 16 bits are rounded before they are; with large ones it makes all the difference."""
    scales = 30, 30, 1, 1
    args = [(each * scale).astype(jnp.bfloat16) for each, scale in zip(arrays(jnp.float32), scales)]
    closed = exchange_sums(normalize(jax.make_jaxpr(gradients(attention))(*args)))
    *_, found = jaxpr_as_fun(divide_once(closed))(*args)
    *_, expected = jaxpr_as_fun(closed)(*args)
    np.testing.assert_allclose(np.float32(found), np.float32(expected), rtol=0.02, atol=0.02)


def of_scores(scores: Callable[[Any], Any]) -> Callable[..., Any]:
    """Attention of what is made of products in f32."""

    def program(q: Any, k: Any, v: Any) -> Any:
        products = jnp.dot(q, k.T, preferred_element_type=jnp.float32)
        return jax.nn.softmax(scores(products)).astype(v.dtype) @ v

    return program


def hidden() -> Any:
    """Some rows, of which all elements are."""
    return jax.lax.broadcasted_iota(jnp.int32, (64, 160), 0) % 3 == 0


@pytest.mark.parametrize(
    "scores",
    [
        lambda s: s + jnp.where(hidden(), -(10**9), 0).astype(jnp.float32),
        lambda s: s - hidden().astype(jnp.float32) / 1e-9,
        lambda s: s + hidden().astype(jnp.float32) * -3000.0 * 3000.0,
        lambda s: jnp.where(hidden(), -1e9, s),
        lambda s: (s * 3000.0) * 3000.0,
        lambda s: s**4,
    ],
)
def test_large_scores_have_two_numbers_a_row(scores: Callable[[Any], Any]) -> None:
    """Of such a row the logarithm would be lost beside the maximum, and each of its shares would be 1."""
    args = arrays(jnp.bfloat16)
    before = exchange_sums(normalize(jax.make_jaxpr(gradients(of_scores(scores)))(*args)))
    after = divide_once(before)
    assert "log" not in {eqn.primitive.name for eqn in after.jaxpr.eqns}
    (*_, one), (*_, other) = (jaxpr_as_fun(each)(*args) for each in (after, before))  # the gradient of what is summed
    one, other = (np.asarray(each, np.float32) for each in (one, other))
    np.testing.assert_allclose(one, other, rtol=0, atol=0.02 * np.abs(other).max())


def test_other_divisors_have_no_logarithm() -> None:
    """They may be negative."""

    def program(q: Any, k: Any, v: Any, weights: Any) -> Any:
        scores = jnp.dot(q, k.T, preferred_element_type=jnp.float32)
        shares = jnp.exp(scores - scores.max(-1, keepdims=True)) / weights[:, None]
        return shares.astype(v.dtype).T @ q

    q, k, v, _ = arrays(jnp.bfloat16)
    after = divide_once(normalize(jax.make_jaxpr(program)(q, k, v, jnp.arange(64.0) - 31.5)))
    assert "log" not in {eqn.primitive.name for eqn in after.jaxpr.eqns}


def test_exponentials_are_made_of_rounded_products() -> None:
    """Each of them, however many softmaxes there are, as their maxima are."""

    def program(q: Any, k: Any, v: Any) -> Any:
        one, other = (jax.nn.softmax((a @ b.T).astype(jnp.float32)).astype(v.dtype) for a, b in ((q, k), (2 * q, k)))
        return one @ v + other @ v

    after = divide_once(exchange_sums(normalize(jax.make_jaxpr(gradients(program))(*arrays(jnp.bfloat16)))))
    makers = {var: eqn for eqn in after.jaxpr.eqns for var in eqn.outvars}
    exponentials = [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "exp"]
    pending, found = list(exponentials), set()
    while pending:
        eqn = pending.pop()
        if eqn.primitive.name == "dot_general":
            found.add(eqn.outvars[0].aval.dtype)
        elif eqn.primitive.name in ("sub", "convert_element_type", "exp"):
            pending += [makers[var] for var in eqn.invars if var in makers]
    assert len(exponentials) == 4 and found == {np.dtype(jnp.bfloat16)}


def test_a_sum_of_products_is_of_what_it_is_subtracted_from() -> None:
    """Of a row with one large share both are the same number, and nothing is left of its gradient."""

    def loss(q: Any, k: Any, v: Any, g: Any) -> Any:
        out = jax.nn.softmax(30 * jnp.dot(q, k.T, preferred_element_type=jnp.float32)).astype(v.dtype) @ v
        return (out.astype(jnp.float32) * g.astype(jnp.float32)).sum()

    args = arrays(jnp.bfloat16)
    traced = normalize(jax.make_jaxpr(jax.grad(loss, (0, 1)))(*args))
    after = divide_once(traced)
    for one, other in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(traced)(*args), strict=True):
        one, other = (np.asarray(each, np.float32) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=0.01 * np.abs(other).max())
