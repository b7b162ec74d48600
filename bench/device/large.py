"""Loops, contractions and layers at sizes that people run, and those of published kernels, as `LARGE`.

`SMALL` are the same programs at sizes that a CPU runs at once. No GPU is needed to read this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from bench.device import large_coupled, large_layers, large_loops, published
from bench.device.large_entries import Drawn, Host, Large, Row, Work, entries, integers, normal, shapes, uniform
from tests.loop_programs import chains, equations, fixed_points, learning, recurrent, sampling, state_spaces
from tests.loop_programs.base import keys
from tests.programs import Rng, floats, join, layer_norm

__all__ = ["LARGE", "SMALL", "Large", "shapes"]

BF16, F32 = jnp.bfloat16, jnp.float32
NAMES = {BF16: "bf16", F32: "f32"}


def recurrent_net(kind: str, units: int, batch: int, steps: int, dtype: Any) -> Iterator[Large]:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
    others = {"jax.experimental.rnn": large_loops.lstm_of_cudnn} if (kind, dtype) == ("lstm", F32) else {}
    yield from Work(
        f"{kind} {units} units",
        getattr(recurrent, kind),
        Host(recurrent.recurrent(steps, batch, units, units, gates, dtype)),
        (0, 1, 2),
        sizes=f"batch {batch}, {steps} steps, {NAMES[dtype]}",
        others=others,
    ).both_ways()


def lstm_both_ways(units: int, batch: int, steps: int) -> Iterator[Large]:
    def parameters(features: int) -> Any:
        width = 4 * units
        w, u = normal(features, width, scale=features**-0.5), normal(units, width, scale=units**-0.5)
        return {"w": w, "u": u, "b": normal(width)}

    layers = tuple((parameters(features), parameters(features)) for features in (units, 2 * units))
    yield from Work(
        f"bidirectional lstm, 2 layers of {units} units",
        large_loops.lstm_both_ways,
        Drawn((layers, normal(steps, batch, units), normal(batch, units))),
        (0, 1, 2),
        sizes=f"batch {batch}, {steps} steps, f32",
        others={"jax.experimental.rnn": large_loops.lstm_both_ways_of_cudnn},
    ).both_ways()


def heat(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((normal(size, size),))
    yield from Work(
        f"heat {size} by {size}", large_loops.heat(steps), arguments, (0,), sizes=f"{steps} steps, f32"
    ).both_ways()


def gray_scott(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.4, 0.6, size, size), uniform(0.2, 0.3, size, size)))
    program = large_loops.gray_scott(steps)
    name, told = f"Gray Scott {size} by {size}", f"{steps} steps, f32"
    yield from Work(name, program, arguments, (0, 1), sizes=told).both_ways()


def wave(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((normal(size, size),))
    yield Work(f"wave {size} by {size}", large_loops.wave(steps), arguments, sizes=f"{steps} steps, f32").forward()


def lattice_boltzmann(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.1, 0.12, 9, size, size),))
    program = large_loops.lattice_boltzmann(steps)
    yield Work(f"lattice Boltzmann {size} by {size}", program, arguments, sizes=f"D2Q9, {steps} steps, f32").forward()


def conjugate_gradients(size: int) -> Iterator[Large]:
    arguments = Drawn((normal(size, size),))
    name, told = f"conjugate gradients {size} by {size}", "5 points, until solved, f32"
    yield Work(name, large_loops.conjugate_gradients, arguments, sizes=told).forward()


def k_means(points: int, centres: int, features: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((normal(points, features), normal(centres, features)))
    told = f"{centres} centres, {features} features, {steps} steps, f32"
    yield Work(f"k means {points} points", large_loops.k_means(steps), arguments, sizes=told).forward()


def floyd_warshall(size: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, size, size),))
    yield Work(f"Floyd Warshall {size}", large_loops.floyd_warshall, arguments, sizes="f32").forward()


def power_iteration(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, size, size), uniform(0.0, 1.0, size)))
    program = large_loops.power_iteration(steps)
    yield Work(f"power iteration {size}", program, arguments, sizes=f"{steps} steps, f32").forward()


def training(batch: int, steps: int, pixels: int, hidden: int) -> Iterator[Large]:
    first = normal(pixels, hidden, scale=pixels**-0.5), normal(hidden, scale=0.1)
    params = (*first, normal(hidden, 10, scale=hidden**-0.5), normal(10, scale=0.1))
    arguments = Drawn((params, normal(steps, batch, pixels), integers(0, 10, steps, batch)))
    name, told = f"training, {pixels} {hidden} 10", f"batch {batch}, {steps} steps of SGD, f32"
    yield Work(name, large_loops.training, arguments, sizes=told).forward()


def n_body(bodies: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((normal(bodies, 3), normal(bodies, 3, scale=0.1), uniform(0.1, 1.0, bodies)))
    program = large_loops.n_body(steps)
    yield from Work(f"{bodies} bodies", program, arguments, (0, 1, 2), sizes=f"{steps} steps, f32").both_ways()


def cart_poles(lanes: int, steps: int) -> Iterator[Large]:
    arguments = Host(join(keys(lanes), floats((4,))))
    name, told = f"cart pole, {lanes} lanes", f"{steps} steps, f32"
    yield Work(name, learning.cart_pole(steps), arguments, sizes=told).forward()


def lorenz(lanes: int, steps: int) -> Iterator[Large]:
    program = equations.ensemble(equations.rk4_step, steps, 0.01)
    name, told = f"Lorenz, {lanes} lanes", f"RK4, {steps} steps, f32"
    yield Work(name, program, Host(equations.systems(lanes)), sizes=told).forward()


def noisy_chains(lanes: int, steps: int) -> Iterator[Large]:
    program = jax.vmap(chains.noisy_chain_of(steps), (0, None, None))
    name, told = f"noisy chain, {lanes} lanes", f"a while loop of {steps} steps, f32"
    yield Work(name, program, Host(join(keys(lanes), chains.NETWORK)), sizes=told).forward()


def hmc(lanes: int, points: int, steps: int, leaps: int) -> Iterator[Large]:
    arguments = Host(sampling.logistic_chains(lanes, points))
    name, told = f"HMC, {lanes} chains", f"{points} points, {steps} steps of {leaps} leaps, f32"
    yield Work(name, sampling.hmc(steps, leaps), arguments, sizes=told).forward()


def kalman(series: int, steps: int) -> Iterator[Large]:
    def observed(rng: Rng) -> tuple[Any, ...]:
        model, _ = state_spaces.linear_gaussian(1)(rng)
        return model, *floats((series, steps, 2))(rng)

    program = jax.vmap(state_spaces.kalman, (None, 0))
    name, told = f"Kalman, {series} series", f"{steps} steps, 4 states, 2 observed, f32"
    yield from Work(name, program, Host(observed), (0, 1), sizes=told).both_ways()


def hidden_markov(states: int, steps: int) -> Iterator[Large]:
    arguments = Host(state_spaces.hidden_markov(states, steps))
    name, told = f"hidden Markov, {states} states", f"{steps} steps, f32"
    yield from Work(name, state_spaces.hmm_forward, arguments, (0, 1, 2), sizes=told).both_ways()


def selective_scan(batch: int, steps: int, channels: int, state: int) -> Iterator[Large]:
    a_sequence, of_state = (batch, steps, channels), (batch, steps, state)
    arguments = (normal(*a_sequence), uniform(0.1, 2.0, *a_sequence), uniform(-2.0, -0.1, channels, state))
    yield from Work(
        f"selective scan, {channels} channels",
        state_spaces.selective_scan,
        Drawn((*arguments, normal(*of_state), normal(*of_state))),
        (0, 1, 2, 3, 4),
        sizes=f"batch {batch}, {steps} steps, {state} states, f32",
    ).both_ways()


def gated_recurrence(steps: int, features: int) -> Iterator[Large]:
    yield from Work(
        f"gated recurrence, {features} features",
        large_loops.gated_recurrence,
        Drawn((normal(steps, features), normal(steps, features))),
        (0, 1),
        sizes=f"{steps} steps, f32",
        others={"jax.lax.associative_scan": large_loops.gated_recurrence_in_parallel},
    ).both_ways()


def sinkhorn(size: int, steps: int) -> Iterator[Large]:
    arguments = Host(fixed_points.transports(1, size))
    name, told = f"Sinkhorn {size} by {size}", f"{steps} steps, f32"
    yield from Work(name, fixed_points.sinkhorn(steps), arguments, (0, 1, 2), sizes=told).both_ways()


def value_iteration(size: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, size, size),))
    name = f"value iteration {size} by {size}"
    yield Work(name, fixed_points.value_iteration, arguments, sizes="until settled, f32").forward()


def newton(lanes: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 0.8, lanes), uniform(0.0, 0.8, lanes)))
    yield Work(f"Newton, {lanes} lanes", fixed_points.kepler, arguments, sizes="each until solved, f32").forward()


def attention(causal: bool, batch: int, heads: int, tokens: int, features: int) -> Iterator[Large]:
    shape = batch, heads, tokens, features
    yield from Work(
        f"{'causal ' if causal else ''}attention, {tokens} tokens",
        large_layers.attention(causal),
        Drawn((normal(*shape, dtype=BF16),) * 3),
        (0, 1, 2),
        normal(*shape, dtype=BF16),
        f"batch {batch}, {heads} heads of {features}, bf16",
        {"cuDNN attention": large_layers.cudnn_attention(causal)},
    ).both_ways()


def decode(batch: int, heads: int, tokens: int, features: int) -> Iterator[Large]:
    cache = normal(batch, heads, tokens, features, dtype=BF16)
    query = normal(batch, heads, features, dtype=BF16)
    arguments = Drawn((query, cache, cache, integers(tokens - tokens // 4, tokens + 1, batch)))
    told = f"batch {batch}, {heads} heads of {features}, one token each, bf16"
    yield Work(f"decode attention, cache of {tokens}", large_layers.decode, arguments, sizes=told).forward()


def rows(batch: int, length: int) -> Iterator[Large]:
    """Few rows, too long to be kept anywhere on a chip."""
    long, bf16 = normal(batch, length), normal(batch, length, dtype=BF16)
    vectors = (normal(length, dtype=BF16),) * 2
    told = f"{batch} rows of {length}"
    softmax = Work("softmax of long rows", jax.nn.softmax, Drawn((long,)), (0,), long, f"{told}, f32")
    norm = Work("layer norm of long rows", layer_norm, Drawn((bf16, *vectors)), (0, 1, 2), bf16, f"{told}, bf16")
    arguments = Drawn((bf16, integers(0, length, batch)))
    loss = Work("cross entropy of long rows", large_layers.cross_entropy, arguments, (0,), sizes=f"{told}, bf16")
    for work in (softmax, norm, loss):
        yield from work.both_ways()


def block(batch: int, tokens: int, features: int) -> Iterator[Large]:
    def weight(inner: int, outer: int) -> Any:
        return normal(inner, outer, scale=inner**-0.5, dtype=BF16)

    scales = {name: uniform(0.5, 1.5, features, dtype=BF16) for name in ("scale", "scale_2")}
    params = {"qkv": weight(features, 3 * features), "out": weight(features, features), **scales}
    params |= {"up": weight(features, 4 * features), "down": weight(4 * features, features)}
    x = normal(batch, tokens, features, dtype=BF16)
    told = f"batch {batch}, {tokens} tokens, {features // 64} heads of 64, bf16"
    name = f"transformer block, {features} features"
    yield from Work(name, large_layers.block, Drawn((params, x)), (0, 1), x, told).both_ways()


ROWS = (
    Row(recurrent_net, ("rnn", 256, 64, 512, F32), ("rnn", 8, 2, 4, F32)),
    Row(recurrent_net, ("gru", 512, 32, 256, F32), ("gru", 8, 2, 4, F32)),
    Row(recurrent_net, ("lstm", 512, 64, 256, F32), ("lstm", 8, 2, 4, F32)),
    Row(recurrent_net, ("lstm", 1024, 32, 256, BF16), ("lstm", 16, 2, 4, BF16)),
    Row(lstm_both_ways, (256, 32, 256), (8, 2, 4)),
    Row(heat, (512, 500), (8, 3)),
    Row(gray_scott, (256, 500), (8, 3)),
    Row(wave, (1024, 500), (8, 3)),
    Row(lattice_boltzmann, (256, 200), (8, 3)),
    Row(conjugate_gradients, (256,), (8,)),
    Row(k_means, (65536, 64, 16, 20), (64, 4, 3, 3)),
    Row(floyd_warshall, (512,), (9,)),
    Row(power_iteration, (1024, 100), (9, 5)),
    Row(training, (128, 100, 784, 256), (4, 3, 12, 8)),
    Row(n_body, (1024, 100), (9, 3)),
    Row(cart_poles, (100_000, 200), (5, 3)),
    Row(lorenz, (1_000_000, 1000), (5, 3)),
    Row(noisy_chains, (100_000, 1000), (5, 3)),
    Row(hmc, (4096, 100, 200, 10), (4, 10, 2, 3)),
    Row(kalman, (10_000, 100), (3, 4)),
    Row(hidden_markov, (256, 1000), (5, 6)),
    Row(selective_scan, (8, 2048, 1024, 16), (2, 5, 6, 4)),
    Row(gated_recurrence, (8192, 1024), (7, 5)),
    Row(sinkhorn, (1024, 100), (6, 4)),
    Row(value_iteration, (256,), (7,)),
    Row(newton, (1_000_000,), (9,)),
    Row(attention, (False, 4, 16, 2048, 64), (False, 2, 2, 16, 8)),
    Row(attention, (True, 4, 16, 2048, 64), (True, 2, 2, 16, 8)),
    Row(decode, (8, 32, 8192, 128), (2, 2, 16, 8)),
    Row(rows, (64, 1_000_000), (3, 50)),
    Row(block, (4, 2048, 1024), (2, 8, 128)),
    *large_coupled.ROWS,
    *published.ROWS,
)

LARGE: tuple[Large, ...] = entries(ROWS)
SMALL: tuple[Large, ...] = entries(ROWS, small=True)
