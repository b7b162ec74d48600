"""One query, or a few, and the keys of all that came before: what they look at is read once, and by all processors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

TIMES = 8192


def one_query(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """f[batch, heads, features], and keys f[batch, times, heads, features]."""
    scores = jnp.einsum("bhd,bthd->bht", q, k) / 4
    seen = jnp.arange(k.shape[1]) < lengths[:, None, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    return jnp.einsum("bht,bthd->bhd", weights.astype(v.dtype), v)


def turned(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """With the keys of a head next to each other."""
    return one_query(q, k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3), lengths)


def in_groups(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """f[batch, heads of keys, heads that look at them, features]."""
    scores = jnp.einsum("bkgd,btkd->bkgt", q, k) / 4
    seen = jnp.arange(k.shape[1]) < lengths[:, None, None, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    return jnp.einsum("bkgt,btkd->bkgd", weights.astype(v.dtype), v)


def of_jax(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)


def shapes(batch: int, times: int, heads: int, features: int) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Each program, with the shapes of its arrays."""
    keys, fewer = (batch, times, heads, features), (batch, times, heads // 4, features)
    turned_keys = (batch, heads, times, features)
    return {
        "one": (one_query, [(batch, heads, features), keys, keys]),
        "turned": (turned, [(batch, heads, features), turned_keys, turned_keys]),
        "in groups": (in_groups, [(batch, heads // 4, 4, features), fewer, fewer]),
        "library": (of_jax, [(batch, 1, heads, features), keys, keys]),
        "library, in groups": (of_jax, [(batch, 1, heads, features), fewer, fewer]),
        "library, several": (of_jax, [(batch, 7, heads, features), keys, keys]),
    }


NAMES = list(shapes(1, 1, 4, 1))
COMPILED = ("one", "in groups", "library, several")


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "interpret") for name in NAMES), *((name, "machine") for name in COMPILED)]
)
def test_values(name: str, backend: str) -> None:
    """Chunks of 512 keys, the last one shorter; some are hidden altogether, and some rows have no keys at all."""
    program, sizes = shapes(3, 1200, 4, 32)[name]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in sizes]
    lengths = jnp.asarray((1200, 513, 0))
    with jax.default_matmul_precision("highest"):
        ours = j2t.fuse(program, backend=backend, strict=True, contractions="triton")(*args, lengths)
        theirs = jax.jit(program)(*args, lengths)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    program, sizes = shapes(2, 1200, 4, 32)[name]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in sizes]
    lengths = jnp.asarray((1200, 700))

    def loss(program: Callable[..., Any]) -> Callable[..., Any]:
        return jax.value_and_grad(lambda q, k, v: jnp.sum(program(q, k, v, lengths) ** 2), (0, 1, 2))

    how = {"backend": "interpret", "strict": True, "contractions": "triton"}
    with jax.default_matmul_precision("highest"):
        theirs = jax.jit(loss(program))(*args)
        for ours in (j2t.fuse(loss(program), **how)(*args), loss(j2t.fuse(program, **how))(*args)):
            for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6 * float(jnp.max(jnp.abs(other))))


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", NAMES)
def test_keys_are_read_once_by_all_processors(name: str, batch: int) -> None:
    """By one kernel where there are queries enough, else by one for all chunks, and one that puts these together."""
    program, sizes = shapes(batch, TIMES, 32, 128)[name]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in sizes]
    made = j2t.transpile(program, *arrays, jax.ShapeDtypeStruct((batch,), jnp.int32), for_target="sm_90")
    assert not made.leftovers and len(made.kernels) <= 2
    assert math.prod(made.kernels[0].grid) >= 128
    least = sum(array.size * array.dtype.itemsize for array in arrays)
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in made.kernels) <= 1.05 * least


def test_sums_behind_what_is_made_of_all_keys() -> None:
    """What depends on the result of all keys is not made of a chunk's."""

    def program(x: Any, w: Any) -> Any:
        e = jnp.exp(x - jnp.max(x, 1, keepdims=True))
        return jnp.sum(e * ((e @ w) @ w.T), 1)

    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 60000), (60000, 4)))
    for contractions in ("auto", "triton"):
        ours = j2t.fuse(program, backend="interpret", contractions=contractions)(x, w / 100)
        np.testing.assert_allclose(ours, jax.jit(program)(x, w / 100), rtol=1e-4)
