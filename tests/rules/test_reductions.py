"""Every row that reduces, through the whole compiler and in the interpreter, against JAX: dtypes, values, schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.tracing import trace
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from jaxpr2triton.rules.reductions import TABLE, identity_of
from tests.policies import moved

FLOATS = tuple(np.dtype(name) for name in (np.float16, jnp.bfloat16, np.float32, np.float64))
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
BOOL = np.dtype(np.bool_)
NUMBERS = FLOATS + INTEGERS
ROUNDED = {"reduce_sum", "reduce_prod"}  # of floats: the order of operations is free
DTYPES: dict[str, tuple[np.dtype, ...]] = {
    "reduce_sum": NUMBERS,
    "reduce_prod": NUMBERS,
    "reduce_max": (*NUMBERS, BOOL),
    "reduce_min": (*NUMBERS, BOOL),
    "reduce_and": (*INTEGERS, BOOL),
    "reduce_or": (*INTEGERS, BOOL),
    "reduce_xor": (*INTEGERS, BOOL),
    "argmax": (*NUMBERS, BOOL),
    "argmin": (*NUMBERS, BOOL),
}


def apply(name: str, x: Any, axes: tuple[int, ...]) -> Any:
    if name in ("argmax", "argmin"):
        return getattr(lax, name)(x, axes[0], np.int32)
    return getattr(lax, name)(x, axes)


def rows_of(dtype: np.dtype, length: int, rng: np.random.Generator) -> np.ndarray:
    """Rows with a special value each, in a random place; the last rows are plain."""
    if is_bool(dtype):
        return np.stack([np.zeros(length, bool), np.ones(length, bool), *(rng.random((4, length)) < 0.5)])
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        few = rng.integers(1, 4, (9, length)).astype(dtype)
        few[0], few[1], few[2] = limits.min, limits.max, 2
        few[3, rng.integers(length)] = limits.min
        few[4, rng.integers(length)] = limits.max
        few[5:7] = rng.integers(limits.min, limits.max, (2, length), dtype=dtype, endpoint=True)
        return few
    plain = rng.uniform(0.6, 1.6, (17, length)) * rng.choice((-1, 1), (17, length))
    for row, values in enumerate(
        ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [np.nan, np.inf], [0.0], [-0.0], [0.0, -0.0], [2.5, 2.5])
    ):
        plain[row, rng.permutation(length)[: len(values)]] = values[:length]
    for row, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0), start=9):
        plain[row] = value
    return plain.astype(dtype)


def problems(name: str, got: Any, wanted: Any, data: np.ndarray, axis: int) -> list[str]:
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    right = (got == wanted) | ((got != got) & (wanted != wanted))
    if name in ROUNDED and is_float(data.dtype):
        with np.errstate(all="ignore"):
            exact = data.astype(np.float64)
            scale = np.abs(exact).sum(axis) if name == "reduce_sum" else np.abs(np.prod(exact, axis))
            slack = data.shape[axis] * float(jnp.finfo(data.dtype).eps) * scale
            right |= np.abs(got.astype(np.float64) - wanted.astype(np.float64)) <= slack
            if name == "reduce_prod":  # where some of the factors overflow, their order decides
                right |= np.prod(np.maximum(np.abs(exact), 1), axis) > float(jnp.finfo(data.dtype).max)
    rows = np.flatnonzero(~right)
    return [f"{name} of {data.dtype} row {row}: {got[row]}, expected {wanted[row]}" for row in rows]


def compiled(fn: Callable[..., Any], *args: Any, policy: Policy = DEFAULT_POLICY) -> Compiled:
    jaxpr, constants = trace(fn, *args)
    assert not constants
    return compile_jaxpr(jaxpr, "reductions", policy=policy)


def roles(made: Compiled) -> set[Role]:
    return {axis.role for kernel in made.kernels for axis in kernel.axes}


def names_for(dtype: np.dtype) -> list[str]:
    return [name for name, known in DTYPES.items() if dtype in known]


def check(dtype: np.dtype, length: int, axis: int, names: Sequence[str], policy: Policy = DEFAULT_POLICY) -> Compiled:
    """All rows of the table that take this dtype, in one program."""
    with jax.enable_x64(True):
        data = rows_of(dtype, length, np.random.default_rng())
        data = data if axis == 1 else np.ascontiguousarray(data.T)

        def fn(x: Any) -> list[Any]:
            return [apply(name, x, (axis,)) for name in names]

        made = compiled(fn, data, policy=policy)
        assert not made.left_to_xla
        found = zip(names, made.run("interpret", False, data), jax.jit(fn)(data))
        wrong = [line for name, got, wanted in found for line in problems(name, got, wanted, data, axis)]
        assert not wrong, "\n".join(wrong)
    return made


LITTLE_ROOM = moved(blocks={"resident": 64})
every_dtype = pytest.mark.parametrize("dtype", (*NUMBERS, BOOL), ids=str)
MAIN = tuple(np.dtype(name) for name in (jnp.bfloat16, np.float32, np.float64, np.int32, np.bool_))
along_columns_and_rows = pytest.mark.parametrize(
    ("dtype", "axis"), [*((dtype, 0) for dtype in (*NUMBERS, BOOL)), *((dtype, 1) for dtype in MAIN)], ids=str
)


def test_every_row_is_exercised() -> None:
    assert {*DTYPES, "reduced"} == set(TABLE)  # whose function is the user's: test_own_reductions.py


@along_columns_and_rows
def test_resident(dtype: np.dtype, axis: int) -> None:
    made = check(dtype, 13 if axis == 0 else 16, axis, names_for(dtype))
    assert Role.LOOP not in roles(made)


@every_dtype
def test_unrolled(dtype: np.dtype) -> None:
    made = check(dtype, 3, 1, names_for(dtype))
    assert Role.UNROLL in roles(made) and Role.LOOP not in roles(made)


@pytest.mark.parametrize("dtype", MAIN, ids=str)
def test_one_element(dtype: np.dtype) -> None:
    check(dtype, 1, 1, names_for(dtype))


@along_columns_and_rows
def test_streamed(dtype: np.dtype, axis: int) -> None:
    made = check(dtype, 150, axis, names_for(dtype), LITTLE_ROOM)
    assert Role.LOOP in roles(made)


@along_columns_and_rows
def test_in_two_steps(dtype: np.dtype, axis: int) -> None:
    policy = moved(cuts={"small": 0}, splits={"elements": 8})
    made = check(dtype, 61, axis, names_for(dtype), policy)
    assert len(made.kernels) >= 2
    assert "boundary" not in str(made.program), "what is in memory between two kernels is an operand"


@pytest.mark.parametrize("small", [False, True], ids=["resident", "streamed"])
@pytest.mark.parametrize("axes", [(1,), (2,), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_axes(axes: tuple[int, ...], small: bool) -> None:
    names = [name for name in names_for(np.dtype(np.int32)) if len(axes) == 1 or not TABLE[name].indexed]
    x = np.random.default_rng().integers(-(2**31), 2**31 - 1, (3, 70, 5), dtype=np.int32)

    def fn(x: Any) -> list[Any]:
        return [apply(name, x, axes) for name in names]

    made = compiled(fn, x, policy=LITTLE_ROOM if small else DEFAULT_POLICY)
    for name, got, wanted in zip(names, made.run("interpret", False, x), fn(x)):
        np.testing.assert_array_equal(got, wanted, err_msg=name)


@pytest.mark.parametrize("index_dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("length", [5, 100])
def test_places_of_any_dtype(index_dtype: str, length: int) -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng().standard_normal((6, length)).astype(np.float32)
        fn = functools.partial(lax.argmax, axis=1, index_dtype=np.dtype(index_dtype))
        (got,) = compiled(lambda x: fn(x), x, policy=moved(blocks={"resident": 64})).run("interpret", False, x)
        np.testing.assert_array_equal(got, fn(x), strict=True)


def test_several_axes_at_once_are_refused_for_places() -> None:
    (eqn,) = jax.make_jaxpr(lambda x: lax.argmax(x, 0, np.int32))(np.zeros((3, 4), np.float32)).jaxpr.eqns
    assert TABLE["argmax"].refuse(eqn) is None
    assert str(TABLE["argmax"].refuse(eqn.replace(params={**eqn.params, "axes": (0, 1)}))) == (
        "it looks for a place along several axes at once"
    )


@pytest.mark.parametrize(
    ("name", "dtype", "identity"),
    [
        ("reduce_sum", np.float32, 0),
        ("reduce_prod", np.int8, 1),
        ("reduce_max", jnp.bfloat16, -np.inf),
        ("reduce_min", np.uint8, 255),
        ("reduce_max", np.int64, -(2**63)),
        ("reduce_max", np.bool_, False),
        ("reduce_min", np.bool_, True),
        ("reduce_and", np.int32, -1),
        ("reduce_and", np.uint16, 65535),
        ("reduce_and", np.bool_, True),
        ("reduce_or", np.int32, 0),
        ("reduce_xor", np.bool_, False),
    ],
)
def test_neutral_elements(name: str, dtype: Any, identity: Any) -> None:
    found = identity_of(TABLE[name], dtype)
    assert found == identity and type(found) is type(identity)


def test_places_of_many_variables_are_chosen_one_after_the_other() -> None:
    """Both the value and the place are read by the next choice: written into each other they would double each time."""

    def largest(x: jax.Array) -> jax.Array:
        return jnp.argmax(x, axis=0)

    x = jax.random.normal(jax.random.key(0), (24, 100))
    roles = {"k": "unroll"}
    assert len(j2t.transpile(largest, x, roles=roles).source.splitlines()) < 120
    found = j2t.fuse(largest, backend="interpret", roles=roles)(x)
    np.testing.assert_array_equal(found, jax.jit(largest)(x))
