"""Long functions of the device library are called where a kernel holds many, and written out everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import asm, compile_kernel
from tests.emit import reading
from tests.policies import planned_with

RNG = np.random.default_rng()
X = RNG.uniform(0.5, 1.5, 700).astype(np.float32)


def sines(x: Any, count: int = 4) -> Any:
    for number in range(count):
        x = jnp.sin(x) + number
    return x


def several(x: Any) -> Any:
    """Constants for operands, two operands, and an integer exponent that is computed."""
    power = x**0.3 + 2.0**x + jnp.power(x, jnp.abs(x))
    angle = jnp.arctan2(x, 0.4) * jnp.arctan2(power, x)
    whole = lax.rem(jnp.arange(x.size), 7).reshape(x.shape)  # of integers: no such function
    return power + angle + lax.erf_inv(0.1 * x) + jnp.log(x) * jnp.expm1(-x) + lax.rem(4 * x, x + 1) + whole


def looping(x: Any) -> Any:
    """Of tiles, of numbers that all lanes share, and in a loop."""

    def step(carry: Any, number: Any) -> Any:
        return jnp.sin(carry) + jnp.cos(number) * jnp.sin(number), None

    return lax.scan(step, x, jnp.linspace(0.0, 1.0, 5))[0]


@pytest.fixture
def always() -> Any:
    with planned_with(writing={"written_out": 0}, loops={"instructions_in_a_row": 0}):
        yield


def kernels(function: Callable[..., Any], *args: Any) -> tuple[Kernel, ...]:
    return j2t.transpile(function, *args).kernels


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("function", [sines, several, looping])
@pytest.mark.parametrize("size", [1, 33, 700])
def test_values_and_gradients(function: Callable[..., Any], size: int) -> None:
    x = X[:size]
    fused = j2t.fuse(function, backend="interpret", strict=True)
    assert any("noinline" in kernel.source for kernel in kernels(function, x))
    np.testing.assert_allclose(fused(x), jax.jit(function)(x), rtol=2e-5, atol=2e-6)
    mine, theirs = (jax.grad(lambda x, f=f: f(x).sum())(x) for f in (fused, jax.jit(function)))
    np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("function", [sines, several, looping])
def test_compiled_kernels_call(function: Callable[..., Any]) -> None:
    found = j2t.fuse(function, backend="machine", strict=True)(X[:33])
    np.testing.assert_allclose(found, jax.jit(function)(X[:33]), rtol=2e-5, atol=2e-6)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float64])
def test_other_dtypes(dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        x = jnp.asarray(X[:70], dtype)
        mine, theirs = j2t.fuse(sines, backend="interpret", strict=True)(x), jax.jit(sines)(x)
        digits = 1e-12 if dtype is np.float64 else 4e-2
        np.testing.assert_allclose(np.asarray(mine, np.float64), np.asarray(theirs, np.float64), rtol=digits)


@pytest.mark.usefixtures("always")
def test_a_thread_that_holds_several_elements_calls_for_them_together() -> None:
    (kernel,) = kernels(lambda x: jnp.sin(x), jax.ShapeDtypeStruct((1 << 20,), np.float32))
    assert "def _sin(x0, x1, x2, x3):\n    return tl.sin(x0), tl.sin(x1), tl.sin(x2), tl.sin(x3)\n" in kernel.source
    assert "tl.map_elementwise(_sin, x, pack=4)[0]" in kernel.source


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_what_calls_a_helper_of_its_name(backend: str) -> None:
    found = j2t.fuse(lambda x: jnp.tanh(x), backend=backend, strict=True)(X[:33])
    np.testing.assert_allclose(found, np.tanh(X[:33]), rtol=2e-6)


def test_kernels_of_ordinary_size_call_nothing() -> None:
    (kernel,) = kernels(sines, X)
    assert "noinline" not in kernel.source and "tl.sin(" in kernel.source


def test_a_long_kernel_calls_only_what_is_long_and_often() -> None:
    def function(x: Any) -> Any:
        return sines(jnp.log(x), 100) + jnp.cos(x)

    (kernel,) = kernels(function, X)
    function_texts = [line for line in kernel.source.splitlines() if line.startswith("def _")]
    assert len(function_texts) == 1 and function_texts[0].startswith("def _sin(")
    text = kernel.source[kernel.source.index(f"def {kernel.name}(") :]
    assert "tl.sin(" not in text and "tl.cos(" in text and "tl.log(" in text
    assert reading.function_of(kernel)


@pytest.mark.compile
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("function", [several, looping])
def test_they_compile(function: Callable[..., Any], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    for kernel in kernels(function, jax.ShapeDtypeStruct((1 << 16,), np.float32)):
        compile_kernel(kernel, TARGETS[target])


@pytest.mark.compile
def test_what_ptxas_gets_grows_by_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sine that is written out is more than a hundred instructions."""
    monkeypatch.setenv("J2T_CACHE", "0")
    (kernel,) = kernels(lambda x: sines(x, 120), X)
    text = asm(kernel, TARGETS["sm_90"], "ptx")
    assert text.count("\n") < 120 * 25
