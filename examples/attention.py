"""Attention as users write it, each one kernel, and three with its gradients; nothing of all pairs is in memory.

    python -m examples.attention            how many kernels each becomes, those of flax and equinox too
    jaxpr2triton dump examples/attention.py:causal 'bf16[4,16,2048,64]' 'bf16[4,16,2048,64]' 'bf16[4,16,2048,64]'

Queries, keys and values are f[batch, heads, time, features].
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import jaxpr2triton as j2t

LIBRARIES = {  # with nothing changed in their code: the module of examples/libraries and its functions
    "flax": ("flax_networks", ("linen_attention", "nnx_attention")),
    "equinox": ("equinox_networks", ("attention",)),
}


def scores(q: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.asarray(math.sqrt(q.shape[-1]), q.dtype)


def weighed(scores: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(v.dtype), v)


def places(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None]


def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return weighed(scores(q, k), v)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Of the keys up to its own place: half of all steps are left out, and few of the others ask."""
    i, j = places(q, k)
    return weighed(jnp.where(i >= j, scores(q, k), -jnp.inf), v)


def windowed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Of the last 64 keys."""
    i, j = places(q, k)
    return weighed(jnp.where((i >= j) & (i - j < 64), scores(q, k), -jnp.inf), v)


def capped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return weighed(20 * jnp.tanh(scores(q, k) / 20), v)


def with_slopes(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The farther a key is, the less it weighs, in each head by another measure."""
    i, j = places(q, k)
    slope = 2.0 ** -jnp.arange(1, q.shape[1] + 1)[:, None, None]
    return weighed(scores(q, k) - (slope * jnp.abs(i - j)).astype(q.dtype), v)


def dropped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A tenth of the weights is dropped: which, each kernel finds out again."""
    weights = jax.nn.softmax(scores(q, k), -1)
    kept = jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.where(kept, weights / 0.9, 0).astype(v.dtype), v)


def with_normalizer(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The logarithm of the sum of each row as well, by which parts of the keys are brought together."""
    return plain(q, k, v), jax.nn.logsumexp(scores(q, k), -1)


def of_one_projection(x: jax.Array, w: jax.Array) -> jax.Array:
    """Queries, keys and values are parts of one product, f[batch, time, 3 * heads * 64], which a library makes."""
    batch, time, _ = x.shape
    q, k, v = (each.reshape(batch, time, -1, 64) for each in jnp.split(x @ w, 3, -1))
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8, -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, time, -1)


def of_jax(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """What JAX has for that, whose arrays have heads behind times."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def kernels(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Of the function, and of its result with the gradients of all arguments."""

    def pulled(args: Any, cotangent: Any) -> Any:
        out, pull = jax.vjp(function, *args)
        return out, pull(cotangent)

    made = j2t.transpile(function, *args, for_target="sm_90")
    both = j2t.transpile(pulled, args, jax.eval_shape(function, *args), for_target="sm_90")
    return len(made.kernels), len(both.kernels)


def lines() -> Iterator[str]:
    """What becomes of each program, at a size that is in use; one kernel of equinox multiplies for its queries."""
    shape = jax.ShapeDtypeStruct((4, 16, 2048, 64), jnp.bfloat16)
    for function in (plain, causal, windowed, capped, with_slopes, dropped, with_normalizer, of_jax):
        yield line(function.__name__, *kernels(function, *[shape] * 3))
    x, w = (jax.ShapeDtypeStruct(sizes, jnp.bfloat16) for sizes in ((4, 2048, 1024), (1024, 3072)))
    yield line("of_one_projection", *kernels(of_one_projection, x, w))
    for library, (module, names) in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            yield f"{library} is not installed: pip install {library}"
            continue
        examples = importlib.import_module(f"examples.libraries.{module}").EXAMPLES
        for example in (each for each in examples if each.name in names):
            args = jax.tree.map(longer, jax.eval_shape(example.arguments, jax.random.key(0)))
            yield line(f"{library}: {example.name}", *kernels(example.function, *args))


def longer(array: Any) -> Any:
    """The same with 2048 times for the 40 of an example."""
    return jax.ShapeDtypeStruct([2048 if size == 40 else size for size in array.shape], array.dtype)


def line(name: str, forward: int, both: int) -> str:
    return f"{name:<26} {forward} kernel{'s' * (forward > 1)}, {both} with gradients"


if __name__ == "__main__":
    for each in lines():
        print(each)
