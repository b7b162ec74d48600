"""Layers of language models, written with `jax.numpy` alone, and attention as cuDNN has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tests.programs import rms_norm


def attention(causal: bool, of_q: str = "bhqd", of_k: str = "bhkd") -> Callable[..., Any]:
    """q, k, v: [batch, heads, tokens, features], or as their dimensions are named."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum(f"{of_q},{of_k}->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
        if causal:
            scores = jnp.where(jnp.tri(scores.shape[-2], scores.shape[-1], dtype=bool), scores, -jnp.inf)
        return jnp.einsum(f"bhqk,{of_k}->{of_q}", jax.nn.softmax(scores).astype(v.dtype), v)

    return attend


def attention_of_tokens(causal: bool) -> Callable[..., Any]:
    """q, k, v: [batch, tokens, heads, features], as kernels for attention have them."""
    return attention(causal, "bqhd", "bkhd")


def cudnn_attention_of_tokens(causal: bool, implementation: Any = "cudnn") -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=implementation)

    return attend


def cudnn_attention(causal: bool, implementation: Any = "cudnn") -> Callable[..., Any]:
    """Its heads stand behind its tokens, so that transposes are part of it."""
    attend = cudnn_attention_of_tokens(causal, implementation)
    return lambda q, k, v: attend(*(each.swapaxes(1, 2) for each in (q, k, v))).swapaxes(1, 2)


def decode(q: Any, keys: Any, values: Any, lengths: Any) -> Any:
    """One new token for each sequence; q: [batch, heads, features], caches: [batch, heads, tokens, features]."""
    scores = jnp.einsum("bhd,bhtd->bht", q, keys, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.arange(keys.shape[2]) < lengths[:, None, None], scores, -jnp.inf)
    return jnp.einsum("bht,bhtd->bhd", jax.nn.softmax(scores).astype(values.dtype), values)


def swiglu(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def block(params: Any, x: Any) -> Any:
    """Causal attention and two layers, each added to its input; x: [batch, tokens, features]."""
    batch, tokens, features = x.shape
    heads = features // 64
    joined = rms_norm(x, params["scale"]) @ params["qkv"]
    q, k, v = jnp.moveaxis(joined.reshape(batch, tokens, 3, heads, 64), 2, 0)
    x = x + attention_of_tokens(True)(q, k, v).reshape(x.shape) @ params["out"]
    return x + jax.nn.gelu(rms_norm(x, params["scale_2"]) @ params["up"]) @ params["down"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()


def linear_cross_entropy(x: Any, w: Any, labels: Any) -> Any:
    """w: [words, features], as embeddings are."""
    return cross_entropy(jnp.einsum("td,wd->tw", x, w, preferred_element_type=jnp.float32), labels)
