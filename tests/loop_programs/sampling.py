"""Sampling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import CHAOTIC, RANDOM, WHILE, LoopProgram, keys
from tests.programs import Arguments, Rng, floats, join


def log_posterior(weights: Any, features: Any, labels: Any) -> Any:
    return jnp.sum(jax.nn.log_sigmoid(labels * (features @ weights))) - 0.5 * jnp.sum(weights**2)


def metropolis(steps: int) -> Callable[..., Any]:
    def chain(key: Any, start: Any, features: Any, labels: Any) -> Any:
        density = partial(log_posterior, features=features, labels=labels)

        def step(carry: Any, _: Any) -> Any:
            key, now, log_density = carry
            key, walk_key, accept_key = jax.random.split(key, 3)
            proposal = now + 0.1 * jax.random.normal(walk_key, now.shape)
            proposed = density(proposal)
            accept = jnp.log(jax.random.uniform(accept_key)) < proposed - log_density
            now = jnp.where(accept, proposal, now)
            return (key, now, jnp.where(accept, proposed, log_density)), now

        return lax.scan(step, (key, start, density(start)), None, length=steps)[1]

    return jax.vmap(chain, in_axes=(0, 0, None, None))


def hmc(steps: int, leaps: int = 10, size: float = 0.05) -> Callable[..., Any]:
    def chain(key: Any, start: Any, features: Any, labels: Any) -> Any:
        density = partial(log_posterior, features=features, labels=labels)
        slope = jax.grad(density)

        def leap(_: Any, phase: Any) -> Any:
            place, momentum = phase
            momentum = momentum + size / 2 * slope(place)
            place = place + size * momentum
            return place, momentum + size / 2 * slope(place)

        def step(carry: Any, _: Any) -> Any:
            key, now = carry
            key, momentum_key, accept_key = jax.random.split(key, 3)
            momentum = jax.random.normal(momentum_key, now.shape)
            proposal, final = lax.fori_loop(0, leaps, leap, (now, momentum))
            gain = density(proposal) - density(now) + 0.5 * (momentum @ momentum - final @ final)
            now = jnp.where(jnp.log(jax.random.uniform(accept_key)) < gain, proposal, now)
            return (key, now), now

        return lax.scan(step, (key, start), None, length=steps)[1]

    return jax.vmap(chain, in_axes=(0, 0, None, None))


def logistic_chains(chains: int, points: int) -> Arguments:
    def labels(rng: Rng) -> tuple[Any, ...]:
        return (np.sign(rng.normal(size=points)).astype(np.float32),)

    return join(keys(chains), floats((chains, 5), (points, 5)), labels)


def nuts(most_doublings: int, size: float = 0.1) -> Callable[..., Any]:
    """One transition: doublings, the leaves of each new half, and its checkpoints for U-turns, one loop in another."""

    def turning(span: Any, left: Any, right: Any) -> Any:
        return (left @ span <= 0) | (right @ span <= 0)

    def transition(key: Any, start: Any, features: Any, labels: Any) -> Any:
        density = partial(log_posterior, features=features, labels=labels)
        slope = jax.grad(density)

        def leap(place: Any, momentum: Any, direction: Any) -> Any:
            step = direction * size
            momentum = momentum + step / 2 * slope(place)
            place = place + step * momentum
            return place, momentum + step / 2 * slope(place)

        def energy(place: Any, momentum: Any) -> Any:
            return 0.5 * momentum @ momentum - density(place)

        key, momentum_key = jax.random.split(key)
        momentum = jax.random.normal(momentum_key, start.shape)
        first = energy(start, momentum)

        def half(key: Any, place: Any, momentum: Any, direction: Any, leaves: Any) -> Any:
            def unfinished(state: Any) -> Any:
                return (state["leaf"] < leaves) & ~state["turned"] & ~state["diverged"]

            def grow(state: Any) -> Any:
                place, momentum = leap(state["place"], state["momentum"], direction)
                weight = first - energy(place, momentum)
                total = jnp.logaddexp(state["weight"], weight)
                key, accept_key = jax.random.split(state["key"])
                accept = jnp.log(jax.random.uniform(accept_key)) < weight - total
                leaf = state["leaf"]
                span = state["span"] + momentum
                last = lax.population_count(leaf >> 1)
                trailing = lax.population_count(leaf ^ (leaf + 1)) - 1
                even = leaf % 2 == 0
                momenta = jnp.where(even, state["momenta"].at[last].set(momentum), state["momenta"])
                spans = jnp.where(even, state["spans"].at[last].set(span), state["spans"])

                def check(carry: Any) -> Any:
                    index, _ = carry
                    between = span - spans[index] + momenta[index]
                    return index - 1, turning(between, momenta[index], momentum)

                def unchecked(carry: Any) -> Any:
                    index, turned = carry
                    return (index > last - trailing) & ~turned

                _, turned = lax.while_loop(unchecked, check, (last, jnp.array(False)))
                return {
                    "key": key,
                    "place": place,
                    "momentum": momentum,
                    "proposal": jnp.where(accept, place, state["proposal"]),
                    "weight": total,
                    "span": span,
                    "leaf": leaf + 1,
                    "turned": turned,
                    "diverged": weight < -1000.0,
                    "momenta": momenta,
                    "spans": spans,
                }

            checkpoints = jnp.zeros((most_doublings, *place.shape), place.dtype)
            return lax.while_loop(
                unfinished,
                grow,
                {
                    "key": key,
                    "place": place,
                    "momentum": momentum,
                    "proposal": place,
                    "weight": jnp.full((), -jnp.inf, place.dtype),
                    "span": jnp.zeros_like(momentum),
                    "leaf": jnp.zeros((), jnp.int32),
                    "turned": jnp.array(False),
                    "diverged": jnp.array(False),
                    "momenta": checkpoints,
                    "spans": checkpoints,
                },
            )

        def unfinished(tree: Any) -> Any:
            return (tree["depth"] < most_doublings) & ~tree["stopped"]

        def double(tree: Any) -> Any:
            key, way_key, half_key, accept_key = jax.random.split(tree["key"], 4)
            forwards = jax.random.bernoulli(way_key)
            place = jnp.where(forwards, tree["right"], tree["left"])
            momentum = jnp.where(forwards, tree["right_momentum"], tree["left_momentum"])
            grown = half(half_key, place, momentum, jnp.where(forwards, 1.0, -1.0), 1 << tree["depth"])
            good = ~grown["turned"] & ~grown["diverged"]
            accept = good & (jnp.log(jax.random.uniform(accept_key)) < grown["weight"] - tree["weight"])
            left = jnp.where(forwards, tree["left"], grown["place"])
            right = jnp.where(forwards, grown["place"], tree["right"])
            left_momentum = jnp.where(forwards, tree["left_momentum"], grown["momentum"])
            right_momentum = jnp.where(forwards, grown["momentum"], tree["right_momentum"])
            span = tree["span"] + grown["span"]
            return {
                "key": key,
                "left": left,
                "right": right,
                "left_momentum": left_momentum,
                "right_momentum": right_momentum,
                "proposal": jnp.where(accept, grown["proposal"], tree["proposal"]),
                "weight": jnp.logaddexp(tree["weight"], grown["weight"]),
                "span": span,
                "depth": tree["depth"] + 1,
                "stopped": ~good | turning(span, left_momentum, right_momentum),
            }

        tree = lax.while_loop(
            unfinished,
            double,
            {
                "key": key,
                "left": start,
                "right": start,
                "left_momentum": momentum,
                "right_momentum": momentum,
                "proposal": start,
                "weight": jnp.zeros((), start.dtype),
                "span": momentum,
                "depth": jnp.zeros((), jnp.int32),
                "stopped": jnp.array(False),
            },
        )
        return tree["proposal"], tree["depth"]

    return jax.vmap(transition, in_axes=(0, 0, None, None))


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram(
        *("metropolis", metropolis(3), logistic_chains(4, 10), None, RANDOM | CHAOTIC),
        bench_args=logistic_chains(1024, 100),
        full=metropolis(1000),
    ),
    LoopProgram(
        *("hmc", hmc(2, 3), logistic_chains(4, 10), None, RANDOM | CHAOTIC),
        bench_args=logistic_chains(1024, 100),
        full=hmc(1000),
    ),
    LoopProgram(
        *("nuts", nuts(3), logistic_chains(2, 10), None, RANDOM | WHILE | CHAOTIC),
        bench_args=logistic_chains(1024, 100),
        full=nuts(10),
    ),
)
