"""For every number of the policy a program that notices when it moves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.roles import parse_roles
from jaxpr2triton.ir.tracing import trace
from jaxpr2triton.pipeline import compile_jaxpr
from jaxpr2triton.policy import COMMON, DEFAULT_POLICY, Policy
from jaxpr2triton.report.doubts import doubts_about
from tests.compiling import shapes_of
from tests.loop_programs import PROGRAMS as LOOPS
from tests.policies import moved
from tests.programs import PROGRAMS

NAMED = {program.name: program for program in (*PROGRAMS, *LOOPS)}
Fn = Callable[..., Any]


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def halves(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def integers(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.int32)


# ---------------------------------------------------------------------------------------------- programs
def repeated(step: Fn) -> Fn:
    return lambda x: lax.scan(lambda x, _: (step(x), None), x, None, 5)[0]


def steps_of_sums(x: Any) -> Any:
    def step(c: Any) -> Any:
        for _ in range(7):
            c = jnp.tanh(c - c.mean())
        return jnp.fft.fft(c).real

    return repeated(step)(x)


def looked_up(x: Any) -> Any:
    return jnp.sin(x)[jnp.arange(5) ** 2 % 4]


def elman(w: Any, u: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u),) * 2, h, xs)


def narrow_elman(w: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ w),) * 2, h, xs)


def scattered_in_a_loop(x: Any, places: Any) -> Any:
    return lax.scan(lambda c, i: (c.at[i].add(c[i]), None), x, places)[0]


def matrix_state(m: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c @ m + x), c[0]), m, xs)[0]


def wide_state(m: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c * m + x.sum() * c.sum()), None), m, xs)[0]


def kept_states(xs: Any) -> Any:
    return jnp.exp(lax.scan(lambda c, x: (jnp.tanh(c + x), c), xs[0], xs)[1].sum(1))


def summed_states(xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c + x), c * x), xs[0], xs)[1].sum(0)


def maybe_long(x: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        return lax.cond(c.sum() > 0, lambda: jnp.tanh(jnp.exp(c) * jnp.sin(c)), lambda: c + 1), c

    return lax.scan(step, x, jnp.arange(50))[0]


def grown(x: Any) -> Any:
    return jax.vmap(lambda y: lax.while_loop(lambda s: (s * s).sum() < 100.0, lambda s: s * 1.1, y))(x)


def grown_and_mixed(x: Any) -> Any:
    def mixed(s: Any) -> Any:
        return s * 1.1 + jnp.roll(s, 1) + s.sum()

    return jax.vmap(lambda y: lax.while_loop(lambda s: (s * s).sum() < 100.0, mixed, y))(x)


def layers(x: Any) -> Any:
    for _ in range(8):
        x = x + lax.sort(jnp.tanh(x))
    return x


def crossing_chains(*xs: Any) -> Any:
    """No single value leads to the rest."""
    values = list(xs)
    for _ in range(20):
        values = [jnp.sin(x + y) for x, y in zip(values, [*values[1:], values[0]])]
    while len(values) > 1:
        values = [x + y for x, y in zip(values[::2], values[1::2])] + values[len(values) & ~1 :]
    return values[0]


def parts_of_ten(x: Any) -> Any:
    """Parts of ten steps each, none of which needs another one."""
    starts = [x + number for number in range(40)]
    parts = starts
    for _ in range(5):
        parts = [jnp.sin(part) + start for part, start in zip(parts, starts)]
    return jnp.stack(parts)


def normalized(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5) * scale + bias


def backward(x: Any, scale: Any, bias: Any, cotangent: Any) -> Any:
    return jax.vjp(normalized, x, scale, bias)[1](cotangent)


def sines(x: Any) -> Any:
    return sum(jnp.sin(x * i) for i in range(100))


def rolls(x: Any) -> Any:
    return sum(jnp.roll(jnp.sin(x)[::-1], i) for i in range(10))


def shifts(x: Any) -> Any:
    y = jnp.sin(x)
    for _ in range(4):
        y = jnp.concatenate([y[5:], y[:5]]) + y
    return y


def gradient(fn: Fn) -> Fn:
    return jax.grad(lambda *args: fn(*args).sum())


def tanh_of_product(w: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h), h, xs)[1]


def sum_of_tanhs(w: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h[..., None] * w + x[..., None]).sum(2), h), h, xs)[1]


def masked(x: Any) -> Any:
    place = jnp.arange(8)
    odd = (place % 2 == 1) & (place > 2)
    return lax.scan(lambda x, _: (jnp.where(odd, x * 2, x + 1), None), x, None, 5)[0]


def with_its_transpose(m: Any) -> Any:
    result = lax.scan(lambda c, i: (jnp.tanh(c + i), c), m, jnp.arange(9.0))[0]
    return result + result.T


def factored(c: Any) -> Any:
    return jnp.linalg.cholesky(c @ c.T + jnp.eye(len(c)))


def states_times(w: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c + x), c), h, xs)[1] @ w


def while_any_lane(x: Any, largest: Any) -> Any:
    def step(x: Any) -> Any:
        return jnp.where(x < 9, x + lax.reduce_max(largest, (0,)), x)

    return lax.while_loop(lambda x: jnp.any(x < 9), step, x)


def few_steps_in_steps(x: Any, table: Any) -> Any:
    def few(x: Any) -> Any:
        step = lambda state: (state[0] + 1, jnp.tanh(state[1] * table[state[0]]))  # noqa: E731
        return lax.while_loop(lambda state: state[0] < 6, step, (0, x))[1]

    return repeated(few)(x)


ELMAN = (floats(32, 32), floats(32, 32), floats(20, 8, 32), floats(8, 32))
MINE: dict[str, tuple[Fn, tuple[Any, ...]]] = {
    "backward": (backward, (floats(256, 2000), floats(2000), floats(2000), floats(256, 2000))),
    "parts": (parts_of_ten, (floats(100),)),
    "chains": (crossing_chains, (floats(100),) * 12),
    "column sums": (lambda x: x.sum(0), (floats(100_000, 64),)),
    "columns of little": (lambda x: x.sum(0), (floats(16, 1_000_000),)),
    "elman": (elman, ELMAN),
    "exp and sum": (lambda x, y: (x.sum(1), jnp.exp(y)), (floats(40960, 512), floats(40960, 512))),
    "grown": (grown, (floats(4096, 8),)),
    "grown and mixed": (grown_and_mixed, (floats(64, 64),)),
    "kept states": (kept_states, (floats(100, 300),)),
    "large elman": (elman, (floats(256, 256), floats(256, 256), floats(20, 64, 256), floats(64, 256))),
    "layers": (layers, (floats(512),)),
    "long row": (lambda x: jax.nn.softmax(x, 1), (floats(4, 1_000_000),)),
    "matrix state": (matrix_state, (floats(64, 64), floats(10, 64, 64))),
    "maybe long": (maybe_long, (floats(64),)),
    "moments": (lambda x: (x.mean(0), x.var(0)), (floats(32, 64),)),
    "more moments": (lambda x: (x.mean(0), x.var(0)), (floats(4096, 64),)),
    "narrow elman": (narrow_elman, (floats(12, 12), floats(20, 4096, 12), floats(4096, 12))),
    "outer": (lambda x, y: x.sum(1)[:, None] * y, (floats(2000, 64), floats(300))),
    "ratio of sums": (lambda x: jnp.sin(x).sum(0) / jnp.cos(x).sum(0), (floats(4096, 4096),)),
    "rows": (lambda x: x.sum(1), (floats(64, 48),)),
    "sines": (sines, (floats(1024, 1024),)),
    "states": (lambda x: lax.scan(lambda c, x: (jnp.maximum(c * 0.5, x), None), x[0], x)[0], (floats(30_000, 100),)),
    "steps": (lambda x: lax.fori_loop(0, 20_000, lambda i, c: jnp.tanh(c * 1.1 + c.sum()), x), (floats(200),)),
    "sums apart": (lambda x: x.sum((0, 2)), (floats(1000, 8, 4096),)),
    "three rows": (
        lambda x, y: (x.sum(1), (x * y).sum(1), jnp.exp(x)),
        (floats(4096, 512), floats(4096, 512)),
    ),
    "while any lane": (while_any_lane, (floats(128), floats(1000))),
    "few steps": (few_steps_in_steps, (floats(64), floats(9))),
    "turned": (lambda x: jnp.transpose(x, (0, 2, 1)) + 1, (floats(32, 64, 128),)),
    "distances": (lambda w, x: ((w[:, :, None] - x[:, None]) ** 2).sum(0), (floats(784, 1024), floats(784, 2048))),
    "exact products": (lambda x, w: jnp.dot(x, w, precision="highest"), (floats(2048, 512), floats(512, 2048))),
    "products": (jnp.matmul, (floats(2048, 512), floats(512, 2048))),
    "products of many terms": (lambda x, y: x.T @ y, (floats(8192, 32), floats(8192, 16))),
    "products of 16 bits": (jnp.matmul, (halves(4096, 512), halves(512, 4096))),
    "sums over pairs": (lambda x, y: jnp.exp(-((x[:, None] - y) ** 2)).sum(1), (floats(10_000), floats(10_000))),
    "two products": (lambda x, w, v: jax.nn.silu(x @ w) * (x @ v), (halves(4096, 512), *[halves(512, 4096)] * 2)),
    "two arrays": (lambda x, y: (jnp.sin(x), jnp.cos(y)), (floats(100), floats(100))),
    "waves": (lambda x: tuple(jnp.sin(x + i) for i in range(40)), (floats(100),)),
    "steps of sums": (steps_of_sums, (floats(64),)),
    "looked up": (looked_up, (floats(4, 8),)),
    "wide": (wide_state, (floats(100, 200), floats(10, 64))),
    "wider": (wide_state, (floats(200, 210), floats(10, 64))),
}


def program(name: str) -> tuple[Fn, Any]:
    """One of the above, or a named one: `gru`, `gru:g` for its gradient, `gru:bench` at its full size."""
    if name in MINE:
        return MINE[name]
    found, *how = name.split(":")
    named = NAMED[found]
    args = shapes_of(named.bench_args) if "bench" in how and named.bench_args else named.args(np.random.default_rng(0))
    return named.gradient() if "g" in how else named.fn, args


# ---------------------------------------------------------------------------------------------- what moves
@dataclass(frozen=True)
class Case:
    """A program that becomes another one when a number is so many times as large, among some other numbers."""

    program: str
    factor: float
    others: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    roles: Mapping[str, str] | None = None
    contractions: bool = False  # whether kernels hold them


NO_ROOM = {"loops": {"kept": 256, "large_product": 1 << 20}}
CASES = {
    "cuts.held": Case("long row", 1 / 2),
    "cuts.lanes_of_a_row": Case("layer_norm:bench:g", 1 / 2),
    "cuts.small": Case("moments", 1 / 16),
    "cuts.enough": Case("batch_norm_statistics:bench", 1 / 4),
    "cuts.many": Case("outer", 2),
    "cuts.carried": Case("wider", 2),
    "cuts.read_again": Case("large elman", 1 / 2),
    "cuts.much": Case("gru:g", 0),
    "cuts.times": Case("softmax_4096:bench", 1 / 4),
    "cuts.neighbours": Case("batch_norm_statistics:bench", 1 / 4),
    "cuts.small_loop": Case("rnn:g", 1 / 16),
    "cuts.steps": Case("chains", 1 / 16),
    "cuts.steps_of_loops": Case("lorenz_rk4", 1 / 128),
    "cuts.launches_of_a_step": Case("steps of sums", 2),
    "cuts.times_fewer": Case("steps of sums", 8),
    "cuts.reads": Case("layers", 1 / 2),
    "cuts.worth_a_load": Case("parts", 8, {"cuts": {"steps": 100}}),
    "cuts.values": Case("chains", 1 / 2, {"cuts": {"steps": 100}}),
    "splits.few": Case("ratio of sums", 2),
    "splits.wanted": Case("full_mean:bench", 1 / 2),
    "splits.little_work": Case("sum_of_squares:bench", 4),
    "splits.rows": Case("three rows", 1 / 16),
    "splits.elements": Case("sum_of_squares:bench", 1 / 2),
    "splits.apart": Case("sums apart", 1 / 4),
    "splits.columns": Case("column sums", 1 / 2),
    "splits.columns_at_once": Case("more moments", 1 / 2),
    "splits.chunks": Case("layer_norm:bench:g", 1 / 2),
    "splits.few_chunks": Case("layer_norm:bench:g", 16),
    "splits.swept": Case("long sums one by one", 1 / 2),
    "splits.beside_swept": Case("long sums one by one", 2),
    "splits.worth_sharing": Case("reductions", 0),
    "splits.chunk_of_little": Case("backward", 2),
    "splits.chunk": Case("layer_norm:bench:g", 1 / 4),
    "groups.outputs": Case("waves", 1 / 2),
    "groups.pointers": Case("three rows", 1 / 128),
    "groups.buffers": Case("selective_scan:g", 1 / 128),
    "groups.cheap": Case("two arrays", 0),
    "groups.walked": Case("layer_norm:bench:g", 1 / 16),
    "groups.resident": Case("reductions", 0),
    "groups.times": Case("layer_norm:bench:g", 1 / 4),
    "axes.unrolled_sum": Case("gru:g", 1 / 2),
    "axes.unrolled_state": Case("grown", 1 / 4),
    "axes.unrolled": Case("rows", 1 / 2, roles={"k": "unroll"}),
    "axes.unrolled_unasked": Case("gru:g", 1 / 4),
    "axes.pieces": Case("pieces", 1 / 2),
    "axes.run": Case("column sums", 4),
    "axes.turned": Case("transposes", 1 / 2),
    "products.narrow": Case("products of 16 bits", 1 / 2, contractions=True),
    "products.tf32": Case("products", 1 / 2, contractions=True),
    "products.exact": Case("exact products", 1 / 2, contractions=True),
    "products.outer": Case("distances", 1 / 2),
    "products.lanes": Case("sums over pairs", 1 / 2),
    "products.of_a_thread": Case("two products", 1 / 2, contractions=True),
    "products.terms_of_a_chunk": Case("products of many terms", 1 / 2, contractions=True),
    "products.chunks": Case("products of many terms", 1 << 10, contractions=True),
    "products.least": Case("products", 1 << 16, contractions=True),
    "products.least_sum": Case("products", 1 << 10, contractions=True),
    "products.least_side": Case("distances", 1 << 10),
    "products.least_lanes": Case("sums over pairs", 1 << 10),
    "blocks.resident": Case("full_mean:bench", 1 / 2),
    "blocks.resident_crossed": Case("layer_norm:bench:g", 128),
    "blocks.streamed": Case("ratio of sums", 1 / 2),
    "blocks.least": Case("ratio of sums", 128),
    "blocks.pointwise": Case("exp and sum", 1 / 2),
    "blocks.pointwise_least": Case("gelu_tanh", 1 / 2),
    "blocks.programs": Case("ratio of sums", 1 / 2),
    "blocks.across": Case("column sums", 1 / 4),
    "blocks.across_least": Case("column_sum", 1 / 2),
    "blocks.across_held": Case("batch_norm_statistics:bench", 2),
    "blocks.results": Case("three rows", 1 / 2),
    "blocks.row_of_little": Case("columns of little", 2),
    "blocks.turned": Case("turned", 1 / 2),
    "blocks.of_a_thread": Case("full_mean", 1 / 2),
    "blocks.of_a_thread_pointwise": Case("turned", 1 / 2),
    "blocks.warps": Case("full_mean:bench", 1 / 2),
    "loops.lanes": Case("narrow elman", 4),
    "loops.lanes_to_fill": Case("selective_scan:bench:g", 1 / 128),
    "loops.kept": Case("large elman", 1 / 4),
    "loops.warps_that_reload": Case("elman", 1 / 2, NO_ROOM),
    "loops.large_product": Case("lstm:bench", 16),
    "loops.read_again": Case("elman", 1 / 2, NO_ROOM),
    "cost.latency": Case("kept states", 2),
    "cost.shuffle": Case("grown", 1 / 4),
    "cost.barrier": Case("selective_scan:bench:g", 1 / 2),
    "cost.barrier_of_a_warp": Case("rnn:bench", 1 / 2),
    "cost.barriers_of_a_meeting": Case("rnn:bench", 1 / 2),
    "cost.barriers_of_an_end": Case("grown and mixed", 0),  # the next best schedule, which `explain` tells
    "cost.request": Case("large elman", 4),
    "cost.address": Case("selective_scan:bench:g", 16),
    "cost.kept_by_a_thread": Case("matrix state", 1 / 2),
    "cost.spill": Case("gru:bench:g", 1 / 2),
    "cost.waiting": Case("grown", 1 << 20),
    "cost.copies_of_state": Case("rnn:bench:g", 2),
    "cost.copies_of_sums": Case("selective_scan:bench:g", 1 / 2),
    "cost.copies_of_operands": Case("rnn:bench", 1 / 4),
    "writing.branch": Case("maybe long", 1 / 2),
    "writing.written_out": Case("waves", 2),
    "writing.worth_calling": Case("waves", 16),
    "writing.packed": Case("sines", 1 / 4),
    "doubts.few": Case("states", 0),
    "doubts.moved": Case("states", 4),
    "doubts.computed": Case("steps", 16),
    "doubts.long_step": Case("wide", 100),
    "doubts.far_above": Case("wide", 4),
}


NARROW = (floats(6, 7), floats(20, 30, 6), floats(30, 6))
MINE |= {
    "long sums one by one": (lambda x: jnp.cumsum(x, 0), (floats(1000, 3),)),
    "applied": (lambda x, i: x.at[i].apply(jnp.sin), (floats(50), integers(6))),
    "applied once": (lambda x, i: x.at[i].apply(jnp.sin, unique_indices=True), (floats(50), integers(30))),
    "applied often": (lambda x, i: x.at[i].apply(jnp.sin), (floats(50), integers(800))),
    "scattered": (lambda x, i, v: x.at[i].add(v), (floats(4000), integers(3000), floats(3000))),
    "scattered in a loop": (scattered_in_a_loop, (floats(1000), integers(5, 600))),
    "eigenvalues": (lambda x: lax.linalg.eigh(x), (floats(5, 3, 3),)),
    "every other": (lambda x: jnp.take(x, jnp.arange(0, 100, 2) + 1), (floats(100),)),
    "factored": (repeated(factored), (floats(8, 8),)),
    "little factored": (repeated(factored), (floats(3, 3),)),
    "masked": (masked, (floats(8),)),
    "product": (gradient(tanh_of_product), (floats(64, 64), floats(20, 64), floats(64))),
    "rolls": (rolls, (floats(1000),)),
    "running sums": (repeated(lambda x: jnp.cumsum(x, 1) * 0.1), (floats(8, 8),)),
    "shifts": (shifts, (floats(1000),)),
    "long running sums": (repeated(lambda x: jnp.cumsum(x, 1) * 0.1), (floats(8, 4000),)),
    "rows in order": (lambda x: jnp.sort(x, 1), (floats(8, 2000),)),
    "sorted": (repeated(lambda x: jnp.sort(x, 1) * 0.1), (floats(8, 8),)),
    "states times": (states_times, (floats(6, 6), floats(20, 30, 6), floats(30, 6))),
    "summed states": (summed_states, (floats(3000, 64),)),
    "tanhs": (gradient(sum_of_tanhs), NARROW),
    "with its transpose": (with_its_transpose, (floats(40, 40),)),
}
COMMON_CASES = {
    "byte_read": Case("thomas:g", 2),
    "byte_stored": Case("gae:g", 1 / 2),
    "kept": Case("product", 16),
    "of_a_lane": Case("rnn:g", 2),
    "times_carried": Case("tanhs", 1 / 16),
    "times_stored": Case("product", 1 / 16),
    "steps_added": Case("summed states", 1 / 2),
    "steps_written_out": Case("few steps", 1 / 2),
    "equations_written_out": Case("few steps", 1 / 128),
    "scattered": Case("scattered", 1 / 64),
    "scattered_in_a_step": Case("scattered in a loop", 1 / 4),
    "scattered_once": Case("applied once", 0),
    "alike": Case("applied", 1 / 2),
    "alike_in_a_loop": Case("applied often", 1 / 2),
    "known": Case("every other", 0),
    "runs": Case("looked up", 0),
    "known_equations": Case("masked", 0),
    "longest_swept": Case("long running sums", 1 / 2),
    "longest_row": Case("rows in order", 1 / 2),
    "longest_sum": Case("running sums", 1 / 2),
    "longest_sort": Case("sorted", 1 / 2),
    "pairs": Case("sorted", 0),
    "matrix": Case("factored", 1 / 4),
    "sweeps": Case("eigenvalues", 1 / 2),
    "matrix_in_numbers": Case("little factored", 1 / 2),
    "short_contraction": Case("states times", 1 / 2),
    "held_anyway": Case("with its transpose", 1 / 2),
    "small_state": Case("lorenz_rk4:g", 1 / 16),
    "summed_by_each": Case("while any lane", 1 / 8),
    "places_of_a_sum": Case("ctc_loss", 1 / 2),
    "places_computed": Case("shifts", 1 / 2),
    "places_moved": Case("rolls", 1 / 16),
}


def subjects(of: Policy) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in dataclasses.fields(of) if each.name != "target"}


def times(number: Any, factor: float) -> Any:
    """So many times the number; of a table the part behind so much of it."""
    if isinstance(number, tuple):
        return number[int(len(number) * factor) :]
    return type(number)(number * factor)


@functools.cache
def traced(name: str) -> Any:
    fn, args = program(name)
    leaves, tree = jax.tree.flatten(args)
    shapes = [jax.typeof(leaf) for leaf in leaves]
    jaxpr, constants = trace(lambda *args: jax.tree.leaves(fn(*jax.tree.unflatten(tree, args))), *shapes)
    assert not constants
    return jaxpr


def told(name: str, chosen: Policy, roles: Mapping[str, str] | None = None, contractions: bool = False) -> Any:
    """The kernels of a program, what stays with XLA, and what the report says of both."""
    asked = parse_roles("program", roles, "triton" if contractions else "auto")
    try:
        made = compile_jaxpr(traced(name), "program", asked, chosen)
    except UserError as refusal:
        return str(refusal)
    every = made.all_kernels
    kernels = [(each.source, each.num_warps, each.choice, list(doubts_about(each, chosen))) for each in every]
    return kernels, [leftover.why for leftover in made.leftovers]


def test_every_number_has_a_program() -> None:
    numbers = {f"{name}.{number}" for name, each in subjects(DEFAULT_POLICY).items() for number in vars(each)}
    assert set(CASES) == numbers
    assert set(COMMON_CASES) == set(vars(COMMON))


@pytest.mark.parametrize("number", CASES)
def test_a_program_notices(number: str) -> None:
    case = CASES[number]
    subject, name = number.split(".")
    before = moved(**case.others)
    after = moved(before, **{subject: {name: times(getattr(subjects(before)[subject], name), case.factor)}})
    asked = case.roles, case.contractions
    assert told(case.program, before, *asked) != told(case.program, after, *asked)


@pytest.mark.parametrize("number", COMMON_CASES)
def test_a_program_notices_what_is_common(number: str) -> None:
    case = COMMON_CASES[number]
    another = dataclasses.replace(COMMON, **{number: times(getattr(COMMON, number), case.factor)})
    traced.cache_clear()  # what is found out about a jaxpr is found out once
    before = told(case.program, DEFAULT_POLICY)
    with mock.patch.object(policy, "COMMON", another):
        traced.cache_clear()
        after = told(case.program, DEFAULT_POLICY)
    traced.cache_clear()
    assert before != after
