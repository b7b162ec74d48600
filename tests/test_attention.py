"""Attention in plain JAX: one kernel, without any array of all pairs; its gradients; and what is left out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.library import estimates_of
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.attention_programs import PROGRAMS

RNG = np.random.default_rng(11)
TIMES = 2048
EVERY = pytest.mark.parametrize("name", PROGRAMS)


def arrays(dtype: Any = jnp.float32, shape: tuple[int, ...] = (1, 2, 150, 16)) -> list[Any]:
    return [jnp.asarray(RNG.normal(size=shape), dtype) for _ in range(3)]


def sizes(dtype: Any = jnp.bfloat16, features: int = 64) -> list[Any]:
    return [jax.ShapeDtypeStruct((4, 16, TIMES, features), dtype)] * 3


def with_gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    def value_and_pullback(q: Any, k: Any, v: Any) -> Any:
        out, pull = jax.vjp(program, q, k, v)
        return out, pull(jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape).astype(x.dtype), out))

    return value_and_pullback


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        largest = np.nanmax(np.abs(other), initial=1.0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest)


@EVERY
def test_values_and_gradients(name: str) -> None:
    args, program = arrays(), with_gradients(PROGRAMS[name])
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(program)(*args)
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
        alone = with_gradients(j2t.fuse(PROGRAMS[name], backend="interpret", contractions="triton"))(*args)
    assert_close(found, expected, 1e-5)
    assert_close(alone, expected, 1e-5)


ROUGH = "plain", "causal", "causal, hidden by a number", "rows without keys", "library, causal"


@pytest.mark.parametrize("name", ROUGH)
def test_what_is_rough_is_as_exact_as_its_factors(name: str) -> None:
    """bf16 is multiplied: exponentials are powers of two then, and what hides nothing has a loop of its own."""
    args, program = arrays(jnp.bfloat16), with_gradients(PROGRAMS[name])
    expected = jax.jit(program)(*(x.astype(jnp.float32) for x in args))
    assert_close(j2t.fuse(program, backend="interpret", contractions="triton")(*args), expected, 3e-2)


@pytest.mark.parametrize("name", ["causal", "lengths", "library, causal"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_compiled(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "sm_80")
    args = arrays(dtype, (1, 2, 140, 16))
    expected = jax.jit(PROGRAMS[name])(*(x.astype(jnp.float32) for x in args))
    found = j2t.fuse(PROGRAMS[name], backend="machine", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 3e-2 if dtype == jnp.bfloat16 else 1e-2)


def test_all_limits_tell_whether_a_row_has_keys() -> None:
    """That the last keys are hidden spares few steps, but the last queries have no others: all keys are theirs."""

    def program(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(512)[:, None], jnp.arange(512)
        shown = (j >= i - 5) & (j < 500)
        return jax.nn.softmax(jnp.where(shown, q @ k.swapaxes(-1, -2), -1e38)) @ v

    args = arrays(shape=(1, 2, 512, 16))
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(program)(*args)
        found = j2t.fuse(program, backend="interpret", contractions="triton", strict=True)(*args)
    assert_close(found, expected, 1e-5)


def all_pairs(made: Any) -> list[str]:
    return [b.name for kernel in made.kernels for b in kernel.buffers if math.prod(b.shape) >= 64 * TIMES**2]


@EVERY
def test_one_kernel_and_nothing_of_all_pairs(name: str) -> None:
    """As long as people have them; whoever multiplies is chosen by what it takes."""
    made = j2t.transpile(PROGRAMS[name], *sizes(), for_target="sm_90")
    assert len(made.kernels) == 1 and not made.leftovers and not all_pairs(made)


GROUPED = pytest.mark.xfail(strict=True, reason="sums over heads and queries at once are none that a chain walks along")
GRADIENTS = [pytest.param(name, marks=GROUPED if name == "library, grouped" else ()) for name in PROGRAMS]


@pytest.mark.parametrize("name", GRADIENTS)
def test_few_kernels_for_gradients_and_nothing_of_all_pairs(name: str) -> None:
    made = j2t.transpile(with_gradients(PROGRAMS[name]), *sizes(), for_target="sm_90", contractions="triton")
    assert len(made.kernels) <= 3 and not made.leftovers and not all_pairs(made)


@pytest.mark.parametrize("name", ["plain", "causal", "library, causal"])
def test_residuals_are_no_pairs(name: str) -> None:
    made = j2t.transpile(PROGRAMS[name], *sizes(), for_target="sm_90", grad=(0, 1, 2))
    assert not all_pairs(made.forward) and not all_pairs(made.backward)
    assert len(made.forward.kernels) == 1 and len(made.backward.kernels) <= 3


def loops_of(kernel: Any) -> list[list[str]]:
    """The operations of each loop of a kernel for an H100."""
    target = target_named("sm_90")
    used = resources(compile_kernel(kernel, target))
    assert not used.spill_stores and not used.spill_loads
    code, _ = machine_code(asm(kernel, target, "ptx"), 90)
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_.]+)([^;]*);", code)
    found = []
    for place, name, rest in lines:
        back = re.search(r"0x([0-9a-f]+)", rest) if name.startswith("BRA") else None
        if back and int(back[1], 16) < int(place, 16):
            found.append([n for at, n, _ in lines if int(back[1], 16) <= int(at, 16) <= int(place, 16)])
    return [loop for loop in found if len(loop) > 50]


@pytest.mark.parametrize(("features", "most"), [(64, 320), (128, 380)])
def test_instructions_of_a_step(features: int, most: int) -> None:
    (kernel,) = j2t.transpile(PROGRAMS["library"], *sizes(features=features), for_target="sm_90").kernels
    (loop,) = loops_of(kernel)
    assert len(loop) <= most
    assert any(name.startswith("HGMMA") for name in loop) and any(name.startswith("LDGSTS") for name in loop)


def test_steps_that_hide_nothing_do_not_ask() -> None:
    (kernel,) = j2t.transpile(PROGRAMS["library, causal"], *sizes(), for_target="sm_90").kernels
    whole, last = loops_of(kernel)
    assert len(whole) <= 320 < len(last)
    assert "for k_start in range(0, k_edge, 64):" in kernel.source
    assert "for k_start in range(k_edge, k_last, 64):" in kernel.source


def test_what_hides_nothing_is_known_of_all_rows() -> None:
    """Of a window steps at both ends ask; of scores that data hides as well all do, and none is left out."""
    (window,) = j2t.transpile(PROGRAMS["window"], *sizes(), for_target="sm_90").kernels
    assert window.source.count("for k_start in range(") == 3 and "range(k_whole, k_edge, 64)" in window.source

    def by_data(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
        scores = jnp.where((i >= j) & (v[0, 0, :, 0] > 0), jnp.einsum("bhqd,bhkd->bhqk", q, k), -1e38)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    (kernel,) = j2t.transpile(by_data, *sizes(jnp.float32), for_target="sm_90").kernels
    assert "for k_start in range(0, 2048, 64):" in kernel.source


def test_few_rows_do_not_walk_alone() -> None:
    """One program of few rows would go through all keys, while the others of a device had nothing to do."""
    few, many = ((rows, 64) for rows in (16, 65536))
    made = j2t.transpile(
        lambda q, k, v: jax.nn.softmax(q @ k.T) @ v,
        *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (few, many, many)),
        for_target="sm_90",
        contractions="triton",
    )
    assert all("65536 by" not in kernel.source or math.prod(kernel.grid) >= 64 for kernel in made.kernels)


def test_a_library_is_weighed_against_a_whole_chain() -> None:
    """What lies between its products is as large as all pairs, and passes through memory twice."""
    program = jax.make_jaxpr(PROGRAMS["plain"])(*sizes())
    first, last = estimates_of(normalize(program).jaxpr, DEFAULT_POLICY).values()
    assert first == last and first.is_ours and first.library > 1.5 * first.kernel and first.saved > first.kernel
