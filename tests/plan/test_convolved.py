"""Which convolutions are kernels, and which XLA's library computes, where the user leaves it to an estimate."""

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
from tests.window_programs import convolved, image, lenet, numbers, parameters_of_lenet

Fn = Callable[..., Any]


def sizes(x: tuple[int, ...], w: tuple[int, ...], dtype: Any = jnp.bfloat16) -> list[Any]:
    return [jax.ShapeDtypeStruct(x, dtype), jax.ShapeDtypeStruct(w, dtype)]


def then_tanh(x: Any, w: Any) -> Any:
    return jnp.tanh(convolved(x, w))


def in_channels(x: Any, w: Any) -> Any:
    return jnp.tanh(convolved(x, w, layout="NCHW"))


def of_tanh(x: Any, w: Any) -> Any:
    return convolved(jnp.tanh(x), w)


def of_each_channel(x: Any, w: Any) -> Any:
    return jnp.tanh(convolved(x, w, groups=x.shape[-1]))


def is_ours(fn: Fn, *args: Any) -> bool:
    made = j2t.transpile(fn, *args)
    left = [each.why for each in made.leftovers if each.primitive == "conv_general_dilated"]
    told = [each for each in made.summary.steps if " is convolved in a kernel: with its launch" in each]
    assert len(left) + len(told) == 1
    times = r"a library takes about [\d,.]+ µs, and a kernel [\d,.]+ µs, and fusing its neighbours would save "
    times += r"(nothing|[\d,.]+ µs)"
    assert re.search(times, [*left, *told][0]) is not None
    return not left


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (then_tanh, sizes((32, 56, 56, 64), (3, 3, 64, 64))),
        (then_tanh, sizes((32, 56, 56, 64), (3, 3, 64, 64), np.float32)),
        (in_channels, sizes((32, 64, 28, 28), (3, 3, 64, 64), np.float32)),
        (of_each_channel, sizes((32, 56, 56, 64), (3, 3, 1, 64))),
    ],
)
def test_a_kernel_saves_enough(fn: Fn, args: Any) -> None:
    assert is_ours(fn, *args)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (convolved, sizes((32, 56, 56, 64), (3, 3, 64, 64))),  # nothing is around it
        (of_tanh, sizes((32, 56, 56, 64), (3, 3, 64, 64))),  # what it reads would be computed for each tap
        (then_tanh, sizes((32, 14, 14, 512), (3, 3, 512, 512))),  # too many products
        (in_channels, sizes((32, 64, 28, 28), (3, 3, 64, 64))),  # rows of 16 bits, along which windows are
    ],
)
def test_a_library_is_better(fn: Fn, args: Any) -> None:
    assert not is_ours(fn, *args)


def test_all_are_left_if_that_is_asked_for() -> None:
    made = j2t.transpile(then_tanh, *sizes((32, 56, 56, 64), (3, 3, 64, 64)), contractions="xla")
    assert [each.why for each in made.leftovers] == ['contractions="xla" leaves them to a library']


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_values_and_gradients_where_some_are_left(backend: str) -> None:
    rng = np.random.default_rng(0)
    args = parameters_of_lenet(rng), image(rng, 4, 28, 28, 1)
    ours = j2t.fuse(jax.value_and_grad(lenet, (0, 1)), backend=backend)
    with jax.default_matmul_precision("highest"):
        found, wanted = ours(*args), jax.jit(jax.value_and_grad(lenet, (0, 1)))(*args)
    assert any(each.primitive == "conv_general_dilated" for each in j2t.transpile(ours, *args).leftovers)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(np.abs(other).max()))


def test_what_loops_convolve_is_in_their_kernel() -> None:
    def run(x: Any, w: Any) -> Any:
        return lax.scan(lambda state, row: (jnp.tanh(convolved(state, w) + row), None), x[0], x)[0]

    rng = np.random.default_rng(0)
    x, w = image(rng, 3, 1, 4, 4, 2), numbers(rng, 3, 3, 2, 2)
    made = j2t.transpile(run, x, w)
    assert len(made.kernels) == 1 and not made.leftovers
    np.testing.assert_allclose(j2t.fuse(run, backend="interpret")(x, w), jax.jit(run)(x, w), rtol=1e-4, atol=1e-5)
