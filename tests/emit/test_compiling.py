"""Emitted kernels compile for every target, keep their precision, and fit into registers; nothing here needs a GPU.

The quick profile takes a sample (one target for a kernel, some kernels for spills), `HYPOTHESIS_PROFILE=deep` all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from tests.compiling import BY_NAME, LOOPING, RUNNABLE, halves_of, kernels_of, shapes_of

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("no_disk_cache")]
ALL = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
TARGET_NAMES = ("sm_80", "sm_90", "sm_100", "gfx942")
SM_90 = TARGETS["sm_90"]
TALL = jax.ShapeDtypeStruct((64, 64), np.float32)


@pytest.fixture
def no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")


def sampled() -> list[tuple[str, str]]:
    """Programs and targets; in the quick profile one target for every second program, each in turn."""
    if ALL:
        return [(name, target) for name in RUNNABLE for target in TARGET_NAMES]
    return [(name, TARGET_NAMES[number // 2 % len(TARGET_NAMES)]) for number, name in enumerate(RUNNABLE) if number % 2]


@pytest.mark.parametrize(("name", "target"), sampled())
def test_kernels_compile(name: str, target: str) -> None:
    for half in halves_of(name):
        for kernel in half.compiled.kernels:
            binary = compile_kernel(kernel, TARGETS[target])
            assert binary.target == target and binary.shared <= TARGETS[target].shared_bytes


def in_old_ptx() -> list[tuple[str, str]]:
    """Programs with loops and without, and targets; in the quick profile a handful of programs, each for one target."""
    names = (*LOOPING, *RUNNABLE)
    if ALL:
        return [(name, target) for name in names for target in ("sm_80", "sm_90")]
    return [(name, ("sm_80", "sm_90")[number % 2]) for number, name in enumerate(names[::13])]


@pytest.mark.parametrize(("name", "target"), in_old_ptx())
def test_ptx_8_is_enough(name: str, target: str) -> None:
    """JAX may find an assembler of CUDA 12.0. Triton's own, which has read this PTX, holds it to its version."""
    for kernel in kernels_of(name):
        assert "\n.version 8.0\n" in str(compile_kernel(kernel, TARGETS[target]).code)


def test_what_is_kept_is_read_after_a_barrier() -> None:
    """Nothing else orders what lanes load after what other lanes have stored: the barrier has to be in the code."""

    def there_and_back(x: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return jnp.sin(c + x), c

        last, kept = jax.lax.scan(step, x[0], x)
        return jax.lax.scan(lambda c, y: (jnp.cos(c * jnp.roll(y, 1)), None), last, kept, reverse=True)[0]

    (kernel,) = kernels(there_and_back, TALL)
    assert "tl.debug_barrier()" in kernel.source and kernel.kept
    ptx = asm(kernel, SM_90, "ptx")
    assert re.search(r"bar\.sync|barrier\.sync", ptx)
    stores, loads = ([match.start() for match in re.finditer(rf"\b{kind}\.global", ptx)] for kind in ("st", "ld"))
    barriers = [match.start() for match in re.finditer(r"\bbar(?:rier)?\.sync", ptx)]
    assert any(stores[0] < barrier < loads[-1] for barrier in barriers)


# precision


def kernels(fn: Callable[..., Any], *avals: Any) -> tuple[Kernel, ...]:
    return j2t.transpile(fn, *avals).kernels


@pytest.mark.parametrize("name", ["layer_norm_f64", "special_functions_f64"])
def test_everything_is_f64_in_a_program_of_f64(name: str) -> None:
    for half in halves_of(name):
        for kernel in half.compiled.kernels:
            assert "f32" not in asm(kernel, SM_90, "ttir")


def polynomial(x: Any) -> Any:
    return jnp.where(x > 0.3, 0.12, 0.7) * x + jnp.maximum(x, 0.1) ** 2 / jnp.clip(x, 0.3, 0.6)


def test_constants_keep_their_digits() -> None:
    with jax.enable_x64(True):
        (kernel,) = kernels(polynomial, jax.ShapeDtypeStruct((1000,), np.float64))
    text = asm(kernel, SM_90, "ttir")
    assert "f32" not in text
    for digits in ("1.200000e-01", "3.000000e-01", "1.000000e-01"):
        assert f"{digits} : f64" in text or f"dense<{digits}> : tensor" in text, digits


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x[:, :, None] * y[None, :, :]).sum(1),
        lambda x, y: (x[:, None, :] * y[None, :, :]).sum(-1),
        lambda x, y: (jnp.tanh(x)[:, :, None] * y[None, :, :]).sum(1) + 1,
        lambda x, y: (2 * (x[:, :, None] * y[None, :, :])).sum(1),
        lambda x, y: (x.T[:, :, None] * y[:, None, :]).sum(0),
    ],
)
def test_sums_of_products_do_not_become_tf32_dots(fn: Callable[..., Any]) -> None:
    for kernel in kernels(fn, TALL, TALL):
        text = asm(kernel, SM_90, "ttgir")
        assert "warp_group_dot" not in text and "tf32" not in text, kernel.source  # a dot of zeros is no product


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x * x).sum(-1),
        lambda x, y: (x * y).sum(-1),
        lambda x, y: (x * 0.7).sum(-1),
        lambda x, y: (x / 3.0).sum(-1),
        lambda x, y: ((x - y) ** 2).sum(0),
        lambda x, y: jnp.where(x > 0, x * x, 0.7 * x).sum(),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_of_a_sum_are_equal(fn: Callable[..., Any], dtype: Any) -> None:
    """Lanes exchange their parts and add: with a product fused into the addition, each would round another number.

    A thread's own terms may be fused (`tests/launch/compile/test_join.py`).
    """
    with jax.enable_x64(True):
        avals = [jax.ShapeDtypeStruct((32, 32), dtype)] * 2
        found = kernels(fn, *avals)
    assert found
    for kernel in found:
        text = asm(kernel, SM_90, "ptx")
        assert isinstance(text, str)
        adds = [line for line in text.splitlines() if re.match(r"\s*(add|fma)\.\S*f(32|64)", line)]
        shuffled = from_other_lanes(text)
        across = [line for line in adds if shuffled.intersection(re.findall(r"%\w+", line))]
        assert across and all("add.rn." in line for line in across), kernel.source


