"""Programs of random numbers, for the tests of `normalize/random/unkey.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

KEY, RAW = random.key(3), random.PRNGKey(3)
KEYS, RAWS = random.split(KEY, 4), random.split(RAW, 4)
INDEX = np.array([1, 0, 3])
MOST = np.arange(5, dtype=np.float32)


def pair(key: Any) -> Any:
    one, other = random.split(key)
    return one, other


DRAWS: dict[str, tuple[Callable[..., Any], Any]] = {
    "normal": (lambda k: random.normal(k, (7, 3)), KEY),
    "normal, raw": (lambda k: random.normal(k, (7, 3)), RAW),
    "normal, one": (lambda k: random.normal(k), KEY),
    "normal, axes of 1": (lambda k: random.normal(k, (1, 3, 1)) + random.normal(k, (1, 1)), KEY),
    "normal, none": (lambda k: random.normal(k, (0, 3)), KEY),
    "normal, 16 bits": (lambda k: (random.normal(k, (5,), jnp.bfloat16), random.normal(k, (), jnp.float16)), KEY),
    "uniform": (lambda k: random.uniform(k, (5,), minval=-2.0, maxval=3.0), KEY),
    "bits": (lambda k: [random.bits(k, (5, 3), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bits, one": (lambda k: [random.bits(k, (), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bits, even": (lambda k: [random.bits(k, (2, 4), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, (9,)), KEY),
    "categorical": (lambda k, x: random.categorical(k, x, shape=(6,)), (KEY, MOST)),
    "categorical without replacement": (lambda k, x: random.categorical(k, x, shape=(3,), replace=False), (KEY, MOST)),
    "randint": (lambda k: random.randint(k, (8,), 0, 100), KEY),
    "randint, 8 bits": (lambda k: random.randint(k, (3,), 0, 100, jnp.int8), KEY),
    "choice": (lambda k, x: random.choice(k, x, (3,)), (KEY, MOST)),
    "choice, weighted": (lambda k, x: random.choice(k, x, (3,), p=x / 10), (KEY, MOST)),
    "permutation": (lambda k: random.permutation(k, 10), KEY),
    "exponential": (lambda k: random.exponential(k, (3,)), KEY),
    "gumbel": (lambda k: random.gumbel(k, (3,)), KEY),
    "truncated normal": (lambda k: random.truncated_normal(k, -1.0, 1.0, (3,)), KEY),
    "laplace, cauchy, rademacher": (
        lambda k: (random.laplace(k, (3,)), random.cauchy(k, (2,)), random.rademacher(k, (4,))),
        KEY,
    ),
}
KEY_PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "seed": (lambda s: random.key(s), 42),
    "seeds": (lambda s: (random.PRNGKey(s), jax.vmap(random.key)(jnp.stack([s, -s]))), -42),
    "known seed": (lambda x: random.normal(random.key(17), (3,)) + x, 1.0),
    "split": (lambda k: random.split(k), KEY),
    "split, raw": (lambda k: random.split(k, 3), RAW),
    "split, one": (lambda k: (random.split(k, 1), random.split(k, 1)[0]), KEY),
    "split, axes": (lambda k: (random.split(k, (2, 3)), random.split(k, (2, 3))[1, 2]), KEY),
    "split, pairs": (pair, KEY),
    "split, pairs, raw": (pair, RAW),
    "split, rest": (lambda k: random.split(k, 5)[1:], KEY),
    "split, strides": (lambda k: random.split(k, 5)[1::2], KEY),
    "split, many": (lambda k: random.split(k, 5)[-1], KEY),
    "split, computed index": (lambda k, i: random.split(k, 5)[i], (KEY, -2)),
    "split, computed index, raw": (lambda k, i: random.split(k, 5)[i], (RAW, 2)),
    "split, computed indices": (lambda k, i: random.split(k, 5)[i], (KEY, INDEX)),
    "split, too large an index": (lambda k, i: lax.dynamic_index_in_dim(random.split(k, 5), i), (KEY, 7)),
    "split of splits": (lambda k: random.split(random.split(k, 3)[1], 2)[0], KEY),
    "fold in": (lambda k: (random.fold_in(k, 17), random.fold_in(k, -1 & 0xFFFFFFFF)), KEY),
    "fold in, raw": (lambda k, i: random.fold_in(k, i), (RAW, -3)),
    "fold in, small": (lambda k, i: random.fold_in(k, i), (KEY, np.int8(-3))),
    "clone": (lambda k: random.clone(k), KEY),
    "wrap": (lambda k: random.normal(random.wrap_key_data(k)), RAW),
    "data": (lambda k: random.key_data(k) + 1, KEY),
    "the same": (lambda k, x: (k, x), (KEY, 1.0)),
    "vmap of split": (jax.vmap(lambda k: random.split(k, 3)[1]), KEYS),
    "vmap of split, raw": (jax.vmap(pair), RAWS),
    "vmap of a computed index": (jax.vmap(lambda k: random.split(k, 3)[jnp.argmax(random.bits(k, (3,)))]), KEYS),
    "vmap of keys and numbers": (jax.vmap(random.fold_in), (KEYS, jnp.arange(4))),
    "vmap of keys": (jax.vmap(random.fold_in, (0, None)), (KEYS, 5)),
    "vmap of numbers": (jax.vmap(random.fold_in, (None, 0)), (KEY, jnp.arange(4))),
    "vmap twice": (jax.vmap(jax.vmap(random.fold_in, (None, 0)), (0, None)), (KEYS, jnp.arange(3))),
    "vmap of normal": (jax.vmap(lambda k: random.normal(k, (3, 2))), KEYS),
    "vmap of normal, raw": (jax.vmap(lambda k: random.normal(k, ())), RAWS),
    "vmap of bits": (jax.vmap(lambda k: random.bits(k, (5,), jnp.uint8)), KEYS),
    "indices": (lambda k: random.normal(k[2]) + random.normal(k[-1]), KEYS),
    "computed index": (lambda k, i: k[i], (KEYS, 2)),
    "computed indices": (lambda k, i: (k[i], k.at[i].get(mode="clip")), (KEYS, INDEX)),
    "set": (lambda k, one: k.at[1].set(one), (KEYS, KEY)),
    "set, computed": (lambda k, one, i: k.at[i].set(one), (KEYS, KEY, 2)),
    "update": (lambda k, one, i: lax.dynamic_update_index_in_dim(k, one, i, 0), (KEYS, KEY, 2)),
    "moves": (
        lambda k: (k.reshape(2, 2).T, k[::-1], k[None], jnp.concatenate([k, k[1:2]]), jnp.stack([k[0], k[1]])),
        KEYS,
    ),
    "moves, raw": (
        lambda k: jax.vmap(random.split)(
            jnp.concatenate([k[::-1], k[1:2], k.reshape(2, 2, 2).swapaxes(0, 1).reshape(4, 2), k[0][None]])
        ),
        RAWS,
    ),
    "halves": (lambda k: jnp.split(k, 2), KEYS),
    "broadcast": (lambda k: jnp.broadcast_to(k, (2, 3)), KEY),
    "select": (lambda k, p, q: (jnp.where(p, k[0], k[1]), jnp.where(q, k[:3], k[1:])), (KEYS, True, INDEX > 0)),
    "select, raw": (lambda k, p: random.split(jnp.where(p, k[0], k[1])), (RAWS, False)),
    "equal": (lambda k: (k == k[::-1], k != k[0]), random.split(KEY, 3)),
    "barrier": (lambda k: lax.optimization_barrier((random.fold_in(k, 1), 2.0)), KEY),
    "jit": (lambda k: jax.jit(pair)(jax.jit(random.split)(k)[0]), KEY),
    "checkpoint": (lambda k: jax.checkpoint(random.normal)(k), KEY),
    "gradient": (lambda k, s: jax.grad(lambda s: (s * random.normal(k, (3,))).sum() ** 2)(s), (KEY, 2.0)),
    "gamma": (lambda k: random.gamma(random.fold_in(k, 1), 2.0, (3,)), KEY),
    "gamma, raw": (lambda k: random.gamma(k, 2.0, (3,)), RAW),
    "dirichlet": (lambda k: random.dirichlet(k, jnp.ones(3)), KEY),
    "multivariate normal": (lambda k: random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2)), KEY),
}


def scan_of_keys(key: Any) -> Any:
    def step(key: Any, _: Any) -> Any:
        key, now = random.split(key)
        return key, random.normal(now, (2,))

    return lax.scan(step, key, None, length=5)


def drifting(key: Any) -> Any:
    def step(state: Any) -> Any:
        i, key, x = state
        key, now = random.split(key)
        return i + 1, key, x + random.normal(now)

    return lax.while_loop(lambda state: state[0] < 4, step, (0, key, 0.0))


def until_large(key: Any) -> Any:
    return lax.while_loop(lambda key: random.uniform(key) < 0.8, lambda key: random.split(key)[0], key)


def nested(key: Any) -> Any:
    def inner(i: Any, key: Any) -> Any:
        return random.fold_in(key, i)

    def outer(key: Any, x: Any) -> Any:
        key = lax.cond(x > 1, lambda k: random.split(k)[1], lambda k: lax.fori_loop(0, 3, inner, k), key)
        return key, (random.uniform(key), key)

    return lax.scan(outer, key, jnp.arange(4.0), reverse=True)


LOOPS: dict[str, tuple[Callable[..., Any], Any]] = {
    "scan": (scan_of_keys, KEY),
    "scan, raw": (scan_of_keys, RAW),
    "scan, unrolled": (lambda k: lax.scan(lambda k, x: (random.fold_in(k, x), k), k, jnp.arange(5), unroll=2), KEY),
    "scan over keys": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), random.split(k)), 0.0, k), KEYS),
    "scan over keys, raw": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), random.split(k)), 0.0, k), RAWS),
    "scan over a split": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), c), 0.0, random.split(k, 3)), KEY),
    "scan with a constant key": (
        lambda k, x: lax.scan(lambda c, i: (c + x[1] * random.normal(random.fold_in(k, i)), c), x[0], jnp.arange(3)),
        (KEY, MOST),
    ),
    "while": (drifting, KEY),
    "while, raw": (drifting, RAW),
    "while, key in the condition": (until_large, KEY),
    "while, batch": (jax.vmap(until_large), KEYS),
    "while, batch, raw": (jax.vmap(until_large), RAWS),
    "while, constant keys": (
        lambda k: lax.while_loop(
            lambda s: (s[0] < 9) & (random.uniform(k[0]) > 0),
            lambda s: (s[0] + 1, s[1] + random.normal(k[1])),
            (0, jnp.zeros(())),
        ),
        KEYS,
    ),
    "fori": (
        lambda k, n, x: lax.fori_loop(0, n, lambda i, c: c + random.normal(random.fold_in(k, i), (5,)), x),
        (KEY, 4, MOST),
    ),
    "cond": (lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k), (KEY, True)),
    "cond, raw": (lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k), (RAW, True)),
    "cond, batch": (
        jax.vmap(lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k)),
        (KEYS, MOST[1:] > 2),
    ),
    "switch": (lambda k, i: lax.switch(i, [lambda k: random.normal(k), lambda k: 1.0, random.uniform], k), (KEY, 2)),
    "nested": (nested, KEY),
    "nested, raw": (nested, RAW),
    "nested, batch": (jax.vmap(nested), KEYS),
    "gradient of a scan": (
        jax.grad(lambda w, k: lax.scan(lambda c, k: (c * w + random.normal(k), None), 1.0, k)[0]),
        (0.5, KEYS),
    ),
    "weak types": (lambda k: lax.scan(lambda c, k: (c + 1.0, random.normal(k)), 0.0, k), KEYS),
}

WIDE: dict[str, tuple[Callable[..., Any], Any]] = {
    "normal": (lambda k: random.normal(k, (3, 2)), KEY),
    "normal, one": (lambda k: random.normal(k, dtype=jnp.float64), RAW),
    "bits": (lambda k: (random.bits(k, (5,), jnp.uint64), random.bits(k, (4,), jnp.uint64)), KEY),
    "bits, one": (lambda k: random.bits(k, (1,), jnp.uint64), KEY),
    "randint": (lambda k: random.randint(k, (3,), -(1 << 40), 1 << 40), KEY),
    "seeds": (lambda s, t, u: [random.key(s), random.key(t), random.key(u)], (-42, 1 << 40, np.int16(-5))),
    "fold in": (lambda k, i: random.fold_in(k, i), (KEY, -(1 << 33) - 7)),
    "index": (lambda k, i: random.split(k, 5)[i], (KEY, np.int64(3))),
    "scan": (scan_of_keys, KEY),
    "while": (drifting, KEY),
}
