"""How many digits the functions have that kernels bring along: of all sizes of arguments, against more digits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Buffer, Kernel, KernelAxis, Role
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, examine
from jaxpr2triton.launch.machine.run import Settings
from jaxpr2triton.rules.helpers import texts_of, with_callees

SIZE = 1 << 14
SPECIAL = (np.nan, np.inf, 0.0, 1e-40, 0.55, 17.0, 88.0, 88.8, 126.5, 2.0**24, 2.0**31, 2.4e38, 3e38)
FLOAT = np.dtype(np.float32)

# In units of the last place: as computed exactly, and with approximate instructions that are two units off.
DIGITS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "_sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4, 8),
    "_tanh": (np.tanh, 2, 6),
}
SHORT: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {  # relative to the result, and -17 … 17
    "_sigmoid16": (lambda x: 1 / (1 + np.exp(-x)), 2.0**-18),
    "_tanh16": (np.tanh, 2.0**-17),
}


def kernel_of(name: str) -> Kernel:
    source = (
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
        f"{texts_of(with_callees(name))}@triton.jit\ndef apply(a_ptr, out_ptr):\n    i = tl.arange(0, {SIZE})\n"
        f"    tl.store(out_ptr + i, {name}(tl.load(a_ptr + i)))\n"
    )
    buffers = (Buffer("a", (SIZE,), FLOAT),), (Buffer("out", (SIZE,), FLOAT),)
    return Kernel("apply", source, *buffers, (KernelAxis("i", SIZE, Role.LANE, SIZE),), (1, 1, 1), 8, 1, 0, 0, 1)


def arguments() -> np.ndarray:
    """Every exponent, what is usual, and what is special."""
    half = SIZE // 4
    rng = np.random.default_rng()
    patterns = np.linspace(0, 0x7F800000, half).astype(np.int64) - rng.integers(0, 40_000, half)
    sizes = np.maximum(patterns, 0).astype(np.uint32).view(np.float32)
    usual = rng.uniform(-100, 100, SIZE - 2 * half - 2 * len(SPECIAL))
    return np.concatenate([sizes, -sizes, usual, SPECIAL, np.negative(SPECIAL)]).astype(np.float32)


def on_machine(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    binary = compiled_for_machine(kernel, target_named("sm_90"))
    return examine(kernel, binary, [x], Settings(noise=True)).outputs[0]


def units(got: np.ndarray, right: np.ndarray) -> np.ndarray:
    """How far apart in units of the last place; denormals count as zeros, and NaN is off by nothing from NaN."""
    size = np.maximum(np.abs(right), 2.0**-126)
    off = np.abs(got.astype(np.longdouble) - right) / size * 2.0**23
    lost = (got == 0) & (np.abs(right) < 2.0**-126)
    return np.where((np.isnan(got) & np.isnan(right)) | lost, 0, off)


@pytest.mark.parametrize("name", DIGITS)
def test_functions_have_the_digits_of_the_librarys(name: str) -> None:
    function, exact, noisy = DIGITS[name]
    x, kernel = arguments(), kernel_of(name)
    with np.errstate(all="ignore"):
        right = function(x.astype(np.longdouble))
        for got, limit in ((run_interpreted(kernel, [x])[0], exact), (on_machine(kernel, x), noisy)):
            off = units(got, right)
            assert np.all(off <= limit), f"{name}({x[np.nanargmax(off)]}) is {np.nanmax(off)} units off"
            assert np.array_equal(np.signbit(got) | np.isnan(x), np.signbit(right) | np.isnan(x))


@pytest.mark.parametrize("name", SHORT)
def test_functions_for_16_bits_have_more_than_those(name: str) -> None:
    function, limit = SHORT[name]
    x = arguments()
    kernel, usual = kernel_of(name), np.abs(x) < 17
    with np.errstate(all="ignore"):
        right = function(x.astype(np.longdouble))
        for got in (run_interpreted(kernel, [x])[0], on_machine(kernel, x)):
            assert np.all(np.abs(got - right)[usual] <= limit * np.maximum(np.abs(right[usual]), 2.0**-126))
            np.testing.assert_allclose(got[~usual], right[~usual].astype(np.float32), atol=2.0**-24, rtol=2.0**-16)
