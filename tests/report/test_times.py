"""Where the time of a program of many kernels goes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Kernel, Launches, Leftover
from jaxpr2triton.policy import DEFAULT_POLICY
from jaxpr2triton.report.times import MANY, Spent, microseconds_of, shown_times, times_of

SPENT = [Spent(f"f_{n}", f"model.py:{n}", 2, float(n)) for n in range(MANY + 3)]


def layers(x: Any, ws: Any) -> Any:
    for k, w in enumerate(ws):
        x = jax.nn.softmax(jnp.tanh(x @ w) * (k + 1), axis=-1)
    return jnp.abs(jnp.fft.fft(x)).sum()


def made(count: int) -> Any:
    shapes = [jax.ShapeDtypeStruct((512, 512), jnp.float32)] * count
    return j2t.transpile(layers, jax.ShapeDtypeStruct((4096, 512), jnp.float32), shapes)


def kernel_of(f: Any, *shapes: tuple[int, ...], dtype: Any = jnp.float32, **options: Any) -> Kernel:
    program = j2t.transpile(f, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes), **options)
    (kernel,) = program.kernels
    return kernel


def test_what_takes_longest_is_first_and_the_rest_is_counted() -> None:
    lines = shown_times(SPENT, False, 100)[1].splitlines()
    assert lines[0].split() == ["where", "the", "time", "goes,", "estimated", "launches", "µs", "share", "computes"]
    assert lines[1].split() == ["f_14", "2", "14", "13%", "model.py:14"]
    assert len(lines) == 1 + MANY + 2
    assert lines[-2].split() == ["3", "more", "6", "3", "3%"]
    assert lines[-1].split() == ["in", "all", "30", "105", "100%"]
    assert "modelled" in shown_times(SPENT, True, 100)[1]


def test_of_few_kernels_nothing_is_told() -> None:
    assert shown_times(SPENT[:MANY], False, 100) == []


def test_a_trip_count_that_nobody_knows_is_first() -> None:
    lines = shown_times([*SPENT, Spent("newton", "model.py:3", 1, None)], False, 100)[1].splitlines()
    assert lines[1].split() == ["newton", "1", "-", "model.py:3"]


def test_a_big_program_tells_units_lines_shares_and_the_total() -> None:
    program = made(MANY)
    text = program.explain()
    assert "  where the time goes, estimated" in text and "\n  in all  " in text
    assert "  XLA, " in text
    facts = json.loads(json.dumps(program.explain_json()))
    line = layers.__code__.co_firstlineno + 2
    assert sum(f"test_times.py:{line}" in each["where"] for each in facts["kernels"]) >= MANY
    every = [each["microseconds"] for each in facts["kernels"]]
    assert all(time >= DEFAULT_POLICY.products.launch_after_gap_us for time in every)
    assert facts["microseconds"] == pytest.approx(
        sum(every) + times_of({}, program.leftovers, DEFAULT_POLICY, None)[0].microseconds
    )
    assert facts["bytes_by_xla"] == sum(each["bytes"] for each in facts["leftovers"]) > 0
    assert f"at least {facts['bytes_by_xla']:,} by XLA" in " ".join(text.split())


def test_bytes_of_what_stays_with_xla() -> None:
    """What it reads and writes, each once: complex numbers are eight bytes."""
    shape = jax.ShapeDtypeStruct((64,), jnp.complex64)
    (left,) = j2t.transpile(lambda x: jnp.fft.fft(x), shape).leftovers
    assert (left.primitive, left.nbytes) == ("fft", 2 * 64 * 8)


def test_what_an_estimate_is_made_of() -> None:
    launch = DEFAULT_POLICY.products.launch_after_gap_us
    rate = DEFAULT_POLICY.target.memory_rate
    moved = kernel_of(lambda x: x + 1, (1 << 24,))
    assert microseconds_of(moved, DEFAULT_POLICY) == pytest.approx(launch + 2 * 4 * (1 << 24) / rate / 1000)
    product = kernel_of(
        lambda x, w: jnp.tanh(x @ w), (4096, 4096), (4096, 4096), dtype=jnp.bfloat16, contractions="triton"
    )
    narrow = microseconds_of(product, DEFAULT_POLICY)
    exact = replace(product, source=product.source + "\n# input_precision='ieee'")
    assert narrow is not None and 150 < narrow < 400 and microseconds_of(exact, DEFAULT_POLICY) > 10 * narrow
    loop = kernel_of(lambda x: jax.lax.fori_loop(0, 1000, lambda _, x: jnp.sin(x), x), (8,))
    twice = kernel_of(lambda x: jax.lax.fori_loop(0, 2000, lambda _, x: jnp.sin(x), x), (8,))
    times = [microseconds_of(each, DEFAULT_POLICY) for each in (loop, twice)]
    assert times[1] - launch == pytest.approx(2 * (times[0] - launch), rel=0.1)
    endless = kernel_of(lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, jnp.exp, x), (8,))
    assert microseconds_of(endless, DEFAULT_POLICY) is None


def test_loops_that_stay_with_xla_are_their_launches() -> None:
    loop = Leftover("scan", "", "", "", launches=Launches(3, 100), microseconds=450.0)
    (spent,) = times_of({}, [loop], DEFAULT_POLICY, None)
    assert spent == Spent("XLA, 1 equation", "", None, 450.0)
    (spent,) = times_of({}, [replace(loop, microseconds=None)], DEFAULT_POLICY, None)
    assert spent.microseconds is None


def test_the_lines_of_a_kernel_are_the_users() -> None:
    def two(x: Any) -> Any:
        total = x.sum(-1)
        return jnp.sqrt(total)

    line = two.__code__.co_firstlineno
    assert kernel_of(two, (8, 64)).lines == (f"test_times.py:{line + 1}", f"test_times.py:{line + 2}")


def test_what_every_program_reads_is_counted_for_each() -> None:
    """800 programs that each look through all numbers of groups: other programs have them in the cache."""

    def summed(x: Any, groups: Any) -> Any:
        return jax.ops.segment_sum(x, groups, num_segments=100)

    program = j2t.transpile(
        summed, jax.ShapeDtypeStruct((20000, 8), jnp.float32), jax.ShapeDtypeStruct((20000,), jnp.int32)
    )
    (kernel,) = program.kernels
    assert (kernel.bytes_read, kernel.bytes_asked) == (720_000, 800 * 2 * 80_000)
    assert "1.00x the minimum; programs load 128,000,000, from caches" in " ".join(program.explain().split())
    plain = kernel_of(lambda x: x + 1, (1024,))
    assert plain.bytes_asked == plain.bytes_read
    product = kernel_of(lambda x, w: jnp.tanh(x @ w), (256, 64), (64, 512), contractions="triton")
    assert product.bytes_asked > product.bytes_read
