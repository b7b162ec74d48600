"""Functions that the lines of drawn programs call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

TOLD: list[tuple[int, ...]] = []  # the shapes of what was told, in its order


def softmax(x: Any, axis: int) -> Any:
    e = jnp.exp(x - lax.stop_gradient(jnp.max(x, axis, keepdims=True)))
    return e / jnp.sum(e, axis, keepdims=True, dtype=x.dtype)


def layer_norm(x: Any, axis: int) -> Any:
    centred = x - jnp.mean(x, axis, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axis, keepdims=True) + 1e-2)


def logsumexp(x: Any, axis: int) -> Any:
    return jax.nn.logsumexp(x, axis=axis)


def total(x: Any, axes: tuple[int, ...] | None, keepdims: bool = False) -> Any:
    return jnp.sum(x, axes, dtype=x.dtype, keepdims=keepdims)


def product(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    return jnp.prod(x, axes, dtype=x.dtype, keepdims=keepdims)


def mean(x: Any) -> Any:
    """Of all elements; also of none."""
    return total(x, None) / jnp.asarray(max(x.size, 1), x.dtype)


@jax.custom_jvp
def clipped_log(x: Any) -> Any:
    return jnp.log(jnp.maximum(x, jnp.asarray(0.125, x.dtype)))


@clipped_log.defjvp
def _clipped_log_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return clipped_log(x), t / jnp.maximum(x, jnp.asarray(0.125, x.dtype))


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return jnp.tanh(x) * 2


straight_through.defvjp(lambda x: (straight_through(x), x), lambda x, g: (g * jnp.cos(x),))


@jax.jit
def jitted_block(x: Any) -> Any:
    return jnp.where(x > 0, x, x * 0.125) + jnp.max(x)


@jax.checkpoint
def remat_block(x: Any) -> Any:
    return jnp.sin(x) * jnp.sin(jnp.cos(x))


def nested_calls(x: Any) -> Any:
    return jax.jit(lambda y: jax.checkpoint(lambda z: straight_through(z) - z)(y) * 2)(x)


def tame(x: Any) -> Any:
    """Nothing infinite: whether zeros are multiplied by it is up to who convolves."""
    return jnp.where(jnp.isfinite(x), jnp.tanh(x), jnp.asarray(0.5, x.dtype))


def nearer(one: Any, other: Any) -> Any:
    """To zero: a function of the user's for windows, which is associative and has an order for what is equal."""
    return lax.select(lax.le(lax.abs(one), lax.abs(other)), one, other)


def one_hot(x: Any, size: int) -> Any:
    return (x[..., None] == lax.iota(x.dtype, size)).astype(jnp.float32)


def rotate_half(x: Any) -> Any:
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([-right, left], axis=-1)


