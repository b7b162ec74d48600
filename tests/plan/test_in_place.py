"""Writes of a part of a large array: XLA does them in place, and no kernel copies the rest."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

ROWS, COLUMNS = 16, 1 << 16  # 4 MB: to copy that takes longer than a launch
rng = np.random.default_rng(0)
ARRAY = jnp.asarray(rng.standard_normal((ROWS, COLUMNS)), jnp.float32)
ROW = jnp.asarray(rng.standard_normal(COLUMNS), jnp.float32)
BATCH = jnp.asarray(rng.standard_normal((4, 64, 4096)), jnp.float32)


def a_row(x: Any, v: Any, i: Any) -> Any:
    return x.at[i].set(jnp.tanh(v))


def a_slice(x: Any, v: Any, i: Any) -> Any:
    return lax.dynamic_update_slice(x, jnp.tanh(v)[None], (i, 0))


def rows_of_a_view(x: Any, v: Any, i: Any) -> Any:
    return x.reshape(4, 4, -1).at[i, 2].set(v).at[1, i].set(jnp.sin(v)).reshape(-1)


def a_column_of_each(x: Any, v: Any, i: Any) -> Any:
    return x.at[:, i].set(v[: x.shape[2]])


def a_column_of_its_own_for_each(x: Any, v: Any, i: Any) -> Any:
    return x.at[jnp.arange(x.shape[0]), i + jnp.arange(x.shape[0])].set(v[: x.shape[2]])


def written_and_read(x: Any, v: Any, i: Any) -> Any:
    """As a decoder does: it appends to its cache, and reads all of it."""
    x = x.at[i].set(jnp.tanh(v))
    return x, jax.nn.softmax(x @ v) @ x


def of_its_old_row(x: Any, v: Any, i: Any) -> Any:
    return x.at[i].set(jnp.tanh(x[i]) + v)


WRITES = [
    (a_row, ARRAY),
    (a_slice, ARRAY),
    (rows_of_a_view, ARRAY),
    (a_column_of_each, BATCH),
    (a_column_of_its_own_for_each, BATCH),
    (written_and_read, ARRAY),
    (of_its_old_row, ARRAY),
]
NAMES = [fn.__name__ for fn, _ in WRITES]


def kernels(fn: Any, *args: Any) -> Any:
    return j2t.transpile(fn, *args, for_target="sm_90").kernels


@pytest.mark.parametrize(("fn", "x"), WRITES, ids=NAMES)
def test_no_kernel_writes_the_array(fn: Any, x: Any) -> None:
    for kernel in kernels(fn, x, ROW, jnp.int32(3)):
        assert all(buffer.nbytes < x.nbytes for buffer in kernel.outputs)


@pytest.mark.parametrize("place", [3, -1, 40])
@pytest.mark.parametrize(("fn", "x"), WRITES, ids=NAMES)
def test_values_are_those_of_jax(fn: Any, x: Any, place: int) -> None:
    found = j2t.fuse(fn, backend="interpret")(x, ROW, jnp.int32(place))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(fn(x, ROW, jnp.int32(place))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", [a_row, a_slice, of_its_old_row, written_and_read])
def test_gradients_are_those_of_jax(fn: Any) -> None:
    weights = jnp.asarray(rng.standard_normal((ROWS, COLUMNS)), jnp.float32)

    def pulled(f: Any) -> Any:
        return jax.grad(lambda x, v: (jax.tree.leaves(f(x, v, jnp.int32(5)))[0] * weights).sum(), (0, 1))

    wanted = pulled(fn)(ARRAY, ROW)
    for found in (pulled(j2t.fuse(fn, backend="interpret")), j2t.fuse(pulled(fn), backend="interpret")):
        for one, other in zip(found(ARRAY, ROW), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("fn", "x"), [WRITES[n] for n in (0, 1, 3, 6)], ids=[NAMES[n] for n in (0, 1, 3, 6)])
def test_a_donated_array_is_not_copied(fn: Any, x: Any) -> None:
    fused = jax.jit(j2t.fuse(fn, backend="interpret"), donate_argnums=0)
    made = fused.lower(x, ROW, jnp.int32(3)).compile()
    assert made.memory_analysis().alias_size_in_bytes == x.nbytes
    assert made.memory_analysis().temp_size_in_bytes < x.nbytes / 8
    shape = ",".join(map(str, x.shape))
    assert not [line for line in made.as_text().splitlines() if f"f32[{shape}]" in line and " copy(" in line]


def test_it_is_lowered_for_a_device_in_place() -> None:
    fused = jax.jit(j2t.fuse(a_row, backend="triton"), donate_argnums=0)
    text = fused.trace(ARRAY, ROW, jnp.int32(3)).lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in text.splitlines() if "stablehlo.custom_call" in line]
    whole = f"tensor<{ROWS}x{COLUMNS}xf32>"
    assert "tf.aliasing_output = 0" in text and "stablehlo.scatter" in text
    assert calls and not any(whole in line for line in calls)


def test_what_is_read_alone_is_chosen_on_the_way() -> None:
    def read(x: Any, v: Any, i: Any) -> Any:
        return 2 * x.at[i].set(v)

    (kernel,) = kernels(read, ARRAY, ROW, jnp.int32(3))
    assert kernel.bytes_written == ARRAY.nbytes


def test_an_old_array_that_is_read_later_stays() -> None:
    def both(x: Any, v: Any, i: Any) -> Any:
        return x.at[i].set(v), x.sum()

    def given_back(x: Any, v: Any, i: Any) -> Any:
        return x.at[i].set(v), x

    for fn in (both, given_back):
        assert any(ARRAY.nbytes in [each.nbytes for each in kernel.outputs] for kernel in kernels(fn, ARRAY, ROW, 3))


def test_a_small_array_is_written_by_the_kernel() -> None:
    assert len(kernels(a_row, ARRAY[:, :1024], ROW[:1024], jnp.int32(3))) == 1
    assert j2t.transpile(a_row, ARRAY[:, :1024], ROW[:1024], 3).leftovers == ()


def test_under_strict_a_kernel_copies_it() -> None:
    (kernel,) = j2t.transpile(a_row, ARRAY, ROW, jnp.int32(3), strict=True).kernels
    assert kernel.bytes_written == ARRAY.nbytes


def test_what_is_left_says_why_and_how_much() -> None:
    (left,) = j2t.transpile(a_row, ARRAY, ROW, jnp.int32(3)).leftovers
    assert (left.primitive, left.why) == (
        "scatter",
        "XLA writes 262,144 bytes in place, where a kernel would copy 4,194,304",
    )
    assert left.nbytes == 2 * (ROW.nbytes + 4)


def test_a_kernel_that_waits_for_it_says_so() -> None:
    def summed(x: Any, v: Any, i: Any) -> Any:
        x = x.at[i].set(jnp.tanh(v))
        return x, jnp.sin(x).sum(-1)

    text = " ".join(j2t.transpile(summed, ARRAY, ROW, jnp.int32(3)).explain(why=True).split())
    assert "`scatter` stays with XLA and comes first" in text