def from_other_lanes(ptx: str) -> set[str]:
    """Registers; doubles are shuffled in halves."""
    found: set[str] = set()
    for line in ptx.splitlines():
        result, *sources = re.findall(r"%\w+", line) or [""]
        if "shfl." in line or (re.match(r"\s*(mov|cvt|shl|or)\.", line) and found.intersection(sources)):
            found.add(result)
    return found


# registers

QUICK = (
    *("layer_norm", "rms_norm", "softmax_4096", "log_softmax_1000", "softmax_1000000", "rotary_halves"),
    *("gelu_erf", "swiglu", "adam", "huber"),
)
ACCEPTED = [p.name for p in BY_NAME.values() if p.bench_args is not None and "one kernel" in p.tags] + ["huber"]


@pytest.mark.parametrize("name", ACCEPTED if ALL else QUICK)
def test_no_spills(name: str) -> None:
    program = BY_NAME[name]
    assert program.bench_args is not None and name in ACCEPTED
    args = shapes_of(program.bench_args)
    found = list(kernels(program.fn, *args))
    if program.grad is not None:
        found += j2t.transpile(program.fn, *args, grad=program.grad).backward.kernels
    for kernel in found:
        taken = resources(compile_kernel(kernel, SM_90))
        assert (taken.spills, taken.stack) == (0, 0), f"{kernel.name}: {taken}\n{kernel.source}"


@pytest.mark.parametrize("grad", [False, True])
def test_smaller_schedules_compile(grad: bool) -> None:
    args = shapes_of(BY_NAME["layer_norm"].args)
    program = j2t.transpile(BY_NAME["layer_norm"].fn, *args, grad=(0, 1, 2) if grad else None)
    compiled = program.backward.compiled if grad else program.compiled
    for smaller in compiled.alternatives.values():
        for kernel in smaller:
            compile_kernel(kernel, SM_90)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_no_copy_of_a_sum_is_fused_on_rocm(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes add what others have, which is a product on one side: fused with it, copies of one sum would differ."""
    monkeypatch.setenv("J2T_TARGET", "gfx942")
    with jax.enable_x64(dtype == "f64"):
        rows = jax.ShapeDtypeStruct((100, 300), np.float32 if dtype == "f32" else np.float64)
        (kernel,) = j2t.transpile(lambda x, y: (x * y).sum(1), rows, rows).kernels
    code = asm(kernel, TARGETS["gfx942"], "amdgcn")
    assert code.count(f"v_add_{dtype}") >= 6  # of 64 lanes
    assert not re.search(rf"v_(pk_)?(fma|fmac|mad|mac)_{dtype}", code)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_product_that_is_stored_is_not_fused_on_rocm(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "gfx942")
    with jax.enable_x64(dtype == "f64"):
        x = jax.ShapeDtypeStruct((100,), np.float32 if dtype == "f32" else np.float64)
        (kernel,) = j2t.transpile(lambda x, y, z: (x * y, x * y + z), x, x, x).kernels
    assert "_product(" in kernel.source
    code = asm(kernel, TARGETS["gfx942"], "amdgcn")
    assert f"v_mul_{dtype}" in code and not re.search(rf"v_(pk_)?(fma|fmac|mad|mac)_{dtype}", code)
