"""Reductions over windows, written as what each tap of a window reads, combined one after the other.

    y = reduce_window_max[window_dimensions=(2,) window_strides=(2,)] x   →   y = max (slice[0::2] x) (slice[1::2] x)

So what the windows are of is computed where it is read, and pools that do not overlap cost nothing but their maxima.
The derivative of a maximum asks which tap was chosen, the first of those that are equal: JAX's `select_and_gather_add`
reads another array there, and `select_and_scatter_add` sums, for each element, the windows that have chosen it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.ir.windows import windowed

Array = jax.Array
Params = Mapping[str, Any]


def why_not(name: str, shapes: Sequence[Sequence[int]], params: Params) -> WhyNot | None:
    """Why it is not written so, given its operands' shapes and its result's."""
    taps, is_sum = math.prod(params["window_dimensions"]), name in REDUCED
    limit = policy.COMMON.looked_through if is_sum else policy.COMMON.one_by_one  # large ones of sums are along an axis
    if taps <= limit or (is_sum and _running(shapes[0], params) is not None):
        return None
    return WhyNot(f"its windows have {taps:,} elements, and each of no more than {limit:,} is read")


# reductions


def _sum(x: Array, **params: Any) -> Array:
    return _reduced(x, lax.add, lax.reduce_sum, lax.cumsum, 0, params)


def _max(x: Array, **params: Any) -> Array:
    return _reduced(x, lax.max, lax.reduce_max, lax.cummax, _end(x.dtype, -1), params)


def _min(x: Array, **params: Any) -> Array:
    return _reduced(x, lax.min, lax.reduce_min, lax.cummin, _end(x.dtype, 1), params)


def _reduced(x: Array, combine: Any, whole: Any, running: Any, fill: Any, params: Params) -> Array:
    found = _running(x.shape, params)
    if found is not None:
        axis, is_reverse = found
        return running(x, axis, reverse=is_reverse)
    x = _padded(x, fill, params)
    if math.prod(params["window_dimensions"]) <= policy.COMMON.one_by_one:
        return reduce(combine, (_tap(x, tap, params) for tap in _taps(params)))
    dims = [dim for dim, size in enumerate(params["window_dimensions"]) if size > 1]
    for dim in reversed(range(x.ndim)):
        size, stride, dilation = (params[key][dim] for key in _OF_WINDOWS)
        count = _counts(x.shape, params)[dim]
        if size > 1:
            x = windowed(x, dim, count, stride, size, dilation)
        else:
            x = lax.slice_in_dim(x, 0, (count - 1) * stride + 1, stride, dim)
    return whole(x, [dim + place + 1 for place, dim in enumerate(dims)])


def _general(*operands: Array, jaxpr: Any, consts: Any, **params: Any) -> list[Array]:
    """Of several arrays at once, with a function of the user's, from the value that it begins with.

    What is around the arrays is left out: beside what is no number, a function may choose the value to begin with.
    """
    count = len(operands) // 2
    arrays, starts = operands[:count], operands[count:]
    padded = [_padded(x, start, params) for x, start in zip(arrays, starts)]
    shape = tuple(_counts(padded[0].shape, params))
    totals = [lax.broadcast(start, shape) for start in starts]
    around = _around(arrays[0].shape, params)
    for tap in _taps(params):
        found = _combined(jaxpr, consts, totals, [_tap(x, tap, params) for x in padded])
        if around is not None:
            out = _tap(around, tap, params)
            found = [lax.select(out, before, after) for before, after in zip(totals, found)]
        totals = found
    return totals


def _around(shape: Sequence[int], params: Params) -> Array | None:
    """Where windows reach beside an array, or between its elements."""
    is_padded = any(map(any, params["padding"])) or any(each > 1 for each in params.get("base_dilation", ()))
    return _padded(lax.full(shape, False), True, params) if is_padded else None


def _combined(jaxpr: Any, consts: Any, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """A function of numbers, of each element."""
    function = partial(jax.core.eval_jaxpr, jaxpr, consts)
    for _ in range(left[0].ndim):
        function = jax.vmap(function)
    return list(function(*left, *right))


def _running(shape: Sequence[int], params: Params) -> tuple[int, bool] | None:
    """The axis, and whether it runs from the end, of what reduces all elements up to each one."""
    dims = [dim for dim, size in enumerate(params["window_dimensions"]) if size > 1]
    steps = [*params["window_strides"], *params.get("base_dilation", ()), *params.get("window_dilation", ())]
    if len(dims) != 1 or any(step != 1 for step in steps):
        return None
    (dim,) = dims
    size, around = shape[dim], [(int(low), int(high)) for low, high in params["padding"]]
    if params["window_dimensions"][dim] != size or any(any(each) for d, each in enumerate(around) if d != dim):
        return None
    return {(size - 1, 0): (dim, False), (0, size - 1): (dim, True)}.get(around[dim])


# what is chosen in each window


def _gathered(tangents: Array, x: Array, *, select_prim: Any, **params: Any) -> Array:
    """JAX begins with the least value, and nothing beside it, and goes on to what is larger; not to what is around."""
    around = _around(x.shape, params)
    x, tangents = _padded(x, _least(x.dtype, select_prim), params), _padded(tangents, 0, params)
    best = lax.full(_counts(x.shape, params), _least(x.dtype, select_prim), x.dtype)
    total = lax.full(best.shape, 0, tangents.dtype)
    for tap in _taps(params):
        value, beside = _tap(x, tap, params), _tap(tangents, tap, params)
        stays = select_prim.bind(best, value)
        if around is not None:
            stays = lax.bitwise_or(stays, _tap(around, tap, params))
        best, total = lax.select(stays, best, value), lax.select(stays, total, beside)
    return total


def _scattered(source: Array, x: Array, *, select_prim: Any, **params: Any) -> Array:
    """Each element looks at the windows that it is in: at `y // stride` and so many before that one."""
    place = _chosen_taps(x, select_prim, params)
    windows, strides = params["window_dimensions"], params["window_strides"]
    before = [-(-window // stride) for window, stride in zip(windows, strides)]
    around = [tuple(map(int, each)) for each in params["padding"]]
    sizes = [low + size + high for size, (low, high) in zip(x.shape, around)]
    quotients = [-(-size // stride) for size, stride in zip(sizes, strides)]
    terms = []
    for shifts in itertools.product(*map(range, before)):
        config = [(shift, whole - shift - size, 0) for shift, whole, size in zip(shifts, quotients, source.shape)]
        of_window, number = lax.pad(source, _zero(source), config), lax.pad(place, np.int32(-1), config)
        terms.append(_where_chosen(of_window, number, shifts, params))
    total = reduce(lax.add, terms)
    lows, limits = [low for low, _ in around], [low + size for size, (low, _) in zip(x.shape, around)]
    return lax.slice(total, lows, limits)


def _chosen_taps(x: Array, select: Any, params: Params) -> Array:
    """In each window the number of the element that is chosen, in the order of `_taps`.

    What is around the array takes part, as in JAX: it may be the first of those that are equal.
    """
    x = _padded(x, _least(x.dtype, select), params)
    best, *others = (_tap(x, tap, params) for tap in _taps(params))
    place = lax.full(best.shape, 0, np.int32)
    for number, value in enumerate(others, 1):
        stays = select.bind(best, value)
        best = lax.select(stays, best, value)
        place = lax.select(stays, place, lax.full_like(place, number))
    return place


def _where_chosen(source: Array, place: Array, shifts: Sequence[int], params: Params) -> Array:
    """What windows, so many before that of each element, give to it: `stride` elements for each of them."""
    windows, strides = params["window_dimensions"], params["window_strides"]
    shape = [size for pair in zip(source.shape, strides) for size in pair]
    of_elements: Array = lax.full(shape, 0, np.int32)
    inside = None
    for dim, (window, stride, shift) in enumerate(zip(windows, strides, shifts)):
        tap = lax.broadcasted_iota(np.int32, shape, 2 * dim + 1) + np.int32(shift * stride)
        of_elements = of_elements * np.int32(window) + tap
        if (shift + 1) * stride > window:
            here = lax.lt(tap, lax.full_like(tap, window))
            inside = here if inside is None else lax.bitwise_and(inside, here)
    spread = partial(lax.broadcast_in_dim, shape=shape, broadcast_dimensions=range(0, len(shape), 2))
    is_chosen = lax.eq(spread(place), of_elements)
    is_chosen = is_chosen if inside is None else lax.bitwise_and(is_chosen, inside)
    given = lax.select(is_chosen, spread(source), lax.full(shape, 0, source.dtype))
    return lax.reshape(given, [size * stride for size, stride in zip(source.shape, strides)])


# places

_OF_WINDOWS = ("window_dimensions", "window_strides", "window_dilation")


def _taps(params: Params) -> Iterator[tuple[int, ...]]:
    """The places in a window, the last dimension first."""
    return itertools.product(*map(range, params["window_dimensions"]))


def _tap(x: Array, tap: Sequence[int], params: Params) -> Array:
    """Of each window the element at that place."""
    dilations = params.get("window_dilation") or (1,) * x.ndim
    starts = [place * dilation for place, dilation in zip(tap, dilations)]
    strides = list(params["window_strides"])
    limits = [
        start + (count - 1) * stride + 1 for start, count, stride in zip(starts, _counts(x.shape, params), strides)
    ]
    return lax.slice(x, starts, limits, strides)


def _counts(shape: Sequence[int], params: Params) -> list[int]:
    """How many windows there are along each dimension of what is padded already."""
    dilations = params.get("window_dilation") or (1,) * len(shape)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(params["window_dimensions"], dilations)]
    return [(size - span) // stride + 1 for size, span, stride in zip(shape, spans, params["window_strides"])]


def _padded(x: Array, fill: Any, params: Params) -> Array:
    between = params.get("base_dilation") or (1,) * x.ndim
    config = [(int(low), int(high), int(step) - 1) for (low, high), step in zip(params["padding"], between)]
    if not any(map(any, config)):
        return x
    return lax.pad(x, fill if isinstance(fill, jax.Array | jax.core.Tracer) else np.asarray(fill, x.dtype)[()], config)


def _zero(x: Array) -> Any:
    return np.zeros((), x.dtype)[()]


def _least(dtype: Any, select: Any) -> Any:
    """What nothing is chosen before, but for itself."""
    return _end(dtype, -1 if select is lax.ge_p else 1)


def _end(dtype: Any, sign: int) -> Any:
    """The largest value of a dtype, or the smallest."""
    if is_bool(dtype):
        return sign > 0
    if is_float(dtype):
        return np.asarray(sign * np.inf, dtype)[()]
    limits = np.iinfo(dtype)
    return limits.max if sign > 0 else limits.min


REDUCED = ("reduce_window_sum", "reduce_window_max", "reduce_window_min")
TABLE: Mapping[str, Callable[..., Any]] = {
    **dict(zip(REDUCED, (_sum, _max, _min))),
    "reduce_window": _general,
    "select_and_gather_add": _gathered,
    "select_and_scatter_add": _scattered,
}
