"""Which contractions are kernels, and which XLA's library computes, where the user leaves it to an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.plan.library import Estimate, estimates_of
from jaxpr2triton.policy import COMMON, DEFAULT_POLICY

Fn = Callable[..., Any]


def square(size: int, dtype: Any = jnp.bfloat16) -> list[Any]:
    return [jax.ShapeDtypeStruct((size, size), dtype)] * 2


def estimated(fn: Fn, *args: Any) -> Estimate:
    made = j2t.transpile(fn, *args)
    (found,) = estimates_of(made.compiled.stages["normalize"].jaxpr, DEFAULT_POLICY).values()
    assert found.is_ours != any(leftover.primitive == "dot_general" for leftover in made.leftovers)
    return found


def then_tanh(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def of_tanh(x: Any, w: Any) -> Any:
    return jnp.tanh(x) @ w


def twice(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w) @ w


def of_tanh_and_tanh(x: Any, w: Any) -> Any:
    x = jnp.tanh(x)
    return x @ w, x


def turned(x: Any, w: Any) -> Any:
    return (x.T @ w).T


def products_and_tanh(x: Any, w: Any) -> Any:
    return x @ w, jnp.tanh(x @ w)


def sum_of_products(x: Any, w: Any) -> Any:
    return (x @ w).sum()


@pytest.mark.parametrize("fn", [then_tanh, of_tanh])
@pytest.mark.parametrize("size", [64, 512, 1024])
def test_what_is_saved_is_worth_it(fn: Fn, size: int) -> None:
    found = estimated(fn, *square(size))
    assert found.is_ours
    assert found.saved > 3


@pytest.mark.parametrize("fn", [jnp.matmul, turned, of_tanh_and_tanh, sum_of_products])
@pytest.mark.parametrize("size", [64, 1024])
def test_nothing_is_saved(fn: Fn, size: int) -> None:
    found = estimated(fn, *square(size))
    assert found.saved == 0
    assert not found.is_ours


def test_large_ones_have_too_little_around_them() -> None:
    found = estimated(then_tanh, *square(4096))
    assert 0 < found.saved < found.kernel - found.library


def test_all_bits_take_as_long_either_way() -> None:
    with jax.default_matmul_precision("highest"):
        found = estimated(then_tanh, *square(4096, jnp.float32))
    assert found.is_ours
    assert found.kernel == found.library


def test_rows_of_odd_lengths_are_left() -> None:
    assert estimated(then_tanh, *square(1024)).is_ours
    assert not estimated(then_tanh, *square(1023)).is_ours
    assert estimated(then_tanh, *square(1024, jnp.float32)).is_ours
    assert not estimated(then_tanh, *square(1023, jnp.float32)).is_ours


def test_one_pass_is_saved_once() -> None:
    """What stands between two products is a pass of the first one."""
    made = j2t.transpile(twice, *square(512))
    first, second = estimates_of(made.compiled.stages["normalize"].jaxpr, DEFAULT_POLICY).values()
    assert first.saved > 0
    assert second.saved == 0


def chain(x: Any, weights: Any) -> Any:
    for w in weights:
        x = x @ w
    return x


def of_chain(columns: int, weights: int, dtype: Any = jnp.float32) -> list[Any]:
    w = jax.ShapeDtypeStruct((columns, columns), dtype)
    return [jax.ShapeDtypeStruct((64, columns), dtype), [w] * weights]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_small_products_of_each_other_are_few_launches(dtype: Any) -> None:
    made = j2t.transpile(chain, *of_chain(16, 40, dtype))
    assert not made.leftovers and len(made.kernels) <= 40 // COMMON.few
    found = estimates_of(made.compiled.stages["normalize"].jaxpr, DEFAULT_POLICY).values()
    first, second, *_, last = (each.saved for each in found)
    assert first == last > DEFAULT_POLICY.products.launch_after_gap_us / 2 and second == pytest.approx(2 * first)


def test_rows_that_no_program_holds_are_written() -> None:
    """As many columns as one program has, and twice as many; half as many where all bits are multiplied."""
    most = COMMON.side_of_a_matrix
    assert not j2t.transpile(chain, *of_chain(most, 3)).leftovers
    assert len(j2t.transpile(chain, *of_chain(2 * most, 3)).leftovers) == 3
    with jax.default_matmul_precision("highest"):
        assert len(j2t.transpile(chain, *of_chain(most, 3)).leftovers) == 3
        assert not j2t.transpile(chain, *of_chain(most // 2, 3)).leftovers


def products_read_twice(x: Any, w: Any) -> Any:
    y = x @ w
    return y, y @ w


def products_in_batches(x: Any, w: Any) -> Any:
    return jnp.einsum("bij,bjk->bik", (x @ w).reshape(8, 8, 64), x.reshape(8, 8, 64).swapaxes(1, 2))


@pytest.mark.parametrize("fn", [products_read_twice, products_in_batches])
def test_products_that_are_not_handed_over(fn: Fn) -> None:
    made = j2t.transpile(fn, *square(64, jnp.float32))
    assert len(made.leftovers) == 2


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_values_and_gradients_of_a_chain(backend: Any) -> None:
    shapes, rng = of_chain(16, 5), np.random.default_rng(0)
    args = jax.tree.map(lambda shape: rng.standard_normal(shape.shape).astype(shape.dtype) / 4, shapes)

    def loss(x: Any, weights: Any) -> Any:
        return (chain(x, weights) ** 2).sum()

    with jax.default_matmul_precision("highest"):
        for fn in (chain, jax.grad(loss, (0, 1))):
            found, expected = j2t.fuse(fn, backend=backend)(*args), jax.jit(fn)(*args)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_both_results_are_read() -> None:
    """The products have to be written anyway."""
    assert not estimated(products_and_tanh, *square(512)).is_ours


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_a_library_reads_its_factors_as_they_are(order: tuple[int, ...]) -> None:
    """Where a transpose moves what is summed, or the batch; but not what is left, whose order a result has."""

    def program(x: Any, w: Any) -> Any:
        return lax.dot_general(x.transpose(order), w, (((order.index(2),), (1,)), ((order.index(0),), (0,))))

    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((3, 5, 4), (3, 4, 6)))
    made = j2t.transpile(program, x, w, contractions="xla")
    assert not made.kernels
    (left,) = made.leftovers
    assert left.primitive == "dot_general"
    ours = j2t.fuse(program, backend="interpret", contractions="xla")(x, w)
    np.testing.assert_allclose(ours, program(x, w), rtol=1e-6)


def test_what_is_left_of_a_factor_keeps_its_order() -> None:
    """Its rows are in the order of the result, into which a kernel brings them."""

    def program(x: Any, w: Any) -> Any:
        return lax.dot_general(jnp.tanh(x).transpose(1, 0, 2), w, (((2,), (0,)), ((), ())))

    x, w = jnp.ones((3, 5, 4)), jnp.ones((4, 6))
    made = j2t.transpile(program, x, w, contractions="xla")
    assert [buffer.shape for kernel in made.kernels for buffer in kernel.outputs] == [(5, 3, 4)]


def test_the_reason_has_both_estimates() -> None:
    (leftover,) = j2t.transpile(then_tanh, *square(4096)).leftovers
    times = r"with its launch a library takes about (\d+) µs, and a kernel (\d+) µs, "
    times += r"and fusing its neighbours would save (\d+) µs"
    found = re.fullmatch(times, leftover.why)
    assert found is not None
    library, kernel, saved = map(int, found.groups())
    assert library + saved < kernel
    assert leftover.takes == 'contractions="triton" makes a kernel of it'


def test_a_product_of_little_costs_a_launch() -> None:
    """What is told is never less than that, however little there is to multiply."""
    made = j2t.transpile(lambda x, w: (x @ w, x), *square(4))
    assert [each.why for each in made.leftovers] == [
        "with its launch a library takes about 4 µs, and a kernel 4 µs, and fusing its neighbours would save nothing"
    ]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_values(backend: str, dtype: Any) -> None:
    """On a CPU f32 is multiplied as JAX multiplies it there; 16 bits as on sm_80, where it would be sm_90."""
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.standard_normal(shape), dtype) for shape in ((70, 80), (80, 90)))
    fn = jax.value_and_grad(lambda x, w: jnp.tanh(x @ w / 9).sum(), (0, 1))
    expected = jax.jit(fn)(x.astype(jnp.float32), w.astype(jnp.float32))
    found = j2t.fuse(fn, backend=backend)(x, w)
    bound = 2e-6 if dtype == jnp.float32 else 2e-2
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), other, atol=bound * np.abs(other).max(), rtol=0)


def test_devices_multiply_as_xla_does_there() -> None:
    (kernel,) = j2t.transpile(then_tanh, *square(64, jnp.float32)).kernels
    assert "input_precision='tf32'" in kernel.source
    (kernel,) = j2t.transpile(then_tanh, *square(64, jnp.float32), for_target="gfx942").kernels
    assert "input_precision='ieee'" in kernel.source


def test_explain_says_both() -> None:
    told = " ".join(j2t.transpile(then_tanh, *square(512)).explain(why=True).split())
    where = r"bf16\[512,512\] of test_library.py:\d+ \(then_tanh\)"
    assert re.search(where + " is multiplied in a kernel: with its launch a library takes", told)


@pytest.mark.parametrize("groups", [2, 8, 128])
def test_rows_of_groups_are_multiplied_in_a_kernel(groups: int) -> None:
    """A library multiplies each row with the matrices of all groups."""
    sizes = jax.ShapeDtypeStruct((groups,), np.int32)
    rows, matrices = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4096, 512), (groups, 512, 512)))
    made = j2t.transpile(lax.ragged_dot, rows, matrices, sizes)
    assert not made.leftovers
    (found,) = estimates_of(made.compiled.stages["normalize"].jaxpr, DEFAULT_POLICY).values()
    assert found.is_ours
