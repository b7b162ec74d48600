"""Constants are computed as JAX computes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.numbers.folding import ARRAYS, EXACT, ROUNDED, computed, fold_constants
from jaxpr2triton.normalize.numbers.splat import UNIFORM
from tests.normalize.passing import SPECIAL, after, outputs, primitives_of, same_bits, traced

X = np.ones(3, np.float32)
BINARY = ("add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge")
NUMBERS: dict[str, Any] = {
    "float32": SPECIAL[[0, 1, 4, 5, 6, 7, 9, 10]],
    "float16": np.array([0.1, 0.0, 60000, np.nan], np.float16),
    "bfloat16": np.array([0.1, -3, 1e30, np.inf], jnp.bfloat16),
    "int32": np.array([7, -3, 2**31 - 1, -(2**31)], np.int32),
    "uint8": np.array([7, 200, 255], np.uint8),
}


def test_before_and_after() -> None:
    def function(x: Any) -> Any:
        return x + lax.exp(lax.mul(np.float32(2), np.float32(3))) * lax.broadcast(np.float32(1), (3,))

    assert str(remove_dead(fold_constants(traced(function, X)))) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = broadcast_in_dim 403.4288024902344:f32[]\n"
        "    c:f32[3] = add a b\n"
        "  in (c,) }"
    )


def _bind(name: str, *args: Any) -> Any:
    params = {"out_dtype": None} if name == "mul" else {}
    return getattr(primitives, f"{name}_p").bind(*args, **params)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_is_that_of_jax(name: str, dtype: str) -> None:
    numbers = NUMBERS[dtype]
    pairs = [(a, b) for a in numbers for b in numbers]
    if name == "div" and numbers.dtype.kind in "iu":
        pairs = [(a, b) for a, b in pairs if (a, b) != (numbers[-1], -1)]
    if name in ("max", "min") and numbers.dtype == np.float32:
        pairs = [(a, b) for a, b in pairs if a != b or np.signbit(a) == np.signbit(b)]
    folded = fold_constants(traced(lambda: [_bind(name, a, b) for a, b in pairs]))
    assert not folded.jaxpr.eqns
    expected = _bind(name, np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
    assert same_bits(np.array(outputs(folded, [])), np.asarray(expected))


@pytest.mark.parametrize(
    "function",
    [
        lambda: -lax.convert_element_type(np.float32(2.6), np.int32),
        lambda: lax.convert_element_type(np.float32(0.1), jnp.bfloat16),
        lambda: lax.convert_element_type(np.int32(-3), np.uint8),
        lambda: lax.convert_element_type(np.float32(0.3), bool),
        lambda: lax.convert_element_type(np.bool_(True), np.float32),
        lambda: lax.select_n(np.bool_(True), np.float32(1), np.float32(2)),
        lambda: lax.clamp(np.float32(0), np.float32(np.nan), np.float32(1)),
        lambda: lax.bitwise_not(np.uint8(3)),
        lambda: lax.bitwise_xor(np.int32(6), np.int32(3)),
        lambda: lax.shift_right_logical(np.int32(-8), np.int32(1)),
        lambda: lax.rsqrt(np.float32(2)),
        lambda: lax.pow(np.float32(2), np.float32(0.5)),
        lambda: lax.sign(np.float32(-0.0)),
        lambda: lax.reshape(np.float32(3), ()),
        lambda: lax.abs(np.float32(-2)),
        lambda: lax.convert_element_type(lax.neg(np.float32(3e9)), np.int32),
        lambda: lax.convert_element_type(lax.neg(np.float32(2.5)), np.int32),
        lambda: lax.convert_element_type(lax.neg(np.float32(300)), np.int8),
        lambda: lax.convert_element_type(lax.neg(np.float32(np.inf)), np.int32),
        lambda: lax.convert_element_type(lax.neg(np.float32(np.nan)), np.int32),
    ],
)
def test_scalars_are_folded(function: Callable[[], Any]) -> None:
    assert after(fold_constants, function).jaxpr.eqns == []


@pytest.mark.parametrize(
    "function",
    [
        lambda: lax.div(np.int32(3), np.int32(0)),
        lambda: lax.max(np.float32(0), np.float32(-0.0)),
        lambda: lax.clamp(np.float32(0), np.float32(-0.0), np.float32(1)),
        lambda: lax.full((2,), 1.0),
        lambda: lax.digamma(np.float32(2)),
        lambda: lax.add(np.complex64(1j), np.complex64(1)),
        lambda: lax.mul(np.float32(2), np.float32(3)) * lax.iota(np.float32, 3),
    ],
)
def test_what_is_not_folded(function: Callable[[], Any]) -> None:
    assert after(fold_constants, function).jaxpr.eqns != []


def test_the_tables_do_not_overlap() -> None:
    assert EXACT.keys().isdisjoint(ROUNDED)
    assert UNIFORM.keys().isdisjoint(ROUNDED | EXACT.keys())


def _spread(number: Any, *shape: int) -> Any:
    return lax.broadcast(number, shape)


ONES = partial(_spread, np.float32(1), 4, 6)


@pytest.mark.parametrize(
    "function",
    [
        lambda: -ONES() * 3 + 1,
        lambda: lax.exp(ONES()),
        lambda: ONES().reshape(2, 12).T[:, ::-1][3:, :1],
        lambda: lax.squeeze(lax.dynamic_slice(ONES(), (1, 2), (1, 3)), (0,)),
        lambda: lax.concatenate([ONES(), ONES()[1:]], 0),
        lambda: lax.pad(ONES(), np.float32(1), [(1, 2, 0), (0, 0, 1)]),
        lambda: lax.reduce_sum(-17 * ONES(), [1]),
        lambda: lax.reduce_sum(0 * ONES(), [0, 1]) + 5,
        lambda: lax.reduce_prod(ONES(), [0]),
        lambda: lax.reduce_max(_spread(np.float32(-np.inf), 3, 2), [0]),
        lambda: lax.reduce_min(_spread(np.float32(np.nan), 3, 2), [1]),
        lambda: lax.reduce_and(_spread(np.bool_(True), 3, 2), [1]),
        lambda: lax.reduce_or(_spread(np.int32(6), 3, 2), [1]),
        lambda: lax.select_n(ONES() > 0, ONES(), ONES() + 1),
    ],
)
def test_arrays_of_one_number(function: Callable[[], Any]) -> None:
    assert set(primitives_of(remove_dead(after(fold_constants, function)))) <= {"broadcast_in_dim"}


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda: lax.reduce_sum(_spread(np.float32(0.1), 4), [0]), "reduce_sum"),
        (lambda: lax.reduce_sum(_spread(np.float32(2**22 + 1), 4), [0]), "reduce_sum"),
        (lambda: lax.reduce_sum(_spread(np.float32(-0.0), 4), [0]), "reduce_sum"),
        (lambda: lax.reduce_sum(_spread(np.float16(3), 1000), [0]), "reduce_sum"),
        (lambda: lax.reduce_sum(_spread(np.int32(3), 4), [0]), "reduce_sum"),
        (lambda: lax.reduce_prod(_spread(np.float32(0.9), 4), [0]), "reduce_prod"),
        (lambda: lax.pad(ONES(), np.float32(2), [(1, 0, 0), (0, 0, 0)]), "pad"),
        (lambda: lax.concatenate([ONES(), -ONES()], 0), "concatenate"),
        (lambda: lax.pad(_spread(np.float32(0), 2), np.float32(-0.0), [(1, 0, 0)]), "pad"),
        (lambda: lax.iota(np.float32, 4) * 1, "iota"),
        (lambda: ONES() @ ONES().T, "dot_general"),
    ],
)
def test_arrays_that_stay(function: Callable[[], Any], left: str) -> None:
    assert left in primitives_of(remove_dead(after(fold_constants, function)))


def test_folding_in_the_middle_of_a_trace() -> None:
    def function(x: Any) -> Any:
        folded = fold_constants(traced(lambda y: y * lax.sqrt(np.float32(2)), x))
        assert primitives_of(folded) == ["mul"]
        return jax.core.eval_jaxpr(folded.jaxpr, [], x)[0].sum()

    np.testing.assert_allclose(jax.jit(jax.grad(function))(X), np.sqrt(np.float32(2)) * X)


def test_doubles_keep_their_digits() -> None:
    with jax.enable_x64(True):
        folded = after(fold_constants, lambda x: x + lax.mul(np.float64(0.1), np.float64(3)), np.ones(2))
    assert folded.jaxpr.eqns[0].invars[1].val == 0.1 * 3


OF_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: lax.add(x, x),
    "sub": lambda x: lax.sub(x, lax.rev(x, (0,))),
    "neg": lax.neg,
    **{name: partial(lambda op, x: op(x, lax.rev(x, (0,))), getattr(lax, name)) for name in BINARY[6:]},
    "and": lambda x: lax.bitwise_and(x, lax.rev(x, (0,))),
    "or": lambda x: lax.bitwise_or(x, lax.rev(x, (0,))),
    "xor": lambda x: lax.bitwise_xor(x, lax.rev(x, (0,))),
    "iota": lambda x: lax.broadcasted_iota(x.dtype, (2, len(x), 3), 1),
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (2, len(x), 3), (1,)),
    "bitcast_convert_type": lambda x: lax.bitcast_convert_type(x, f"int{x.dtype.itemsize * 8}"),
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", OF_ARRAYS)
def test_arrays_are_those_of_jax(name: str, dtype: str) -> None:
    """Without a program of XLA's for each."""
    x = NUMBERS[dtype]
    if name in ("and", "or", "xor") and not jnp.issubdtype(x.dtype, jnp.integer):
        pytest.skip("of whole numbers only")
    closed = jax.make_jaxpr(OF_ARRAYS[name])(x)
    eqn = next(eqn for eqn in closed.eqns if eqn.primitive.name == name)
    reversed_ = np.asarray(x)[::-1]
    operands = [x, x if name == "add" else reversed_][: len(eqn.invars)]
    found = computed(eqn.primitive, operands, eqn.params, eqn.outvars[0].aval.dtype)
    assert same_bits(found, np.asarray(eqn.primitive.bind(*map(jnp.asarray, operands), **eqn.params)))


def test_every_row_of_arrays_is_tried() -> None:
    assert set(OF_ARRAYS) == set(ARRAYS)
