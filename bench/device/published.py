"""Programs of published hand-written kernels at their sizes, with the times that were published, where numbers were.

Rates are turned into times by the operations or the bytes that their authors count. Times are those of the device that
is named, which is seldom the one that this is compared on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import large_layers, large_loops
from bench.device.large_entries import PUBLISHED, Drawn, Host, Large, Row, Work, integers, normal
from tests.loop_programs import equations
from tests.programs import Arguments, Rng, layer_norm, rms_norm

BF16 = jnp.bfloat16

# FlashRNN

FLASH_RNN = "FlashRNN (arXiv 2412.07752), H100: times only in figures, no number found"


def flash_rnn(heads: int, units: int, batch: int, steps: int) -> Iterator[Large]:
    """As its kernels do, without the product of the inputs."""
    weights = normal(heads, units, 4 * units, scale=units**-0.5, dtype=BF16), normal(heads, 4 * units, dtype=BF16)
    arguments = (*weights, normal(steps, batch, heads, 4 * units, dtype=BF16), normal(batch, heads, units, dtype=BF16))
    work = Work(
        f"FlashRNN lstm, {heads} heads of {units}",
        large_loops.lstm_of_heads,
        Drawn(arguments),
        (0, 1, 2, 3),
        normal(steps, batch, heads, units, dtype=BF16),
        f"batch {batch}, {steps} steps, bf16",
    )
    yield work.forward(PUBLISHED, None, FLASH_RNN)
    yield work.gradients(PUBLISHED, None, FLASH_RNN)


# GPUODEBenchmarks

ENSEMBLES = "GPUODEBenchmarks, data/Julia_times_{}.txt (DiffEqGPU.jl, arXiv 2304.06835), an NVIDIA GPU not named there"
FIXED_STEPS = {131_072: 3443.626, 8_388_608: 145_316.839}  # µs; MPGOS, in CUDA C++, takes 3,025 and 94,157 there
CONTROLLED = {100_000: 1213.418}


def lorenz(lanes: int) -> Arguments:
    """Theirs differ in one number of three, and start all in one place."""

    def arguments(rng: Rng) -> tuple[Any, ...]:
        rho = np.linspace(0, 21, lanes)
        params = np.stack([np.full(lanes, 10.0), rho, np.full(lanes, 2.666)], axis=1)
        return np.tile([1.0, 0.0, 0.0], (lanes, 1)).astype(np.float32), params.astype(np.float32)

    return arguments


def fixed_steps(lanes: int, steps: int, seconds: float) -> Iterator[Large]:
    program = equations.ensemble(equations.tsit5_fixed, steps, 0.001)
    told = f"{steps} steps of Tsit5, f32"
    work = Work(f"Lorenz, fixed steps, {lanes} lanes", program, Host(lorenz(lanes)), sizes=told)
    yield work.forward(PUBLISHED, FIXED_STEPS.get(lanes), ENSEMBLES.format("unadaptive"), seconds)


def controlled_steps(lanes: int) -> Iterator[Large]:
    program = equations.controlled(1.0, 10_000, 1e-8)
    told = "Tsit5, tolerance 1e-8, f32"
    work = Work(f"Lorenz, chosen steps, {lanes} lanes", program, Host(lorenz(lanes)), sizes=told)
    yield work.forward(PUBLISHED, CONTROLLED.get(lanes), ENSEMBLES.format("adaptive"))


# QuACK

QUACK_SOFTMAX = "QuACK, 'Getting memory-bound kernels to speed-of-light', H100: 3.01 TB/s at 16384 rows, by bytes"


def quack(rows: int, length: int) -> Iterator[Large]:
    name, told = f"QuACK softmax, rows of {length}", f"{rows} rows, f32"
    read_and_written = 8 * rows * length
    work = Work(name, jax.nn.softmax, Drawn((normal(rows, length),)), sizes=told)
    yield work.forward(PUBLISHED, read_and_written / 3.01e6, QUACK_SOFTMAX)


# Liger

LIGER = "Liger-Kernel 0.5.2, benchmark/data/h100_all_benchmark_data.csv, H100 NVL"
LIGER_FIRST = (
    "Liger-Kernel, first release, benchmark/fused_linear_cross_entropy_speed/nvidia_h100_80gb_hbm3, which does not say "
    "features and words"
)


def liger_norms(rows: int, rms_length: int, layer_rows: int, layer_length: int) -> Iterator[Large]:
    x, y = normal(rows, rms_length, dtype=BF16), normal(layer_rows, layer_length)
    name, told = f"Liger RMS norm, rows of {rms_length}", f"{rows} rows, bf16"
    norm = Work(name, rms_norm, Drawn((x, normal(rms_length, dtype=BF16))), (0, 1), x, told)
    yield norm.gradients(PUBLISHED, 746.88, LIGER)
    arguments = Drawn((y, normal(layer_length), normal(layer_length)))
    name, told = f"Liger layer norm, rows of {layer_length}", f"{layer_rows} rows, f32"
    norm = Work(name, layer_norm, arguments, (0, 1, 2), y, told)
    yield norm.gradients(PUBLISHED, 293.824, LIGER)


def liger_loss(rows: int, words: int) -> Iterator[Large]:
    arguments = Drawn((normal(rows, words), integers(0, words, rows)))
    name, told = f"Liger cross entropy, {words} words", f"{rows} rows, f32"
    work = Work(name, large_layers.cross_entropy, arguments, (0,), sizes=told)
    yield work.gradients(PUBLISHED, 1599.488, LIGER)


def liger_fused_loss(tokens: int, features: int, words: int) -> Iterator[Large]:
    weights = normal(words, features, scale=features**-0.5, dtype=BF16)
    arguments = Drawn((normal(tokens, features, dtype=BF16), weights, integers(0, words, tokens)))
    name, told = f"Liger linear cross entropy, {words} words", f"{tokens} tokens, {features} features, bf16"
    work = Work(name, large_layers.linear_cross_entropy, arguments, (0, 1), sizes=told)
    yield work.forward(PUBLISHED, 70_008.675, LIGER_FIRST)
    yield work.gradients(PUBLISHED, 71_202.24, LIGER_FIRST)


def liger_swiglu(tokens: int, features: int, hidden: int) -> Iterator[Large]:
    x = normal(tokens, features, dtype=BF16)
    inner = normal(features, hidden, scale=features**-0.5, dtype=BF16)
    outer = normal(hidden, features, scale=hidden**-0.5, dtype=BF16)
    name, told = f"Liger swiglu, {features} {hidden} {features}", f"{tokens} tokens, bf16"
    work = Work(name, large_layers.swiglu, Drawn((x, inner, inner, outer)), (0, 1, 2, 3), x, told)
    yield work.forward(PUBLISHED, None, f"{LIGER}: forward alone is not there")
    yield work.gradients(PUBLISHED, 7182.816, LIGER)


# FlashAttention

TOKENS, FEATURES = 16_384, 2048  # of a batch in all, and of all heads
FLASH = "FlashAttention-3 (arXiv 2407.08608), figures, fp16, H100 80GB SXM5: {} TFLOP/s"
FORWARD_RATES: Mapping[tuple[bool, int, int], int] = {  # causal, features of a head, tokens: TFLOP/s
    (False, 64, 2048): 460,
    (False, 128, 2048): 625,
    (False, 128, 8192): 646,
    (True, 128, 2048): 521,
    (True, 128, 8192): 602,
}
BACKWARD_RATES: Mapping[tuple[bool, int, int], int] = {
    (False, 64, 2048): 422,
    (False, 128, 2048): 501,
    (False, 128, 8192): 559,
}


def flash_attention(causal: bool, head: int, tokens: int, in_all: int, features: int) -> Iterator[Large]:
    """A backward pass counts as two and a half forward, and half of either is left out where it is causal."""
    shape = in_all // tokens, tokens, features // head, head
    each = normal(*shape, dtype=BF16)
    work = Work(
        f"FlashAttention{' causal' if causal else ''}, {tokens} tokens, heads of {head}",
        large_layers.attention_of_tokens(causal),
        Drawn((each,) * 3),
        (0, 1, 2),
        each,
        f"batch {shape[0]}, {shape[2]} heads, bf16",
        {"cuDNN attention": large_layers.cudnn_attention_of_tokens(causal)},
    )
    operations = 4 * in_all * tokens * features / (2 if causal else 1)
    forward, backward = (rates.get((causal, head, tokens)) for rates in (FORWARD_RATES, BACKWARD_RATES))
    there = None if forward is None else operations / forward / 1e6
    yield work.forward(PUBLISHED, there, FLASH.format(forward))
    if not causal:  # their figures of backward passes are all of attention to everything
        both = None if there is None or backward is None else there + 2.5 * operations / backward / 1e6
        yield work.gradients(PUBLISHED, both, FLASH.format(f"{forward} forward, {backward} backward"))


ROWS = (
    Row(flash_rnn, (1, 768, 16, 1024), (1, 16, 2, 4)),
    Row(flash_rnn, (12, 64, 16, 1024), (3, 8, 2, 4)),
    Row(fixed_steps, (131_072, 1000, 0.0), (5, 4, 0.0)),
    Row(fixed_steps, (8_388_608, 1000, 1.0), (6, 4, 0.0)),
    Row(controlled_steps, (100_000,), (5,)),
    Row(quack, (2048, 131_072), (3, 50)),
    Row(liger_norms, (2048, 32_768, 4096, 8192), (3, 50, 3, 40)),
    Row(liger_loss, (16_384, 16_384), (6, 50)),
    Row(liger_fused_loss, (4096, 4096, 128_256), (6, 16, 40)),
    Row(liger_swiglu, (4096, 4096, 11_008), (6, 16, 24)),
    *(Row(flash_attention, (*key, TOKENS, FEATURES), (*key[:2], 8, 16, 128)) for key in FORWARD_RATES),
)
