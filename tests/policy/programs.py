"""Programs that a number of the policy changes, by what they are about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from bench.windows import THREES, block
from tests.compiling import shapes_of
from tests.loop_programs import PROGRAMS as LOOPS
from tests.loop_programs.recurrent import gru, recurrent
from tests.programs import PROGRAMS
from tests.window_programs import residual

NAMED = {program.name: program for program in (*PROGRAMS, *LOOPS)}
Fn = Callable[..., Any]


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def halves(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def integers(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.int32)


def repeated(step: Fn) -> Fn:
    return lambda x: lax.scan(lambda x, _: (step(x), None), x, None, 5)[0]


def steps_of_sums(x: Any) -> Any:
    def step(c: Any) -> Any:
        for _ in range(7):
            c = jnp.tanh(c - c.mean())
        return jnp.fft.fft(c).real

    return repeated(step)(x)


def sums_of_steps(start: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (c * 0.5 + x, jnp.sum(c * x)), start, xs)


def few_states(x: Any) -> Any:
    """Three stretches of six steps, though four were asked for; else five, five, five and three."""
    loop = j2t.fuse(lambda x: lax.scan(lambda x, _: (jnp.sin(x), None), x, None, 18)[0], checkpoint=4)
    return loop(x)


def looked_up(x: Any) -> Any:
    return jnp.sin(x)[jnp.arange(5) ** 2 % 4]


def elman(w: Any, u: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u),) * 2, h, xs)


def until_rows_are_small(u: Any, hs: Any) -> Any:
    return jax.vmap(lambda h: lax.while_loop(lambda h: jnp.any(h > 0.5), lambda h: jnp.tanh(h @ u) * 0.5, h))(hs)


def narrow_elman(w: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ w),) * 2, h, xs)


def summed_steps(c: Any, xs: Any) -> Any:
    """Lanes that meet in a sum only, which is put out."""

    def step(c: Any, x: Any) -> Any:
        c = jnp.sin(c * x)
        return c, (c * x).sum()

    return lax.scan(step, c, xs)


def stacked_layers(x: Any, ws: Any) -> Any:
    for n in range(ws.shape[0]):
        x = jnp.tanh(x @ ws[n])
    return jnp.sum(x)


def affine_loop(c: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda c, x: (x[0] * c + x[1],) * 2, c, (a, b))


def loop_of_logarithms(c: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.logaddexp(x[0] + c, x[1]),) * 2, c, (a, b))


def coupled_loop(c: Any, a: Any, b: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        one, two, three = carry
        return (x[0] * two + x[1], one - three, x[0] * one), one

    return lax.scan(step, (c, c, c), (a, b))


def mixed_loop(x: Any, c: Any, xs: Any) -> Any:
    def step(carry: Any, u: Any) -> Any:
        x, c = carry
        x = jnp.tanh(x) + u
        c = jnp.exp(-x * x) * c + jnp.log1p(x * x)
        return (x, c), c

    return lax.scan(step, (x, c), xs)


def scattered_in_a_loop(x: Any, places: Any) -> Any:
    return lax.scan(lambda c, i: (c.at[i].add(c[i]), None), x, places)[0]


def life(c: Any) -> Any:
    moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    near = sum(jnp.roll(c.astype(jnp.int32), move, (0, 1)) for move in moves)
    return (near == 3) | (c & (near == 2))


def ranks(weights: Any, senders: Any, receivers: Any, nodes: int = 2048) -> Any:
    """PageRank: what each node is given meets there, in each step."""
    leaving = jax.ops.segment_sum(weights, senders, nodes)

    def step(rank: Any, _: None) -> tuple[Any, None]:
        share = rank[senders] * weights / leaving[senders]
        return 0.85 * jax.ops.segment_sum(share, receivers, nodes) + 0.15 / nodes, None

    return lax.scan(step, jnp.full(nodes, 1 / nodes), None, length=50)[0]


def matrix_state(m: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c @ m + x), c[0]), m, xs)[0]


def wide_state(m: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c * m + x.sum() * c.sum()), None), m, xs)[0]


def with_large_table(table: Any, c: Any) -> Any:
    return lax.fori_loop(0, 20, lambda _, c: jnp.tanh(c + jnp.sin(table * c).max(1)), c)


def gradient_of_layers(w: Any, x: Any) -> Any:
    return jax.grad(lambda w: j2t.fuse(lambda w: jnp.sin(jnp.sin(x @ w) @ w))(w).sum())(w)


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


def bodies_that_turn(x: Any) -> Any:
    """Two of them, each pulled by the other one: their frames are read row by row, column by column, and turned."""

    def pulled(r: Any) -> tuple[Any, Any]:
        normal = jnp.cross(r[:, 0], r[:, 1])
        pull = jnp.sin(r[::-1] * normal[:, :, None]) - r.transpose(0, 2, 1) * r[:, :, 2][:, None]
        torque = jnp.cross(pull[:, 1], pull[::-1, :, 2]) + pull[0, 0] * normal[::-1]
        turned = 0.1 * jnp.cross(torque[:, None], r) + 0.01 * pull[:, :, ::-1] * torque[:, ::-1, None]
        return jnp.tanh(r + turned), torque[0]

    return lax.scan(lambda r, _: pulled(pulled(r)[0]), x, None, length=5)


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


def stencils(u: Any) -> Any:
    for _ in range(3):
        u = jnp.tanh(u - jnp.pad(u, 1)[2:] - jnp.pad(u, 1)[:-2])
    return u


def rows_that_meet(u: Any) -> Any:
    def step(u: Any, _: None) -> tuple[Any, None]:
        flux = jnp.roll(u, 1, 0) * jnp.roll(u, -1, 0)
        return 0.9 * u + 0.1 * (jnp.roll(flux, 1, 0) - jnp.roll(flux, 1, 1)), None

    return lax.scan(step, u, None, length=100)[0]


def bodies_that_meet(x: Any) -> Any:
    def step(x: Any, _: None) -> tuple[Any, None]:
        apart = x[None] - x[:, None]
        return x + 0.01 * (apart * lax.rsqrt((apart**2).sum(-1) + 0.1)[..., None] ** 3).sum(1), None

    return lax.scan(step, x, None, length=100)[0]


def rolls(x: Any) -> Any:
    return sum(jnp.roll(jnp.sin(x)[::-1], i) for i in range(10))


def shifts(x: Any) -> Any:
    y = jnp.sin(x)
    for _ in range(4):
        y = jnp.concatenate([y[5:], y[:5]]) + y
    return y


def spread_sums(c: Any, xs: Any, places: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        y = jnp.log1p(jnp.exp(-c * c))
        c = 0.5 * c + jnp.pad(y[1:], (0, 1)) * x
        return c, jnp.zeros(32).at[places].add(c)

    return lax.scan(step, c, xs)[1]


def gradient(fn: Fn) -> Fn:
    return jax.grad(lambda *args: fn(*args).sum())


def gradient_of_matrices(x: Any) -> Any:
    def combine(left: Any, right: Any) -> Any:
        (a, b, c, d), (e, f, g, h) = left, right
        return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h

    return jax.grad(j2t.fuse(lambda x: lax.associative_scan(combine, tuple(x))[0].sum()))(x)


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
        def step(state: Any) -> Any:
            return state[0] + 1, jnp.tanh(state[1] * table[state[0]])

        return lax.while_loop(lambda state: state[0] < 6, step, (0, x))[1]

    return repeated(few)(x)


NARROW = (floats(6, 7), floats(20, 30, 6), floats(30, 6))


def gradients_of_what_sees_earlier_ones(x: Any) -> Any:
    """Of the last rows most of the others are hidden from none."""

    def program(q: Any, k: Any, v: Any) -> Any:
        hidden = jnp.arange(len(q))[:, None] < jnp.arange(len(k))
        return jax.nn.softmax(jnp.where(hidden, -jnp.inf, q @ k.T)) @ v

    return jax.vjp(program, x, x, x)[1](x)


def almost_whole_rows(x: Any) -> Any:
    row, place = (lax.broadcasted_iota(jnp.int32, x.shape, dim) for dim in range(2))
    return jnp.where(place + row < x.shape[1], x, 0).sum(1)


def up_to_a_length(x: Any, n: Any) -> Any:
    return jnp.where(jnp.arange(x.shape[1]) < n[:, None], x, 0).sum(1)


ELMAN = (floats(32, 32), floats(32, 32), floats(20, 8, 32), floats(8, 32))
MINE: dict[str, tuple[Fn, tuple[Any, ...]]] = {
    "backward": (backward, (floats(256, 2000), floats(2000), floats(2000), floats(256, 2000))),
    "parts": (parts_of_ten, (floats(100),)),
    "bodies": (bodies_that_turn, (floats(2, 3, 3),)),
    "chains": (crossing_chains, (floats(100),) * 12),
    "column sums": (lambda x: x.sum(0), (floats(100_000, 64),)),
    "columns of little": (lambda x: x.sum(0), (floats(16, 1_000_000),)),
    "elman": (elman, ELMAN),
    "elman of 16 bits": (elman, (halves(64, 64), halves(64, 64), halves(512, 2048, 64), halves(2048, 64))),
    "little elman of 16 bits": (elman, (halves(32, 16), halves(16, 16), halves(64, 10, 32), halves(10, 16))),
    "exp and sum": (lambda x, y: (x.sum(1), jnp.exp(y)), (floats(40960, 512), floats(40960, 512))),
    "grown": (grown, (floats(4096, 8),)),
    "grown and mixed": (grown_and_mixed, (floats(64, 64),)),
    "kept states": (kept_states, (floats(100, 300),)),
    "large elman": (elman, (floats(256, 256), floats(256, 256), floats(20, 64, 256), floats(64, 256))),
    "last layer": (lambda h, w: jax.nn.logsumexp(h @ w, -1).sum(), (floats(4096, 768), floats(768, 32768))),
    "layers": (layers, (floats(512),)),
    "layers of matrices": (gradient_of_layers, (floats(16, 16), floats(64, 16))),
    "powers": (lambda x: x**2.5, (floats(64),)),
    "scaled product": (lambda x, w: (x * 0.001) @ w, (floats(64, 256), floats(256, 64))),
    "gradients with a mask": (gradients_of_what_sees_earlier_ones, (floats(1000, 16),)),
    "almost whole rows": (almost_whole_rows, (floats(12_000, 100_000),)),
    "sums up to a length": (up_to_a_length, (floats(256, 100_000), integers(256))),
    "many rows in groups": (lax.ragged_dot, (halves(4096, 1024), halves(8, 1024, 1024), integers(8))),
    "rows in groups": (lax.ragged_dot, (floats(64, 16), floats(8, 16, 32), integers(8))),
    "large table": (with_large_table, (floats(320, 320), floats(320))),
    "long rows": (lambda x: jax.nn.softmax(x, 1), (floats(256, 1_000_000),)),
    "few long rows": (lambda x: jax.nn.softmax(x, 1), (floats(4, 1_000_000),)),
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
    "few distances": (lambda w, x: ((w[:, :, None] - x[:, None]) ** 2).sum(0), (floats(784, 1024), floats(784, 128))),
    "tanh of windows": (
        lambda x, w: jnp.tanh(
            lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        ),
        (halves(32, 56, 56, 64), halves(3, 3, 64, 64)),
    ),
    "exact products": (lambda x, w: jnp.dot(x, w, precision="highest"), (floats(2048, 512), floats(512, 2048))),
    "products": (jnp.matmul, (floats(2048, 512), floats(512, 2048))),
    "exact perceptron": (
        lambda x, a, b: jnp.dot(jnp.tanh(jnp.dot(x, a, precision="highest")), b, precision="highest"),
        (floats(4096, 64), floats(64, 64), floats(64, 64)),
    ),
    "many layers": (
        lambda x, w: functools.reduce(lambda x, _: jnp.tanh(x @ w), range(6), x),
        (floats(64, 32), floats(32, 32)),
    ),
    "two layers and their gradients": (
        jax.grad(lambda a, b, x: ((jnp.tanh(x @ a) @ b) ** 2).sum(), (0, 1, 2)),
        (floats(78, 32), floats(32, 10), floats(40, 78)),
    ),
    "stacked layers": (jax.grad(stacked_layers, (0, 1)), (floats(32, 64), floats(24, 64, 64))),
    "a layer and its bias": (lambda x, g: (x.T @ g, g.sum(0)), (floats(128, 64), floats(128, 64))),
    "tanh of products": (lambda x, w: jnp.tanh(x @ w), (halves(3200, 3200), halves(3200, 3200))),
    "tanh of large products": (lambda x, w: jnp.tanh(x @ w), (halves(4096, 4096), halves(4096, 4096))),
    "tanh of odd products": (lambda x, w: jnp.tanh(x @ w), (halves(1023, 1023), halves(1023, 1023))),
    "softmax of products": (lambda x, w: jax.nn.softmax(x @ w), (floats(32768, 512), floats(512, 200))),
    "products and their sums": (lambda x, w: (x @ w).sum(0), (floats(16384, 512), floats(512, 200))),
    "products of waves": (lambda x, w: jnp.exp(x) @ w, (halves(4096, 512), halves(512, 512))),
    "products of many terms": (lambda x, y: x.T @ y, (floats(8192, 32), floats(8192, 16))),
    "products of 16 bits": (jnp.matmul, (halves(4096, 512), halves(512, 4096))),
    "gradients of attention": (
        lambda q, k, v, g: jax.vjp(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, q, k, v)[1](g),
        (halves(32768, 64),) * 4,
    ),
    "sums over pairs": (lambda x, y: jnp.exp(-((x[:, None] - y) ** 2)).sum(1), (floats(10_000), floats(10_000))),
    "two products": (lambda x, w, v: jax.nn.silu(x @ w) * (x @ v), (halves(4096, 512), *[halves(512, 4096)] * 2)),
    "two arrays": (lambda x, y: (jnp.sin(x), jnp.cos(y)), (floats(100), floats(100))),
    "waves": (lambda x: tuple(jnp.sin(x + i) for i in range(40)), (floats(100),)),
    "sums of steps": (sums_of_steps, (floats(512), floats(8, 512))),
    "steps of sums": (steps_of_sums, (floats(64),)),
    "looked up": (looked_up, (floats(4, 8),)),
    "many rows of columns": (lambda x: x.sum(0), (floats(65536, 256),)),
    "wide": (wide_state, (floats(100, 200), floats(10, 64))),
    "wider": (wide_state, (floats(200, 210), floats(10, 64))),
    "long sums one by one": (lambda x: jnp.cumsum(x, 0), (floats(1000, 3),)),
    "affine loop": (affine_loop, (floats(200), floats(512, 200), floats(512, 200))),
    "long chain": (
        lambda c, x: lax.scan(lambda c, x: (0.5 * c * c + x, c), c, x),
        (floats(64), floats(48_000, 64)),
    ),
    "loop of logarithms": (loop_of_logarithms, (floats(200), floats(512, 200), floats(512, 200))),
    "coupled loop": (coupled_loop, (floats(4), floats(512, 4), floats(512, 4))),
    "mixed loop": (mixed_loop, (floats(200), floats(200), floats(512, 200))),
    "long affine loop": (affine_loop, (floats(4), floats(1 << 14, 4), floats(1 << 14, 4))),
    "wide affine loop": (affine_loop, (floats(2048), floats(2048, 2048), floats(2048, 2048))),
    "affine loop of sums": (
        lambda c, a, b: lax.scan(lambda c, x: (x[0] * c + x[1], c.sum()), c, (a, b)),
        (floats(200), floats(512, 200), floats(512, 200)),
    ),
    "sums of many lanes": (summed_steps, (floats(4001), floats(30))),
    "sums of rows": (jax.vmap(summed_steps, (0, None)), (floats(200, 60_000), floats(30))),
    "affine loop of few": (affine_loop, (floats(4), floats(512, 4), floats(512, 4))),
    "applied": (lambda x, i: x.at[i].apply(jnp.sin), (floats(50), integers(6))),
    "applied once": (lambda x, i: x.at[i].apply(jnp.sin, unique_indices=True), (floats(50), integers(30))),
    "applied often": (lambda x, i: x.at[i].apply(jnp.sin), (floats(50), integers(800))),
    "scattered": (lambda x, i, v: x.at[i].add(v), (floats(4000), integers(3000), floats(3000))),
    "life": (repeated(life), (jax.ShapeDtypeStruct((31, 33), bool),)),
    "ranks": (ranks, (floats(1 << 14), integers(1 << 14), integers(1 << 14))),
    "scattered in a loop": (scattered_in_a_loop, (floats(1000), integers(5, 600))),
    "associative scan": (lambda x: lax.associative_scan(jnp.add, x), (floats(8),)),
    "associative scan of pairs": (
        lambda a, b: lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b))[1],
        (floats(8), floats(8)),
    ),
    "gradient of a scan of matrices": (gradient_of_matrices, (floats(4, 8),)),
    "eigenvalues": (lambda x: lax.linalg.eigh(x), (floats(5, 3, 3),)),
    "every other": (lambda x: jnp.take(x, jnp.arange(0, 100, 2) + 1), (floats(100),)),
    "factored": (repeated(factored), (floats(8, 8),)),
    "little factored": (repeated(factored), (floats(3, 3),)),
    "masked": (masked, (floats(8),)),
    "product": (gradient(tanh_of_product), (floats(64, 64), floats(20, 64), floats(64))),
    "stencils": (repeated(stencils), (floats(40),)),
    "rows that meet": (rows_that_meet, (floats(512, 512),)),
    "bodies that meet": (gradient(bodies_that_meet), (floats(2048, 3),)),
    "rolls": (rolls, (floats(1000),)),
    "running sums": (repeated(lambda x: jnp.cumsum(x, 1) * 0.1), (floats(8, 8),)),
    "convolved": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")),
        (floats(8, 200, 1), floats(9, 1, 9)),
    ),
    "smoothed waves": (
        lambda x, w: lax.conv_general_dilated(
            *(jnp.sin(jnp.exp(x)), w), (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        ),
        (floats(64, 4096, 16), floats(25, 16, 16)),
    ),
    "residual block": (residual("NCHW"), block("NCHW", *THREES)),
    "averaged": (lambda x: lax.reduce_window(x, 0.0, lax.add, (9, 9), (1, 1), "SAME"), (floats(30, 30),)),
    "pooled": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (3, 3), "VALID"), (floats(30, 30),)),
    "spread sums": (spread_sums, (floats(40), floats(64, 40), integers(40))),
    "shifts": (shifts, (floats(1000),)),
    "long running sums": (repeated(lambda x: jnp.cumsum(x, 1) * 0.1), (floats(8, 4000),)),
    "rows in order": (lambda x: jnp.sort(x, 1), (floats(8, 2000),)),
    "largest few": (lambda x: lax.top_k(x, 8), (floats(8, 200),)),
    "sorted": (repeated(lambda x: jnp.sort(x, 1) * 0.1), (floats(8, 8),)),
    "states times": (states_times, (floats(6, 6), floats(20, 30, 6), floats(30, 6))),
    "summed states": (summed_states, (floats(3000, 64),)),
    "tanhs": (gradient(sum_of_tanhs), NARROW),
    "in stretches": (gradient(few_states), (floats(8),)),
    "until rows are small": (until_rows_are_small, (floats(384, 384), floats(4096, 384))),
    "many rows": (gru, shapes_of(recurrent(512, 600, 64, 64, 3))),
    "with its transpose": (with_its_transpose, (floats(40, 40),)),
}


def program(name: str) -> tuple[Fn, Any]:
    """One of the above, or a named one: `gru`, `gru:g` for its gradient, `gru:bench` at its full size."""
    if name in MINE:
        return MINE[name]
    found, *how = name.split(":")
    named = NAMED[found]
    args = shapes_of(named.bench_args) if "bench" in how and named.bench_args else named.args(np.random.default_rng(0))
    return named.gradient() if "g" in how else named.fn, args
