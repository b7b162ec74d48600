"""Results that a kernel reads because another one writes them anyway."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

X = jnp.asarray(np.random.default_rng(0).standard_normal((4096, 96)), jnp.float32)


def counted(x: Any) -> Any:
    """The places of the largest two of each row, which another kernel counts."""
    places = jax.lax.top_k(jnp.sin(x), 2)[1]
    return places, jax.nn.one_hot(places, x.shape[1]).sum((0, 1))


def test_a_sum_over_rows_reads_what_is_written_for_each() -> None:
    first, *others = j2t.transpile(counted, X, for_target="sm_90").kernels
    assert first.bytes_read == X.nbytes and first.bytes_written == 8 * X.shape[0]
    assert others and others[0].bytes_read == first.bytes_written


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_values(backend: str) -> None:
    found = j2t.fuse(counted, backend=backend)(X[:300])
    for one, other in zip(found, jax.jit(counted)(X[:300]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_says_why() -> None:
    text = " ".join(j2t.transpile(counted, X, for_target="sm_90").explain(why=True).split())
    assert "another kernel writes it anyway, and it is less than what it is made of" in text


def test_what_readers_make_of_a_sum_is_made_once() -> None:
    """The logarithm of each row's sum, and not the sum: others would take it for each element."""
    wide = jax.ShapeDtypeStruct((2, 1_000_000), jnp.float32)
    *_, first, last = j2t.transpile(jax.nn.log_softmax, wide, for_target="sm_90").kernels
    assert "tl.log(" in first.source and "tl.log(" not in last.source


def test_what_readers_make_differs() -> None:
    """One takes its logarithm, another one itself: the sum is written."""

    def both(x: Any, y: Any) -> Any:
        total = jnp.exp(x).sum(-1, keepdims=True)
        return y - jnp.log(total), y.T * total[:, 0]

    x, y = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 1_000_000), (2, 300_000)))
    kernels = j2t.transpile(both, x, y, for_target="sm_90").kernels
    assert any("tl.log(" in kernel.source for kernel in kernels[-2:])


def test_what_one_kernel_makes_of_both_stays_so() -> None:
    def both(x: Any) -> Any:
        total = x.sum(-1)
        return total, x / total[:, None]

    (kernel,) = j2t.transpile(both, X, for_target="sm_90").kernels
    assert kernel.bytes_read == X.nbytes