def interleave(x: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    return jnp.stack([-pairs[..., 1], pairs[..., 0]], -1).reshape(x.shape)


def bits(x: Any, dtype: Any) -> Any:
    """No NaN comes of it: XLA's CPU loses some of them in a maximum. Nor what it takes for zero in a quotient."""
    found = lax.bitcast_convert_type(x, dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return found
    return jnp.where(jnp.abs(found) >= jnp.finfo(dtype).tiny, found, 0)


def nextafter(x: Any, y: Any) -> Any:
    """It has no derivative."""
    return lax.nextafter(lax.stop_gradient(x), lax.stop_gradient(y))


def applied(x: Any, i: Any) -> Any:
    """A function of what is there; it has no derivative."""
    return lax.stop_gradient(x).at[i % x.shape[0]].apply(lambda each: abs(each) * 2)


def narrow(x: Any, i: Any, write: Any, mode: str) -> Any:
    """Write windows into the rows that are shorter than the rows are, from the left."""
    lead, width = i.shape[:1], max(x.shape[-1] // 2, 1)
    along_rows = lax.ScatterDimensionNumbers(tuple(range(len(lead), len(lead) + x.ndim - 1)), (0,), (0,))
    inside = lax.ScatterDimensionNumbers((len(lead),), (), (0,))
    window = x[0, ..., :width] if x.ndim > 1 else x[:width]
    updates = jnp.broadcast_to(window * 2 + 1, (*lead, *window.shape)).astype(x.dtype)
    return write(x, i[..., None], updates, along_rows if x.ndim > 1 else inside, mode=mode)


def window(x: Any, i: Any, mode: str) -> Any:
    """Read windows that are shorter than the rows are."""
    sizes = (1,) * (x.ndim > 1) + x.shape[1:-1] + (max(x.shape[-1] // 2, 1),)
    rank = len(i.shape[:1])
    offsets = tuple(range(rank, rank + len(sizes) - (x.ndim > 1)))
    numbers = lax.GatherDimensionNumbers(offsets, (0,) if x.ndim > 1 else (), (0,))
    return lax.gather(x, i[..., None], numbers, sizes, mode=mode)


# Python is called; `oracle` knows that a callback gives twice what it is given.
def _doubled(x: Any) -> np.ndarray:
    return np.asarray(x) * np.asarray(2, x.dtype)


@jax.custom_jvp
def called(x: Any) -> Any:
    return jax.pure_callback(_doubled, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


@called.defjvp
def _called_jvp(primals: Any, tangents: Any) -> Any:
    return called(*primals), tangents[0] * 2


def called_with_effect(x: Any) -> Any:
    """It has no derivative."""
    return io_callback(_doubled, jax.ShapeDtypeStruct(x.shape, x.dtype), lax.stop_gradient(x)) - x


def told(x: Any, ordered: bool = False) -> Any:
    jax.debug.callback(lambda x: TOLD.append(np.shape(x)), x, ordered=ordered)
    return x * 2


def checked(x: Any) -> Any:
    """As a library checks what it is given, and tells the largest of its codes; here it is never bad."""
    codes = jnp.where(jnp.abs(x) < -1, 2, 0)
    largest = lax.reduce_max(codes, tuple(range(codes.ndim)))
    return lax.cond(jnp.any(codes != 0), lambda x, code: called(x) * (code < 3), lambda x, code: x, x, largest)


def matrices(x: Any) -> Any:
    """Of each row a symmetric matrix, of its first numbers; its eigenvalues are positive and not near each other."""
    row = x.astype(jnp.promote_types(x.dtype, jnp.float32))[..., :5]
    row = jnp.where(jnp.isfinite(row), jnp.tanh(row), 0.5)
    size = row.shape[-1]
    return row[..., :, None] * row[..., None, :] * 0.1 + jnp.diag(jnp.arange(1, size + 1).astype(row.dtype))


def eigenvalues(x: Any) -> Any:
    return jnp.linalg.eigh(matrices(x))[0]


def root(x: Any) -> Any:
    """It does not ask which way the vectors look."""
    values, vectors = jnp.linalg.eigh(matrices(x))
    scaled = vectors * jnp.sqrt(values)[..., None, :]
    return (scaled[..., :, None, :] * vectors[..., None, :, :]).sum(-1)


def orthogonal(x: Any) -> Any:
    return jnp.linalg.qr(jnp.triu(matrices(x), -1))[0]


def triangular(x: Any) -> Any:
    return jnp.linalg.qr(jnp.triu(matrices(x), -1))[1]


def factor(x: Any) -> Any:
    return jnp.linalg.cholesky(matrices(x))


def solved(x: Any) -> Any:
    return jnp.linalg.solve(matrices(x), jnp.ones((*x.shape[:-1], min(x.shape[-1], 5), 2)))


def scanned(x: Any, axis: int, combine: Any, reverse: bool = False) -> Any:
    """By an associative function of pairs."""
    factors = jnp.tanh(x) * jnp.asarray(0.9, x.dtype)
    return lax.associative_scan(combine, (factors, jnp.tanh(x)), axis=axis, reverse=reverse)[1]


def weighted_moments(x: Any, axes: tuple[int, ...]) -> Any:
    """By a reduction of the user's own, of weights, means and sums of squares; all of them have tangents."""

    def merge(a: Any, b: Any) -> Any:
        weight, apart = a[0] + b[0], b[1] - a[1]
        share = b[0] / jnp.where(weight == 0, 1, weight)
        return weight, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    parts, nothing = (1 + x * x, jnp.tanh(x), 0 * x), (np.zeros((), x.dtype)[()],) * 3
    weight, mean, square = lax.reduce(parts, nothing, merge, axes)
    return mean + square / weight


def sum_and_product(x: Any, axes: tuple[int, ...]) -> Any:
    start = np.zeros((), x.dtype)[()], np.ones((), x.dtype)[()]
    added, multiplied = lax.reduce((x, jnp.tanh(x)), start, lambda a, b: (a[0] + b[0], a[1] * b[1]), axes)
    return added * multiplied


def first_two(x: Any, axis: int) -> Any:
    """The largest, and its place, and the next one; where there are NaNs the order of elements would matter."""
    x = lax.stop_gradient(jnp.where(x == x, x, 0))
    place, least = lax.broadcasted_iota(jnp.int32, x.shape, axis), np.asarray(-np.inf, x.dtype)[()]

    def before(v: Any, i: Any, w: Any, j: Any) -> Any:
        return (v > w) | ((v == w) & (i < j))

    def merge(a: Any, b: Any) -> Any:
        mine = before(a[0], a[1], b[0], b[1])
        best, rest = ([jnp.where(mine, p, q) for p, q in zip(one[:2], other[:2])] for one, other in ((a, b), (b, a)))
        other = [jnp.where(mine, p, q) for p, q in zip(a[2:], b[2:])]
        second = before(*rest, *other)
        return (*best, *(jnp.where(second, p, q) for p, q in zip(rest, other)))

    nowhere = np.int32(2**31 - 1)
    parts = x, place, jnp.full_like(x, least), jnp.full(x.shape, nowhere, jnp.int32)
    best, where, second, _ = lax.reduce(parts, (least, nowhere, least, nowhere), merge, (axis,))
    return best - jnp.where(second == least, 0, second) + where.astype(x.dtype)


def over_batch(x: Any, change: Any) -> Any:
    """The function of each row, which may ask for the others: their axis is called `i`."""
    return jax.vmap(change, axis_name="i")(x)


def around(x: Any) -> Any:
    """The neighbour's."""
    size = lax.axis_size("i")
    return lax.ppermute(x, "i", [(n, (n + 1) % size) for n in range(size)])


def similarities(x: Any) -> Any:
    """Of rows, but not with themselves."""
    n = x / jnp.sqrt(jnp.sum(jnp.square(x), -1, keepdims=True, dtype=x.dtype) + jnp.asarray(0.125, x.dtype))
    return n @ n.T - 2 * jnp.eye(len(x), dtype=x.dtype)


def largest_mask(x: Any, k: int) -> Any:
    """The largest ones of each row, all others are zero."""
    return jnp.where(x >= lax.top_k(x, k)[0][..., -1:], x, 0)


def at_its_largest(x: Any, axis: int) -> Any:
    """How far what lies where the largest one is, is from the largest one."""
    place = jnp.argmax(x, axis, keepdims=True)
    return jnp.take_along_axis(x, place, axis) - jnp.max(x, axis, keepdims=True)


def places_of_its_largest(x: Any, axis: int) -> Any:
    return jnp.take_along_axis(jnp.cos(x), jnp.argmax(x, axis, keepdims=True), axis)


def by_its_places(x: Any, axis: int) -> Any:
    """What is in its own order."""
    return jnp.diff(jnp.take_along_axis(x, jnp.argsort(x, axis), axis), axis=axis)


def routed(x: Any, w: Any, capacity: int) -> Any:
    """Each row goes to the buffer of its largest weight, as long as there is room, and comes back."""
    p = softmax(w, -1)
    expert, gate = jnp.argmax(p, -1), jnp.max(p, -1)
    chosen = jax.nn.one_hot(expert, w.shape[-1], dtype=jnp.int32)
    place = jnp.sum(jnp.cumsum(chosen, 0) * chosen, -1) - 1
    room = jnp.zeros((w.shape[-1], capacity, x.shape[-1]), x.dtype)
    room = room.at[expert, place].add(x * gate[:, None], mode="drop")
    return room[expert, jnp.minimum(place, capacity - 1)] * gate[:, None]


def swept(rows: Any, reverse: bool = False) -> Any:
    """A loop over rows that puts out what it carries."""

    def step(state: Any, row: Any) -> Any:
        state = 0.5 * state + jnp.tanh(row)
        return state, state

    return lax.scan(step, jnp.zeros(rows.shape[1:], rows.dtype), rows, reverse=reverse)[1]


def saved(x: Any, times: int) -> Any:
    """Lanes that go on for the sake of any of them; a loop in each step writes into their rows what is due by then."""
    until = jnp.linspace(0.25, 3, times).astype(x.dtype)

    def due_of(now: Any, place: Any) -> Any:
        return (until[place] <= now) & (place < times)

    def put(row: Any, place: Any, new: Any, due: Any) -> Any:
        return row.at[place].set(jnp.where(due, new, row[place]))

    def body(state: Any) -> Any:
        count, alive, x, place, rows = state
        new = x + 0.75

        def save(inner: Any) -> Any:
            count, due, place, rows = inner
            rows = jax.vmap(put)(rows, place, x * until[place], due & alive)
            place = jnp.where(due, place + 1, place)
            return count + 1, due & due_of(new, place), place, rows

        def going(inner: Any) -> Any:
            return jnp.any(due_of(new, inner[2])) & (inner[0] < times)

        inner = lax.while_loop(going, save, (0, due_of(new, place), place, rows))
        after = jnp.where(alive, new, x)
        return count + 1, alive & (after < 3), after, jnp.where(alive, inner[2], place), inner[3]

    start = 0, x < 3, x, jnp.zeros(x.shape, jnp.int32), jnp.zeros((*x.shape, times), x.dtype)
    return lax.while_loop(lambda state: jnp.any(state[2] < 3) & (state[0] < 9), body, start)[4]
