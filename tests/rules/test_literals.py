"""Constants as Triton text: what is written, what it is worth, and that it keeps the dtype of the tensor beside it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.dtypes import is_float, triton_name, working_dtype
from jaxpr2triton.ir.kernel import Buffer, Kernel, KernelAxis, Role
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.rules.literals import as_tensor, constant, is_bare, with_dtype
from tests.rules.pointwise.pointwise_cases import DTYPES, SIZE, random_values, special

NAN, INF = float("nan"), float("inf")
ZERO32 = "tl.full((), -2147483648, tl.int32).to(tl.float32, bitcast=True)"
ZERO64 = "tl.full((), -9223372036854775808, tl.int64).to(tl.float64, bitcast=True)"


@pytest.mark.parametrize(
    "value, dtype, text",
    [
        (2, np.float32, "2.0"),
        (0.1, np.float32, "0.1"),
        (0.1, jnp.bfloat16, "0.100097656"),
        (0.1, np.float16, "0.099975586"),
        (0.5, np.float64, "0.5"),
        (0.1, np.float64, "tl.full((), 0.1, tl.float64)"),
        (1e300, np.float64, "tl.full((), 1e+300, tl.float64)"),
        (-0.0, np.float32, ZERO32),
        (-0.0, np.float16, ZERO32),
        (-0.0, np.float64, ZERO64),
        (NAN, np.float32, "float('nan')"),
        (-INF, np.float64, "float('-inf')"),
        (1e6, np.float16, "float('inf')"),
        (-128, np.int8, "-128"),
        (2**64 - 1, np.uint64, "0xFFFFFFFFFFFFFFFF"),
        (1 << 16, np.uint32, "0x00010000"),
        (65535, np.uint32, "65535"),
        (1 << 16, np.int32, "65536"),
        (np.int64(-(2**63)), np.int64, "-9223372036854775808"),
        (1, np.bool_, "True"),
        (np.bool_(False), np.bool_, "False"),
    ],
)
def test_constant(value: Any, dtype: Any, text: str) -> None:
    assert printed(constant(value, dtype)) == text


@pytest.mark.parametrize(
    "text, bare",
    [
        ("2.0", True),
        ("-5", True),
        ("1e-05", True),
        ("-1.5e+38", True),
        ("True", True),
        ('float("-inf")', True),
        ("x", False),
        ("x2", False),
        ("tl.full((), 0.1, tl.float64)", False),
        ("float32", False),
    ],
)
def test_is_bare(text: str, bare: bool) -> None:
    assert is_bare(expr(text)) == bare


@pytest.mark.parametrize(
    "text, dtype, typed",
    [
        ("x", np.int8, "x"),
        ("0.0", np.float32, "0.0"),
        ("0.5", np.float16, "0.5"),
        ("1e-40", np.float32, "tl.full((), 1e-40, tl.float32)"),
        ("2.0", np.float64, "tl.full((), 2.0, tl.float64)"),
        ('float("inf")', np.float32, "float('inf')"),
        ("3", np.int32, "3"),
        ("3", np.int8, "tl.full((), 3, tl.int8)"),
        ("3", np.uint32, "tl.full((), 3, tl.uint32)"),
        ("3000000000", np.uint32, "3000000000"),
        ("3000000000", np.int64, "tl.full((), 3000000000, tl.int64)"),
        ("5000000000", np.int64, "5000000000"),
        ("18446744073709551615", np.uint64, "18446744073709551615"),
        ("True", np.bool_, "True"),
        (ZERO64, np.float64, ZERO64),
    ],
)
def test_with_dtype(text: str, dtype: Any, typed: str) -> None:
    assert printed(with_dtype(expr(text), dtype)) == typed


def test_as_tensor() -> None:
    assert printed(as_tensor(expr("3"), np.int32)) == "tl.full((), 3, tl.int32)"
    assert printed(as_tensor(expr("x"), np.int32)) == "x"


def constants_of(dtype: np.dtype) -> list[np.ndarray]:
    return [np.asarray(value, dtype) for value in [*special(dtype), *random_values(dtype, 8, np.random.default_rng(3))]]


def kernel_of_constants(dtype: np.dtype) -> Kernel:
    """Each constant, chosen by a `where` beside a tensor."""
    names = [f"out{n}" for n in range(len(constants_of(dtype)))]
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def constants(x_ptr, {', '.join(name + '_ptr' for name in names)}):",
        f"    i = tl.arange(0, {SIZE})",
        f"    x = tl.load(x_ptr + i).to({triton_name(working_dtype(dtype))})",
    ]
    for name, value in zip(names, constants_of(dtype)):
        lines.append(f"    {name} = tl.where(i < 9, x, {printed(constant(value, dtype))})")
        lines.append(f"    tl.static_assert({name}.dtype == {triton_name(working_dtype(dtype))})")
        lines.append(f"    tl.store({name}_ptr + i, {name})")
    inputs = (Buffer("x", (SIZE,), dtype),)
    outputs = tuple(Buffer(name, (SIZE,), dtype) for name in names)
    axis = KernelAxis("i", SIZE, Role.LANE, SIZE)
    return Kernel("constants", "\n".join(lines) + "\n", inputs, outputs, (axis,), (1, 1, 1), 4, 1, 0, 0, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constants_keep_value_and_dtype_in_a_kernel(dtype: np.dtype) -> None:
    """Nothing is promoted, and nothing loses a digit or a sign."""
    x = random_values(dtype, SIZE, np.random.default_rng())
    for value, got in zip(constants_of(dtype), run_interpreted(kernel_of_constants(dtype), [x])):
        assert got[:9].tobytes() == x[:9].tobytes()
        if is_float(dtype) and np.isnan(value):
            assert np.isnan(got[9:]).all()
        else:
            assert got[9:].tobytes() == np.full(SIZE - 9, value).tobytes()


@pytest.mark.compile
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_constants_compile(target: str) -> None:
    for dtype in DTYPES:
        assert compile_kernel(kernel_of_constants(dtype), target_named(target)).code
