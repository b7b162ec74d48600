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


def soft(scores: Any) -> Any:
    return jax.nn.softmax(scores, -1)


def scored(q: Any, k: Any) -> Any:
    return jnp.einsum("bhd,bthd->bht", q, k)


def weighed(weights: Any, v: Any) -> Any:
    return jnp.einsum("bht,bthd->bhd", weights, v)


def by_features(q: Any, k: Any, v: Any) -> Any:
    """Values have the shape of the weights."""
    return jnp.einsum("bht,bdt->bhd", soft(jnp.einsum("bhd,bdt->bht", q, k)), v)


def hidden_in_f32(q: Any, k: Any, v: Any) -> Any:
    scores = scored(q, k).astype(jnp.float32)
    return weighed(jax.nn.softmax(scores, -1, where=scores > -2).astype(q.dtype), v)


def dropped(q: Any, k: Any, v: Any) -> Any:
    weights = soft(scored(q, k).astype(jnp.float32)).astype(q.dtype)
    return weighed(jnp.where(jnp.arange(k.shape[1]) % 3 > 0, weights / 0.75, 0), v)


def transposed_ones(q: Any, k: Any, v: Any) -> Any:
    """Exponentials of which the maxima are those of other rows."""
    scores = scored(q, k) / 8
    turned = jnp.exp(scores.transpose(1, 0, 2) - scores.max(-1).T[..., None])
    return weighed(turned / jnp.sum(turned, -1, keepdims=True), v)


OF_OTHER_ROWS: dict[str, Callable[..., Any]] = {
    "turned around": lambda q, k, v: weighed(soft(scored(q, k))[::-1], v),
    "heads turned around": lambda q, k, v: weighed(soft(scored(q, k))[:, ::-1], v),
    "transposed": lambda q, k, v: weighed(soft(scored(q, k)).transpose(1, 0, 2), v),
    "of one head": lambda q, k, v: weighed(jnp.broadcast_to(soft(scored(q, k))[:, :1], (4, 4, k.shape[1])), v),
    "reshaped": lambda q, k, v: weighed(
        soft(scored(q, k)).reshape(2, 8, -1).swapaxes(0, 1).reshape(4, 4, k.shape[1]), v
    ),
    "exponentials turned around": lambda q, k, v: weighed(
        jnp.exp(scored(q, k)[::-1] - scored(q, k).max(-1, keepdims=True)[::-1]), v
    ),
    "exponentials transposed": transposed_ones,
    "plain": lambda q, k, v: weighed(soft(scored(q, k)), v),
}


@pytest.mark.parametrize("contractions", ["auto", "triton"])
@pytest.mark.parametrize("name", OF_OTHER_ROWS)
def test_weights_of_other_rows(name: str, contractions: str) -> None:
    """As many heads as sequences: what is reduced has the shape of what is multiplied, and other rows."""
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 4, 16), *[(4, 1300, 4, 16)] * 2))
    program = OF_OTHER_ROWS[name]
    with jax.default_matmul_precision("highest"):
        ours = j2t.fuse(program, backend="interpret", contractions=contractions)(3 * q, k, v)
        np.testing.assert_allclose(ours, jax.jit(program)(3 * q, k, v), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("contractions", ["auto", "triton"])
def test_values_of_the_shape_of_weights(contractions: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((1, 32, 32), *[(1, 32, 1300)] * 2))
    with jax.default_matmul_precision("highest"):
        ours = j2t.fuse(by_features, backend="interpret", contractions=contractions)(q, k, v)
        np.testing.assert_allclose(ours, jax.jit(by_features)(q, k, v), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("program", [hidden_in_f32, dropped, lambda q, k, v: weighed(-soft(scored(q, k)), v)])
def test_weights_of_16_bits(program: Callable[..., Any], dtype: Any) -> None:
    """Sums are divided before they are rounded."""
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=shape), dtype) for shape in ((2, 2, 16), *[(2, 1300, 2, 16)] * 2))
    ours = j2t.fuse(program, backend="interpret", strict=True, contractions="triton")(q, k, v)
    theirs = np.asarray(jax.jit(program)(q, k, v), np.float32)
    np.testing.assert_allclose(np.asarray(ours, np.float32), theirs, rtol=3e-2, atol=2e-2)


def test_parts_are_made_before_what_puts_them_together() -> None:
    """Eight queries: the sums of chunks are read where they come into memory."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(k @ q.T, 0).T @ v

    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((8, 32), (8192, 32), (8192, 32)))
    with jax.default_matmul_precision("highest"):
        ours = j2t.fuse(program, backend="interpret", strict=True, contractions="triton")(q, k, v)
        np.testing.assert_allclose(ours, jax.jit(program)(q, k, v), rtol=2e-5, atol=1e-5)


def test_sums_of_exponentials_of_other_rows() -> None:
    def program(x: Any) -> Any:
        return jnp.exp(x.transpose(1, 0, 2) - x.max(-1).T[..., None]).sum(-1)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 300000)), jnp.float32)
    x = x * jnp.asarray([[1, 2], [3, 9]])[..., None]
    ours = j2t.fuse(program, backend="interpret")(x)
    np.testing.assert_allclose(ours, jax.jit(program)(x), rtol=1e-4)


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
