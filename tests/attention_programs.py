"""Queries that look at keys, as libraries and users write it: f[batch, heads, time, features] each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples import attention
from examples.attention import places, scores, weighed
from tests.contraction import sized, spec_of

HIDING = 2.0**-1 * float(np.finfo(np.float32).min)  # as libraries write it, a number as low as can be


def hidden(shown: Callable[..., Any], fill: float) -> Callable[..., Any]:
    """Where `shown` of the places of queries and keys does not hold the scores are this number."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return weighed(jnp.where(shown(*places(q, k)), scores(q, k), fill), v)

    return program


def masked_softmax(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores(q, k), -1, where=i >= j), v)


def segments(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return weighed(jnp.where((i // 50 == j // 50) & (i >= j), scores(q, k), -jnp.inf), v)


def lengths(q: Any, k: Any, v: Any) -> Any:
    """One of them is nothing: then all keys are."""
    length = (jnp.arange(q.shape[1]) * 77)[None, :, None, None]
    _, j = places(q, k)
    return weighed(jnp.where(j < length, scores(q, k), HIDING), v)


def linear(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.where(i >= j, jnp.einsum("bhqd,bhkd->bhqk", q, k), 0) / 16, v)


def in_vmap(q: Any, k: Any, v: Any) -> Any:
    return jax.vmap(jax.vmap(lambda q, k, v: jax.nn.softmax(q @ k.T / 4) @ v))(q, k, v)


def of_library(**options: Any) -> Callable[..., Any]:
    """`jax.nn.dot_product_attention`, whose arrays have heads behind times."""

    def program(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, **options)

    return program


def with_lengths_of_library(q: Any, k: Any, v: Any) -> Any:
    return of_library(key_value_seq_lengths=jnp.full(len(q), 100))(q, k, v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    """All heads of queries look at the same keys."""
    return of_library()(q, k[:, :1], v[:, :1])


def rows_without_keys(q: Any, k: Any, v: Any) -> Any:
    return hidden(lambda i, j: i - 70 >= j, HIDING)(q, k, v)


PROGRAMS: Mapping[str, Callable[..., Any]] = {
    "plain": attention.plain,
    "causal": attention.causal,
    "causal, hidden by a number": hidden(lambda i, j: i >= j, HIDING),
    "window": attention.windowed,
    "later ones": hidden(lambda i, j: i <= j, HIDING),
    "rows without keys": rows_without_keys,
    "masked softmax": masked_softmax,
    "capped": attention.capped,
    "slopes": attention.with_slopes,
    "segments": segments,
    "lengths": lengths,
    "dropped": attention.dropped,
    "with its normalizer": attention.with_normalizer,
    "linear": linear,
    "in vmap": in_vmap,
    "in checkpoint": jax.checkpoint(attention.plain),
    "library": of_library(),
    "library, causal": attention.of_jax,
    "library, window": of_library(is_causal=True, local_window_size=(32, 0)),
    "library, lengths": with_lengths_of_library,
    "library, grouped": grouped,
}


@dataclass(frozen=True)
class Variant:
    """Attention of other arrays than queries, keys and values alone, or of other shapes."""

    fn: Callable[..., Any]
    small: Sequence[str]  # the shapes of its arguments, to be compared with JAX
    full: Sequence[str]  # and as people have them
    operands: int = 3  # the first so many have gradients
    tolerance: float = 2e-5

    def pulled(self, *args: Any) -> Any:
        """The result, and the gradients that a cotangent leads to, which comes last."""
        *args, cotangent = args
        rest = args[self.operands :]
        out, pull = jax.vjp(lambda *operands: self.fn(*operands, *rest), *args[: self.operands])
        return out, pull(cotangent)

    def with_cotangent(self, shapes: Sequence[str]) -> tuple[Any, ...]:
        """The arguments of `pulled`."""
        return *shapes, jax.tree.map(spec_of, jax.eval_shape(self.fn, *map(sized, shapes)))


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return weighed(scores(q, k) + bias, v)


def relative(q: Any, k: Any, v: Any, table: Any) -> Any:
    """A bias for each head and distance, up to the largest one that the table has."""
    i, j = places(q, k)
    far = table.shape[1] // 2
    return biased(q, k, v, table[:, jnp.clip(i - j, -far, far) + far])


def masked(fill: float) -> Callable[..., Any]:
    return lambda q, k, v, mask: weighed(jnp.where(mask, scores(q, k), fill), v)


def causal_of_a_matrix(q: Any, k: Any, v: Any) -> Any:
    """A mask as a matrix of numbers, which multiplies, and is subtracted."""
    ones = jnp.tril(jnp.ones((q.shape[2], k.shape[2]), q.dtype))
    return weighed(scores(q, k) * ones - 1e9 * (1 - ones), v)


def of_documents(q: Any, k: Any, v: Any, documents: Any) -> Any:
    """Causal, and only within a document."""
    i, j = places(q, k)
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return weighed(jnp.where(same & (i >= j), scores(q, k), -jnp.inf), v)


def up_to_lengths(q: Any, k: Any, v: Any, length: Any) -> Any:
    _, j = places(q, k)
    return weighed(jnp.where(j <= length[:, None, None, None], scores(q, k), -jnp.inf), v)


def dropped_by_key(q: Any, k: Any, v: Any, key: Any) -> Any:
    """As libraries write it: a factor that is zero, or more than one."""
    weights = jax.nn.softmax(scores(q, k), -1)
    kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, weights.shape).astype(weights.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights * (kept / jnp.asarray(0.9, kept.dtype)), v)


def in_f32(q: Any, k: Any, v: Any) -> Any:
    """The softmax alone has more bits."""
    weights = jax.nn.softmax(scores(q, k).astype(jnp.float32), -1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights.astype(v.dtype), v)


def in_a_preset(q: Any, k: Any, v: Any) -> Any:
    """What is multiplied and added up in which type."""
    how = {"precision": lax.DotAlgorithmPreset.BF16_BF16_F32, "preferred_element_type": jnp.float32}
    weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k, **how) / 8, -1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v, **how).astype(q.dtype)


def capped_and_causal(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return weighed(jnp.where(i >= j, 30 * jnp.tanh(scores(q, k) / 30), -jnp.inf), v)


def with_slopes_and_causal(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    slope = 2.0 ** (-8 * jnp.arange(1, q.shape[1] + 1) / q.shape[1])
    bias = (slope[:, None, None] * (i - j)).astype(q.dtype)
    return weighed(jnp.where(i >= j, scores(q, k) - bias, -jnp.inf), v)


def heads_in_the_middle(q: Any, k: Any, v: Any) -> Any:
    """f[batch, time, heads, features], as most libraries have it."""
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4, -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def batch_last(q: Any, k: Any, v: Any) -> Any:
    """f[time, features, batch]."""
    return jnp.einsum("qkb,kdb->qdb", jax.nn.softmax(jnp.einsum("qdb,kdb->qkb", q, k) / 4, 1), v)


def in_groups(q: Any, k: Any, v: Any) -> Any:
    """f[batch, time, heads, features], where several heads look at the same keys."""
    batch, time, heads, features = q.shape
    q = q.reshape(batch, time, k.shape[2], -1, features)
    weights = jax.nn.softmax(jnp.einsum("btgnd,bsgd->bgnts", q, k) / 4, -1)
    return jnp.einsum("bgnts,bsgd->btgnd", weights, v).reshape(batch, time, heads, features)


def of_one_head_of_keys(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkd->bhqk", q, k) / 4, -1)
    return jnp.einsum("bhqk,bkd->bqhd", weights, v)


def without_a_maximum(q: Any, k: Any, v: Any) -> Any:
    weights = jnp.exp(scores(q, k))
    return jnp.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)


def weights_by_themselves(q: Any, k: Any, v: Any) -> Any:
    """No weight depends on the other ones of its row."""
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.sigmoid(scores(q, k)), v)


def of_one_reshaped(x: Any, w: Any) -> Any:
    """Queries, keys and values as the first ones of a dimension."""
    made = (x @ w).reshape(*x.shape[:2], 3, -1, 64)
    return heads_in_the_middle(made[:, :, 0], made[:, :, 1], made[:, :, 2])


def of_one_by_heads(x: Any, w: Any) -> Any:
    """Queries, keys and values of each head side by side."""
    return heads_in_the_middle(*jnp.split((x @ w).reshape(*x.shape[:2], -1, 192), 3, -1))


def rotated(heads: Any) -> Any:
    """Halves of features, turned by an angle that grows with time: f[batch, time, heads, features]."""
    one, other = jnp.split(heads, 2, -1)
    angle = jnp.arange(heads.shape[1])[:, None, None] / 10_000 ** jnp.linspace(0, 1, one.shape[-1], False)
    cos, sin = jnp.cos(angle).astype(heads.dtype), jnp.sin(angle).astype(heads.dtype)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], -1)


def of_rotated(q: Any, k: Any, v: Any) -> Any:
    return heads_in_the_middle(rotated(q), rotated(k), v)


def of_three_projections(x: Any, *weights: Any) -> Any:
    return heads_in_the_middle(*((x @ w).reshape(*x.shape[:2], -1, 64) for w in weights))


def with_mask_of_library(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, mask=mask)


def with_bias_of_library(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, bias=bias)


def with_residual_of_library(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, return_residual=True)


SMALL, FULL = ("f32 1 2 40 16",) * 3, ("bf16 4 16 2048 64",) * 3
MIDDLE, FULL_MIDDLE = ("f32 1 40 4 16",) * 3, ("bf16 4 2048 16 64",) * 3
ONE, FULL_ONE = ("f32 1 40 32", "f32 32 384"), ("bf16 4 2048 1024", "bf16 1024 3072")

VARIANTS: Mapping[str, Variant] = {
    "bias": Variant(biased, (*SMALL, "f32 40 40"), (*FULL, "bf16 2048 2048")),
    "bias_of_heads": Variant(biased, (*SMALL, "f32 2 40 40"), (*FULL, "bf16 16 2048 2048")),
    "bias_of_keys": Variant(biased, (*SMALL, "f32 1 1 1 40"), (*FULL, "bf16 4 1 1 2048")),
    "relative_bias": Variant(relative, (*SMALL, "f32 2 21"), (*FULL, "bf16 16 255")),
    "mask": Variant(masked(-1e9), (*SMALL, "bool 1 1 40 40"), (*FULL, "bool 4 1 2048 2048")),
    "mask_of_keys": Variant(masked(HIDING), (*SMALL, "bool 1 1 1 40"), (*FULL, "bool 4 1 1 2048")),
    "causal_of_a_matrix": Variant(causal_of_a_matrix, SMALL, FULL),
    "of_documents": Variant(of_documents, (*SMALL, "i32 1 40"), (*FULL, "i32 4 2048")),
    "up_to_lengths": Variant(up_to_lengths, (*SMALL, "i32 1"), (*FULL, "i32 4")),
    "dropped_by_key": Variant(dropped_by_key, (*SMALL, "u32 2"), (*FULL, "u32 2")),
    "in_f32": Variant(in_f32, ("bf16 1 2 40 16",) * 3, FULL, tolerance=2e-2),
    "in_a_preset": Variant(in_a_preset, ("bf16 1 2 40 16",) * 3, FULL, tolerance=2e-2),
    "capped_and_causal": Variant(capped_and_causal, SMALL, FULL),
    "with_slopes_and_causal": Variant(with_slopes_and_causal, SMALL, FULL),
    "without_a_maximum": Variant(without_a_maximum, SMALL, FULL),
    "weights_by_themselves": Variant(weights_by_themselves, SMALL, FULL),
    "heads_in_the_middle": Variant(heads_in_the_middle, MIDDLE, FULL_MIDDLE),
    "batch_last": Variant(batch_last, ("f32 40 16 2",) * 3, ("bf16 2048 64 32",) * 3),
    "in_checkpoint": Variant(jax.checkpoint(heads_in_the_middle), MIDDLE, FULL_MIDDLE),
    "across": Variant(
        attention.plain,
        ("f32 1 2 24 16", *["f32 1 2 50 16"] * 2),
        ("bf16 4 16 300 64", *["bf16 4 16 1500 64"] * 2),
    ),
    "in_groups": Variant(
        in_groups, ("f32 1 40 4 16", *["f32 1 40 2 16"] * 2), ("bf16 4 2048 16 64", *["bf16 4 2048 4 64"] * 2)
    ),
    "of_one_head_of_keys": Variant(
        of_one_head_of_keys, ("f32 1 40 4 16", *["f32 1 40 16"] * 2), ("bf16 4 2048 16 64", *["bf16 4 2048 64"] * 2)
    ),
    "mask_of_library": Variant(
        with_mask_of_library, (*MIDDLE, "bool 1 1 40 40"), (*FULL_MIDDLE, "bool 4 1 2048 2048"), tolerance=1e-4
    ),
    "bias_of_library": Variant(with_bias_of_library, (*MIDDLE, "f32 1 4 40 40"), (*FULL_MIDDLE, "bf16 1 16 2048 2048")),
    "residual_of_library": Variant(with_residual_of_library, MIDDLE, FULL_MIDDLE),
}

PROJECTED: Mapping[str, Variant] = {
    "of_one_projection": Variant(attention.of_one_projection, ONE, FULL_ONE, 2),
    "of_one_reshaped": Variant(of_one_reshaped, ONE, FULL_ONE, 2),
    "of_one_by_heads": Variant(of_one_by_heads, ONE, FULL_ONE, 2),
    "of_three_projections": Variant(
        of_three_projections,
        ("f32 1 40 32", *["f32 32 128"] * 3),
        ("bf16 4 2048 1024", *["bf16 1024 1024"] * 3),
        4,
    ),
}
