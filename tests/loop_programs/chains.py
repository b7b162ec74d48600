"""A noisy chain of small networks, inference in one, and a scalar map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import CHAOTIC, F64, ONE, RANDOM, WHILE, X64, LoopProgram, one_key, uniform
from tests.programs import Arguments, floats, join

NETWORK = floats((1, 12), (12, 1))
NETWORK_F64 = floats((1, 12), (12, 1), dtype=F64)


def small_network(x: Any, w1: Any, w2: Any) -> Any:
    hidden = jax.nn.sigmoid(x @ jax.nn.softplus(w1))
    return jax.nn.sigmoid(hidden @ jax.nn.softplus(w2))


def noisy_chain(key: Any, w1: Any, w2: Any, maximum: Any) -> Any:
    def unfinished(state: Any) -> Any:
        _, _, i = state
        return i < maximum

    def step(state: Any) -> Any:
        x, key, i = state
        key, subkey = jax.random.split(key)
        noise = jax.random.normal(subkey, x.shape, x.dtype)
        return small_network(x, w1, w2) + noise, key, i + 1

    x, _, _ = lax.while_loop(unfinished, step, (jnp.zeros((1,), w1.dtype), key, 0))
    return x


def noisy_chain_of(steps: int) -> Callable[..., Any]:
    return lambda key, w1, w2: noisy_chain(key, w1, w2, steps)


def chain_over_noise(noise: Any, w1: Any, w2: Any) -> Any:
    def step(x: Any, noise: Any) -> Any:
        x = small_network(x, w1, w2) + noise
        return x, x

    return lax.scan(step, jnp.zeros((1,), w1.dtype), noise, unroll=2)


def drawn_chain(steps: int) -> Callable[..., Any]:
    def chain(key: Any, w1: Any, w2: Any) -> Any:
        return chain_over_noise(jax.random.normal(key, (steps, 1), w1.dtype), w1, w2)

    return chain


def inference(steps: int) -> Callable[..., Any]:
    """Find the input that gives z."""

    def infer(x: Any, z: Any, w1: Any, w2: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            prediction, pull = jax.vjp(lambda x: small_network(x, w1, w2), x)
            return x + 0.1 * pull(z - prediction)[0]

        return lax.fori_loop(0, steps, step, x)

    return infer


def inferences(steps: int) -> Callable[..., Any]:
    return jax.vmap(inference(steps), in_axes=(0, 0, None, None))


def logistic_map(steps: int) -> Callable[..., Any]:
    def orbit(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            x = 4.0 * x * (1.0 - x)
            return x, x

        return lax.scan(step, x, None, length=steps)[1]

    return orbit


def count_argument(steps: int) -> Arguments:
    return lambda rng: (np.int32(steps),)


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram(
        *("noisy_chain", noisy_chain_of(4), join(one_key, NETWORK), None, RANDOM | WHILE),
        bench_args=join(one_key, NETWORK),
        full=noisy_chain_of(8000),
    ),
    LoopProgram(
        *("noisy_chain_traced_bound", noisy_chain, join(one_key, NETWORK, count_argument(4)), None, RANDOM | WHILE),
        bench_args=join(one_key, NETWORK, count_argument(8000)),
    ),
    LoopProgram(
        *("noisy_chain_f64", noisy_chain_of(3), join(one_key, NETWORK_F64), None, RANDOM | WHILE | X64),
        bench_args=join(one_key, NETWORK_F64),
        full=noisy_chain_of(8000),
    ),
    LoopProgram(
        *("chain_over_noise", chain_over_noise, join(floats((6, 1)), NETWORK), (1, 2), ONE),
        bench_args=join(floats((8000, 1)), NETWORK),
    ),
    LoopProgram(
        *("drawn_chain", drawn_chain(4), join(one_key, NETWORK), (1, 2), RANDOM),
        bench_args=join(one_key, NETWORK),
        full=drawn_chain(8000),
    ),
    LoopProgram(
        *("inference", inference(4), join(floats((1,), (1,)), NETWORK), (0, 1, 2, 3), ONE),
        bench_args=join(floats((1,), (1,)), NETWORK),
        full=inference(1000),
    ),
    LoopProgram(
        *("inferences", inferences(4), join(floats((5, 1), (5, 1)), NETWORK), (0, 1, 2, 3), ONE),
        bench_args=join(floats((4096, 1), (4096, 1)), NETWORK),
        full=inferences(1000),
    ),
    LoopProgram(
        *("logistic_map", logistic_map(20), uniform(0.1, 0.9, ()), (0,), CHAOTIC),
        bench_args=uniform(0.1, 0.9, ()),
        full=logistic_map(10_000_000),
    ),
)
