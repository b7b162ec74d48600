"""Programs whose time goes into a loop of small steps, as their users write them; shared by the tests and the benches.

Steps and lanes are few, because Triton's interpreter is slow; `bench_args` makes the full sizes, and `full` is the
function with its full number of steps where the arguments' shapes do not say it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.programs import Arguments, Program, Rng, floats, join, positive


@dataclass(frozen=True)
class LoopProgram(Program):
    """Tags as those of `Program`, and: `random` (draws random numbers inside), `while` (steps are counted on the
    device), `chaotic` (errors grow from step to step)."""

    full: Callable[..., Any] | None = None

    @property
    def bench_fn(self) -> Callable[..., Any]:
        return self.full or self.fn


def scaled(scale: float, arguments: Arguments) -> Arguments:
    return lambda rng: tuple(arg * arg.dtype.type(scale) for arg in arguments(rng))


def uniform(low: float, high: float, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Arguments:
    return lambda rng: tuple(rng.uniform(low, high, shape).astype(dtype) for shape in shapes)


def one_key(rng: Rng) -> tuple[Any]:
    return (jax.random.key(int(rng.integers(2**31))),)


def keys(count: int) -> Arguments:
    return lambda rng: (jax.random.split(one_key(rng)[0], count),)


def together(**parts: Arguments) -> Arguments:
    """One dictionary, with one array from each part."""
    return lambda rng: ({name: part(rng)[0] for name, part in parts.items()},)


# 1 and 2: a noisy chain of small networks, and inference in one


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


# 3: a scalar map


def logistic_map(steps: int) -> Callable[..., Any]:
    def orbit(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            x = 4.0 * x * (1.0 - x)
            return x, x

        return lax.scan(step, x, None, length=steps)[1]

    return orbit


# 4: ensembles of differential equations


def lorenz(state: Any, params: Any) -> Any:
    x, y, z = state
    sigma, rho, beta = params
    return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def rk4_step(state: Any, params: Any, dt: Any) -> Any:
    k1 = lorenz(state, params)
    k2 = lorenz(state + dt / 2 * k1, params)
    k3 = lorenz(state + dt / 2 * k2, params)
    k4 = lorenz(state + dt * k3, params)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


TSIT5 = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)
TSIT5_ERROR = (
    *(-0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629),
    *(0.5823571654525552, -0.45808210592918697, 0.015151515151515152),
)


def tsit5_step(state: Any, params: Any, dt: Any) -> tuple[Any, Any]:
    """The state after a step, and an estimate of its error."""
    slopes = [lorenz(state, params)]
    for row in TSIT5:
        moved = state + dt * sum(a * k for a, k in zip(row, slopes))
        slopes.append(lorenz(moved, params))
    return moved, dt * sum(e * k for e, k in zip(TSIT5_ERROR, slopes))


def tsit5_fixed(state: Any, params: Any, dt: Any) -> Any:
    return tsit5_step(state, params, dt)[0]


def trajectory(step: Callable[..., Any], steps: int, dt: float) -> Callable[..., Any]:
    def solve(state: Any, params: Any) -> Any:
        return lax.scan(lambda s, _: (step(s, params, dt), None), state, None, length=steps)[0]

    return solve


def ensemble(step: Callable[..., Any], steps: int, dt: float) -> Callable[..., Any]:
    return jax.vmap(trajectory(step, steps, dt))


def controlled(end: float, most: int, tolerance: float) -> Callable[..., Any]:
    """Steps chosen by a PI controller, until the end is reached."""

    def solve(state: Any, params: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            time, _, _, _, count = carry
            return (time < end) & (count < most)

        def step(carry: Any) -> Any:
            time, state, dt, last_error, count = carry
            dt = jnp.minimum(dt, end - time)
            moved, error = tsit5_step(state, params, dt)
            scale = tolerance + tolerance * jnp.maximum(jnp.abs(state), jnp.abs(moved))
            error = jnp.maximum(jnp.sqrt(jnp.mean((error / scale) ** 2)), 1e-8)
            accept = error <= 1.0
            factor = jnp.clip(0.9 * error**-0.14 * last_error**0.08, 0.2, 10.0)
            return (
                jnp.where(accept, time + dt, time),
                jnp.where(accept, moved, state),
                dt * factor,
                jnp.where(accept, error, last_error),
                count + 1,
            )

        zero, one = jnp.zeros((), state.dtype), jnp.ones((), state.dtype)
        _, state, _, _, count = lax.while_loop(unfinished, step, (zero, state, 0.01 * one, one, 0))
        return state, count

    return jax.vmap(solve)


def systems(count: int, dtype: Any = np.float32) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        state = rng.normal(size=(count, 3)) * 5 + [0.0, 0.0, 20.0]
        params = rng.uniform(0.9, 1.1, (count, 3)) * [10.0, 28.0, 8.0 / 3.0]
        return state.astype(dtype), params.astype(dtype)

    return arguments


# 5: recurrent networks


def rnn(params: Any, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    return lax.scan(step, h, xs)


def rnn_projected(params: Any, xs: Any, h: Any) -> Any:
    """The inputs are multiplied by their weights all at once."""

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ params["u"])
        return h, h

    return lax.scan(step, h, xs @ params["w"] + params["b"])


def gru(params: Any, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        xr, xz, xn = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
        hr, hz, hn = jnp.split(h @ params["u"], 3, axis=-1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
        return h, h

    return lax.scan(step, h, xs)


def lstm(params: Any, xs: Any, h: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, jnp.zeros_like(h)), xs)


def recurrent(steps: int, batch: int, features: int, hidden: int, gates: int, dtype: Any = np.float32) -> Arguments:
    width = gates * hidden
    weights = together(
        w=scaled(features**-0.5, floats((features, width), dtype=dtype)),
        u=scaled(hidden**-0.5, floats((hidden, width), dtype=dtype)),
        b=floats((width,), dtype=dtype),
    )
    return join(weights, floats((steps, batch, features), (batch, hidden), dtype=dtype))


# 6: reinforcement learning


def gae(rewards: Any, values: Any, last_value: Any, done: Any) -> Any:
    def step(carry: Any, now: Any) -> Any:
        advantage, next_value = carry
        reward, value, done = now
        delta = reward + 0.99 * next_value * (1 - done) - value
        advantage = delta + 0.99 * 0.95 * (1 - done) * advantage
        return (advantage, value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    _, advantages = lax.scan(step, start, (rewards, values, done), reverse=True)
    return advantages, advantages + values


def lambda_returns(rewards: Any, values: Any, last_value: Any, discounts: Any) -> Any:
    def step(following: Any, now: Any) -> Any:
        reward, value, discount = now
        result = reward + discount * (0.05 * value + 0.95 * following)
        return result, result

    return lax.scan(step, last_value, (rewards, values, discounts), reverse=True)[1]


def rollouts(steps: int, environments: int) -> Arguments:
    shape = steps, environments

    def done(rng: Rng) -> tuple[Any, ...]:
        return ((rng.random(shape) < 0.1).astype(np.float32),)

    return join(floats(shape, shape, (environments,)), done)


def cart_pole(steps: int) -> Callable[..., Any]:
    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def move(state: Any, force: Any) -> Any:
        x, v, theta, omega = state
        cos, sin = jnp.cos(theta), jnp.sin(theta)
        push = (force + 0.05 * omega**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        speed_up = push - 0.05 * turn * cos / 1.1
        return jnp.stack([x + 0.02 * v, v + 0.02 * speed_up, theta + 0.02 * omega, omega + 0.02 * turn])

    def play(key: Any, policy: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, state, score = carry
            key, action_key, reset_key = jax.random.split(key, 3)
            right = jax.random.bernoulli(action_key, jax.nn.sigmoid(state @ policy))
            state = move(state, jnp.where(right, 10.0, -10.0))
            failed = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)
            state = jnp.where(failed, reset(reset_key), state)
            return (key, state, score + 1.0 - failed), failed

        first, key = jax.random.split(key)
        (_, state, score), failures = lax.scan(step, (key, reset(first), 0.0), None, length=steps)
        return state, score, failures

    return jax.vmap(play, in_axes=(0, None))


# 7: state spaces


def hmm_forward(log_start: Any, log_moves: Any, log_likelihoods: Any) -> Any:
    def step(alpha: Any, likelihood: Any) -> Any:
        alpha = jax.nn.logsumexp(alpha[:, None] + log_moves, axis=0) + likelihood
        return alpha, None

    alpha, _ = lax.scan(step, log_start + log_likelihoods[0], log_likelihoods[1:])
    return jax.nn.logsumexp(alpha)


def hidden_markov(states: int, steps: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        start, moves = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), states)
        return tuple(a.astype(np.float32) for a in (np.log(start), np.log(moves), -rng.random((steps, states))))

    return arguments


def kalman(model: Any, observations: Any) -> Any:
    """The log likelihood of the observations."""
    f, h, q, r = model["f"], model["h"], model["q"], model["r"]

    def step(carry: Any, observed: Any) -> Any:
        mean, cov = carry
        mean, cov = f @ mean, f @ cov @ f.T + q
        surprise = observed - h @ mean
        factor = jnp.linalg.cholesky(h @ cov @ h.T + r)
        gain = jax.scipy.linalg.cho_solve((factor, True), h @ cov).T
        white = jax.scipy.linalg.solve_triangular(factor, surprise, lower=True)
        log_likelihood = -0.5 * white @ white - jnp.log(jnp.diagonal(factor)).sum() - jnp.log(2 * jnp.pi)
        return (mean + gain @ surprise, cov - gain @ h @ cov), log_likelihood

    size = f.shape[0]
    start = jnp.zeros(size, f.dtype), jnp.eye(size, dtype=f.dtype)
    return lax.scan(step, start, observations)[1].sum()


def linear_gaussian(steps: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        q, r = (0.3 * rng.normal(size=(n, n)) for n in (4, 2))
        f = 0.9 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
        model = {"f": f, "h": rng.normal(size=(2, 4)), "q": q @ q.T + np.eye(4) / 10, "r": r @ r.T + np.eye(2) / 10}
        return {k: v.astype(np.float32) for k, v in model.items()}, rng.normal(size=(steps, 2)).astype(np.float32)

    return arguments


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    """x, delta: [batch, steps, channels]; a: [channels, state]; b, c: [batch, steps, state]."""

    def one(x: Any, delta: Any, b: Any, c: Any) -> Any:
        def step(h: Any, now: Any) -> Any:
            x, delta, b, c = now
            h = jnp.exp(delta[:, None] * a) * h + (delta * x)[:, None] * b[None, :]
            return h, h @ c

        return lax.scan(step, jnp.zeros_like(a), (x, delta, b, c))[1]

    return jax.vmap(one)(x, delta, b, c)


def selective(batch: int, steps: int, channels: int, state: int) -> Arguments:
    return join(
        floats((batch, steps, channels)),
        positive((batch, steps, channels)),
        scaled(-1.0, positive((channels, state))),
        floats((batch, steps, state), (batch, steps, state)),
    )


# 8: sampling


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


# 9: fixed points


def sinkhorn(steps: int) -> Callable[..., Any]:
    def solve(cost: Any, a: Any, b: Any) -> Any:
        kernel = jnp.exp(-cost / 0.5)

        def step(_: Any, scales: Any) -> Any:
            _, v = scales
            u = a / (kernel @ v)
            return u, b / (kernel.T @ u)

        u, v = lax.fori_loop(0, steps, step, (jnp.ones_like(a), jnp.ones_like(b)))
        return jnp.sum(u[:, None] * kernel * v[None, :] * cost)

    return jax.vmap(solve)


def transports(batch: int, size: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        cost, a, b = rng.random((batch, size, size)), *rng.dirichlet(np.ones(size), (2, batch))
        return tuple(x.astype(np.float32) for x in (cost, a, b))

    return arguments


def value_iteration(reward: Any) -> Any:
    def improved(values: Any) -> Any:
        padded = jnp.pad(values, 1, mode="edge")
        near = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
        return reward + 0.9 * jnp.max(jnp.stack(near), axis=0)

    def unfinished(state: Any) -> Any:
        _, change, count = state
        return (change > 1e-3) & (count < 1000)

    def step(state: Any) -> Any:
        values, _, count = state
        better = improved(values)
        return better, jnp.max(jnp.abs(better - values)), count + 1

    values, _, count = lax.while_loop(unfinished, step, (jnp.zeros_like(reward), jnp.inf, 0))
    return values, count


def kepler(mean_anomaly: Any, eccentricity: Any) -> Any:
    """E − e sin E = M, by Newton's method, each equation until it is solved."""

    def solve(m: Any, e: Any) -> Any:
        def off(x: Any) -> Any:
            return x - e * jnp.sin(x) - m

        def unfinished(state: Any) -> Any:
            x, count = state
            return (jnp.abs(off(x)) > 1e-5) & (count < 50)

        def step(state: Any) -> Any:
            x, count = state
            return x - off(x) / jax.grad(off)(x), count + 1

        return lax.while_loop(unfinished, step, (m, 0))

    return jax.vmap(solve)(mean_anomaly, eccentricity)


# 10: signals


def thomas(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    """Tridiagonal systems, one for each column."""

    def eliminate(carry: Any, row: Any) -> Any:
        c, d = carry
        below, middle, above, right = row
        pivot = middle - below * c
        c, d = above / pivot, (right - below * d) / pivot
        return (c, d), (c, d)

    def substitute(x: Any, row: Any) -> Any:
        c, d = row
        x = d - c * x
        return x, x

    zero = jnp.zeros_like(right[0])
    _, rows = lax.scan(eliminate, (zero, zero), (lower, diagonal, upper, right))
    return lax.scan(substitute, zero, rows, reverse=True)[1]


def tridiagonal(size: int, batch: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        lower, upper, right = rng.normal(size=(3, size, batch))
        diagonal = 2 + np.abs(lower) + np.abs(upper)
        return tuple(x.astype(np.float32) for x in (lower, diagonal, upper, right))

    return arguments


def biquad(signal: Any, b: Any, a: Any) -> Any:
    """A filter of second order (direct form II, transposed) over [samples, channels]."""

    def step(carry: Any, x: Any) -> Any:
        s1, s2 = carry
        y = b[0] * x + s1
        return (b[1] * x - a[0] * y + s2, b[2] * x - a[1] * y), y

    zero = jnp.zeros_like(signal[0])
    return lax.scan(step, (zero, zero), signal)[1]


def filters(samples: int, channels: int) -> Arguments:
    def coefficients(rng: Rng) -> tuple[Any, ...]:
        return np.array([0.2, 0.4, 0.2], np.float32), np.array([-0.4, 0.2], np.float32)

    return join(floats((samples, channels)), coefficients)


def ctc_loss(logits: Any, labels: Any, lengths: Any, label_lengths: Any) -> Any:
    """logits: [batch, steps, symbols], symbol 0 is blank; labels: [batch, most labels]."""

    def one(logits: Any, labels: Any, length: Any, label_length: Any) -> Any:
        log_p = jax.nn.log_softmax(logits)
        places = 2 * labels.shape[0] + 1
        symbols = jnp.zeros(places, labels.dtype).at[1::2].set(labels)
        before = jnp.concatenate([jnp.full(2, -1, labels.dtype), symbols[:-2]])
        may_skip = (symbols != 0) & (symbols != before)
        low = jnp.full((), -1e5, logits.dtype)

        def step(alpha: Any, now: Any) -> Any:
            log_p, t = now
            one_back = jnp.concatenate([low[None], alpha[:-1]])
            two_back = jnp.where(may_skip, jnp.concatenate([low[None], low[None], alpha[:-2]]), low)
            moved = jnp.logaddexp(jnp.logaddexp(alpha, one_back), two_back) + log_p[symbols]
            return jnp.where(t < length, moved, alpha), None

        start = jnp.where(jnp.arange(places) < 2, log_p[0][symbols], low)
        alpha, _ = lax.scan(step, start, (log_p[1:], jnp.arange(1, logits.shape[0])))
        return -jnp.logaddexp(alpha[2 * label_length], alpha[2 * label_length - 1])

    return jax.vmap(one)(logits, labels, lengths, label_lengths)


def spoken(batch: int, steps: int, most: int, symbols: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        logits = rng.normal(size=(batch, steps, symbols)).astype(np.float32)
        labels = rng.integers(1, symbols, (batch, most), dtype=np.int32)
        return (
            logits,
            labels,
            rng.integers(steps - steps // 4, steps + 1, batch, dtype=np.int32),
            rng.integers(1, most + 1, batch, dtype=np.int32),
        )

    return arguments


BF16 = jnp.bfloat16
F64 = np.float64
ONE = frozenset({"one kernel"})
RANDOM = ONE | {"random"}
WHILE = ONE | {"while"}
LOW = ONE | {"low"}
X64 = ONE | {"x64"}
CHAOTIC = ONE | {"chaotic"}
NETWORK = floats((1, 12), (12, 1))
NETWORK_F64 = floats((1, 12), (12, 1), dtype=F64)


def count_argument(steps: int) -> Arguments:
    return lambda rng: (np.int32(steps),)


PROGRAMS: tuple[LoopProgram, ...] = (
    # 1
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
    # 2
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
    # 3
    LoopProgram(
        *("logistic_map", logistic_map(20), uniform(0.1, 0.9, ()), (0,), CHAOTIC),
        bench_args=uniform(0.1, 0.9, ()),
        full=logistic_map(10_000_000),
    ),
    # 4
    LoopProgram(
        *("lorenz_rk4", ensemble(rk4_step, 5, 0.01), systems(7), (0, 1), CHAOTIC),
        bench_args=systems(100_000),
        full=ensemble(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_rk4_single", trajectory(rk4_step, 5, 0.01), lambda rng: tuple(a[0] for a in systems(1)(rng))),
        *((0, 1), CHAOTIC),
        bench_args=lambda rng: tuple(a[0] for a in systems(1)(rng)),
        full=trajectory(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_rk4_f64", ensemble(rk4_step, 5, 0.01), systems(7, F64), (0, 1), CHAOTIC | X64),
        bench_args=systems(100_000, F64),
        full=ensemble(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_tsit5", ensemble(tsit5_fixed, 4, 0.01), systems(7), (0, 1), CHAOTIC),
        bench_args=systems(100_000),
        full=ensemble(tsit5_fixed, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_controlled", controlled(0.05, 40, 1e-4), systems(5), None, CHAOTIC | WHILE),
        bench_args=systems(100_000),
        full=controlled(1.0, 10_000, 1e-6),
    ),
    # 5
    LoopProgram(
        *("rnn", rnn, recurrent(5, 3, 6, 8, 1), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 64, 64, 1),
    ),
    LoopProgram(
        *("rnn_projected", rnn_projected, recurrent(5, 3, 6, 8, 1), (0, 1, 2), frozenset({"leftovers"})),
        bench_args=recurrent(512, 64, 64, 64, 1),
    ),
    LoopProgram(
        *("rnn_bf16", rnn, recurrent(5, 16, 16, 16, 1, BF16), (0, 1, 2), LOW),
        bench_args=recurrent(512, 64, 128, 128, 1, BF16),
    ),
    LoopProgram(
        *("gru", gru, recurrent(5, 3, 6, 8, 3), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 32, 32, 3),
    ),
    LoopProgram(
        *("lstm", lstm, recurrent(5, 3, 6, 8, 4), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 128, 128, 4),
    ),
    LoopProgram(
        *("lstm_bf16", lstm, recurrent(4, 16, 16, 16, 4, BF16), (0, 1, 2), LOW),
        bench_args=recurrent(512, 64, 64, 64, 4, BF16),
    ),
    # 6
    LoopProgram("gae", gae, rollouts(6, 9), (0, 1, 2), ONE, rollouts(128, 4096)),
    LoopProgram("lambda_returns", lambda_returns, rollouts(6, 9), (0, 1, 2, 3), ONE, rollouts(128, 4096)),
    LoopProgram(
        *("cart_pole", cart_pole(3), join(keys(4), floats((4,))), None, RANDOM | CHAOTIC),
        bench_args=join(keys(2000), floats((4,))),
        full=cart_pole(500),
    ),
    # 7
    LoopProgram("hmm_forward", hmm_forward, hidden_markov(5, 6), (0, 1, 2), ONE, hidden_markov(32, 1000)),
    LoopProgram("kalman", kalman, linear_gaussian(4), (0, 1), ONE, linear_gaussian(1000)),
    LoopProgram(
        *("selective_scan", selective_scan, selective(2, 5, 6, 4), (0, 1, 2, 3, 4), ONE),
        bench_args=selective(8, 2048, 64, 16),
    ),
    # 8
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
    # 9
    LoopProgram(
        *("sinkhorn", sinkhorn(5), transports(2, 6), (0, 1, 2), ONE),
        bench_args=transports(32, 64),
        full=sinkhorn(100),
    ),
    LoopProgram("value_iteration", value_iteration, uniform(0.0, 1.0, (5, 7)), None, WHILE, floats((50, 50))),
    LoopProgram(
        *("kepler", kepler, uniform(0.0, 0.8, (9,), (9,)), None, WHILE),
        bench_args=uniform(0.0, 0.8, (100_000,), (100_000,)),
    ),
    # 10
    LoopProgram("thomas", thomas, tridiagonal(6, 5), (0, 1, 2, 3), ONE, tridiagonal(512, 4096)),
    LoopProgram("biquad", biquad, filters(10, 5), (0, 1, 2), ONE, filters(48_000, 64)),
    LoopProgram("ctc_loss", ctc_loss, spoken(2, 6, 3, 5), (0,), ONE, spoken(16, 100, 20, 32)),
)
