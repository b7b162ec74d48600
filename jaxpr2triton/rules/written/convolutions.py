"""Convolutions, written with windows along dimensions and a contraction: places, which cost nothing, and products.

Of few terms, as of the one channel of an image, each is a product by itself: what a kernel multiplies as matrices would
mostly be padding.

    y = conv_general_dilated x w        →   y[n,i,o] = Σ_{k,c} x'[n, stride * i + dilation * k, c] w[k,c,o]

where x' is x between zeros. What is along the input (`lhs`), along the kernel (`rhs`) and along the result is told by
the specs of `dimension_numbers`: batch or outputs first, then features, then the spatial dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.windows import windowed
from jaxpr2triton.rules.products import LEAST

Array = jax.Array
Params = Mapping[str, Any]

CONVOLUTION = "conv_general_dilated"


@dataclass(frozen=True)
class Sizes:
    """Of each group: the channels, the results of each place, and the terms of each of those."""

    channels: int
    results: int
    terms: int


def sizes_of(kernel: Sequence[int], params: Params) -> Sizes:
    columns, channels, *_ = params["dimension_numbers"].rhs_spec
    results = kernel[columns] // math.prod(_groups(params))
    return Sizes(kernel[channels], results, math.prod(kernel) // kernel[columns])


def is_term_by_term(kernel: Sequence[int], dtype: Any, params: Params) -> bool:
    """Whether it is no product of matrices: few terms make few results, or those of few taps one result."""
    if not is_float(dtype):
        return False
    sizes = sizes_of(kernel, params)
    if sizes.results == 1:
        return sizes.terms // sizes.channels <= policy.COMMON.one_by_one
    return sizes.terms <= policy.COMMON.one_by_one and sizes.results <= policy.COMMON.small_state


def convolution(x: Array, w: Array, *, shape: Sequence[int], **params: Any) -> Array:
    """A convolution whose result has this shape."""
    dtype = params["preferred_element_type"] or x.dtype
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        return lax.full(shape, 0, dtype)
    if is_term_by_term(w.shape, dtype, params):
        return _term_by_term(x, w, shape, dtype, params)
    rows, *_ = params["dimension_numbers"].out_spec
    if shape[rows] >= LEAST and any(holes := _holes(x.shape, w.shape, shape, params)):
        return _in_classes(x, w, shape, holes, params)
    return _contracted(x, w, shape, dtype, params)


@dataclass(frozen=True)
class _Holes:
    """Along a dimension with zeros between its elements, as that of the gradient of a strided convolution.

    y[every * t + q] = Σ_m x[t + first + m] w[every * (first + m) + low - q], and nothing else meets anything but zeros.
    """

    every: int
    low: int
    first: int
    taps: int
    count: int  # of t

    @property
    def lowest(self) -> int:
        """The place in the kernel that the last of each class meets first."""
        return self.every * (self.first - 1) + self.low + 1


def _holes(image: Sequence[int], kernel: Sequence[int], shape: Sequence[int], params: Params) -> list[_Holes | None]:
    numbers = params["dimension_numbers"]
    found: list[_Holes | None] = []
    for number, (dim, tap) in enumerate(zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:])):
        every, low = int(params["lhs_dilation"][number]), int(params["padding"][number][0])
        if every == 1 or params["window_strides"][number] != 1 or params["rhs_dilation"][number] != 1 or image[dim] < 2:
            found.append(None)
            continue
        met = [(q + k - low) // every for q in range(every) for k in range(kernel[tap]) if (q + k - low) % every == 0]
        count = -(-shape[numbers.out_spec[2 + number]] // every)
        found.append(_Holes(every, low, min(met), max(met) - min(met) + 1, count))
    return found


def _in_classes(x: Array, w: Array, shape: Sequence[int], holes: Sequence[_Holes | None], params: Params) -> Array:
    """Results that meet other taps are beside each other, as results of one place, and are laid out at the end.

    Programs have images as rows then, as the weights differ from place to place: there have to be enough.
    """
    numbers, groups = params["dimension_numbers"], math.prod(_groups(params))
    w = lax.transpose(w, numbers.rhs_spec)
    w = lax.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    rank, padding = len(holes), list(params["padding"])
    made, sizes = [shape[dim] for dim in numbers.out_spec], [1] * rank
    for number in reversed(range(rank)):
        if (each := holes[number]) is None:
            w = lax.expand_dims(w, (number + 4,))
            continue
        sizes[number], made[2 + number] = each.every, each.count
        here, length = number + 3, each.taps * each.every
        config = [(0, 0, 0)] * w.ndim
        config[here] = (-each.lowest, length + each.lowest - w.shape[here], 0)
        w = lax.pad(w, np.zeros((), w.dtype), config)
        w = lax.rev(lax.reshape(w, (*w.shape[:here], each.taps, each.every, *w.shape[here + 1 :])), (here + 1,))
        beyond = each.count + each.first + each.taps - 1 - x.shape[numbers.lhs_spec[2 + number]]
        padding[number] = (-each.first, beyond)
    taps, classes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    w = lax.transpose(w, (0, *classes, 1, 2, *taps))
    w = lax.reshape(w, (made[1] * math.prod(sizes), *w.shape[2 + rank :]))
    made[1] = w.shape[0]
    plain = numbers._replace(rhs_spec=tuple(range(w.ndim)), out_spec=tuple(range(w.ndim)))
    between = tuple(1 if each else every for each, every in zip(holes, params["lhs_dilation"]))
    changed = {"padding": tuple(padding), "lhs_dilation": between, "dimension_numbers": plain}
    y = convolution(x, w, shape=made, **{**params, **changed})
    y = lax.reshape(y, (made[0], groups, *sizes, made[1] // groups // math.prod(sizes), *made[2:]))
    beside = [dim for number in range(rank) for dim in (3 + rank + number, 2 + number)]
    y = lax.transpose(y, (0, 1, 2 + rank, *beside))
    whole = [size * every for size, every in zip(made[2:], sizes)]
    y = lax.reshape(y, (made[0], made[1] // math.prod(sizes), *whole))
    y = lax.slice(y, (0,) * y.ndim, [shape[dim] for dim in numbers.out_spec])
    return lax.transpose(y, np.argsort(numbers.out_spec))


def _term_by_term(x: Array, w: Array, shape: Sequence[int], dtype: Any, params: Params) -> Array:
    """Each tap of each channel times a weight: [rows, groups, results of a group, places].

    Of many channels each tap is one term, which has them, and the result their sum.
    """
    numbers = params["dimension_numbers"]
    features, rows = _groups(params)
    wide = np.promote_types(dtype, np.float32) if dtype != np.dtype("bfloat16") else np.dtype(np.float32)
    x = padded(x, numbers.lhs_spec[2:], params)
    x, w = (lax.convert_element_type(each, wide) for each in (x, w))
    x, w = lax.transpose(x, numbers.lhs_spec), lax.transpose(w, numbers.rhs_spec)
    places, taps, channels = x.shape[2:], w.shape[2:], w.shape[1]
    groups = features * rows
    x = lax.reshape(x, (rows, x.shape[0] // rows, features, channels, *places))
    x = lax.transpose(x, (1, 0, 2, *range(3, x.ndim)))  # of one of the two there is one group
    x = lax.reshape(x, (x.shape[0], groups, channels, *places))
    w = lax.reshape(w, (groups, w.shape[0] // groups, channels, *taps))
    made = tuple(shape[dim] for dim in numbers.out_spec)
    together = channels if channels * math.prod(taps) > policy.COMMON.one_by_one else 1
    whole = (made[0], groups, w.shape[1], together, *made[2:])
    of_x, of_w = (0, 1, *range(3, len(whole))), (1, 2, 3)
    terms = []
    for channel, *tap in itertools.product(range(0, channels, together), *map(range, taps)):
        starts = [place * dilation for place, dilation in zip(tap, params["rhs_dilation"])]
        limits = [first + (n - 1) * step + 1 for first, n, step in zip(starts, made[2:], params["window_strides"])]
        steps = (1, 1, 1, *params["window_strides"])
        one = lax.slice(x, (0, 0, channel, *starts), (*x.shape[:2], channel + together, *limits), steps)
        ends = (*w.shape[:2], channel + together, *(place + 1 for place in tap))
        weight = lax.reshape(lax.slice(w, (0, 0, channel, *tap), ends), (*w.shape[:2], together))
        terms.append(lax.mul(*(lax.broadcast_in_dim(*each) for each in ((one, whole, of_x), (weight, whole, of_w)))))
    y = reduce(lax.add, terms)
    y = lax.reduce_sum(y, (3,)) if together > 1 else y
    y = lax.reshape(lax.convert_element_type(y, dtype), made)
    return lax.transpose(y, np.argsort(numbers.out_spec))


def _contracted(x: Array, w: Array, shape: Sequence[int], dtype: Any, params: Params) -> Array:
    """A contraction along the features and the taps of the kernel."""
    numbers = params["dimension_numbers"]
    (rows, features, *places), (columns, _, *taps), out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    x = padded(x, places, params)
    groups = math.prod(_groups(params))
    group_of_x = features if params["feature_group_count"] > 1 else rows
    x, w = _in_groups(x, group_of_x, groups), _in_groups(w, columns, groups)
    shift = 1 if groups > 1 else 0
    names = _names(x.ndim, {rows + shift: "n", features + shift: "c"}, places, shift, "i")
    names_of_w = _names(w.ndim, {columns + shift: "o", numbers.rhs_spec[1] + shift: "c"}, taps, shift, "k")
    for number, (size, stride, dilation) in enumerate(_windows(w, taps, shift, params)):
        dim = names.index(f"i{number}")
        count = shape[out[2 + number]]
        if size == 1:
            x = lax.slice_in_dim(x, 0, stride * (count - 1) + 1, stride, dim)
            w = lax.squeeze(w, [names_of_w.index(f"k{number}")])
            names_of_w.remove(f"k{number}")
        else:
            x = windowed(x, dim, count, stride, size, dilation)
            names.insert(dim + 1, f"k{number}")
    order = sorted(range(x.ndim), key=lambda dim: names[dim] == "c")  # as they lie in what a kernel has made
    x, names = lax.transpose(x, order), [names[dim] for dim in order]
    sums = [name for name in names if name in names_of_w and name != "g"]
    batch = ["g"] if groups > 1 else []
    y = lax.dot_general(
        x,
        w,
        (_both(names, names_of_w, sums), _both(names, names_of_w, batch)),
        precision=params["precision"],
        preferred_element_type=dtype,
    )
    made = batch + [name for name in [*names, *names_of_w] if name not in [*sums, *batch]]
    wanted = _wanted(out, groups)
    return lax.reshape(lax.transpose(y, [made.index(name) for name in wanted]), shape)


def padded(x: Array, places: Sequence[int], params: Params) -> Array:
    """With zeros around and between its elements."""
    config = [(0, 0, 0)] * x.ndim
    for dim, (low, high), dilation in zip(places, params["padding"], params["lhs_dilation"]):
        config[dim] = (int(low), int(high), int(dilation) - 1)
    return x if set(config) == {(0, 0, 0)} else lax.pad(x, np.zeros((), x.dtype), config)


def _groups(params: Params) -> tuple[int, int]:
    return params["feature_group_count"], params["batch_group_count"]


def _windows(w: Array, taps: Sequence[int], shift: int, params: Params) -> list[tuple[int, int, int]]:
    sizes = [w.shape[dim + shift] for dim in taps]
    return list(zip(sizes, map(int, params["window_strides"]), map(int, params["rhs_dilation"])))


def _in_groups(value: Array, dim: int, groups: int) -> Array:
    """The groups of a dimension as the first one."""
    if groups == 1:
        return value
    split = lax.reshape(value, (*value.shape[:dim], groups, value.shape[dim] // groups, *value.shape[dim + 1 :]))
    return lax.transpose(split, [dim, *(d for d in range(split.ndim) if d != dim)])


def _names(ndim: int, known: Mapping[int, str], spatial: Sequence[int], shift: int, letter: str) -> list[str]:
    found = {dim + shift: f"{letter}{number}" for number, dim in enumerate(spatial)}
    return [{0: "g"}.get(dim, "") if dim < shift else {**known, **found}[dim] for dim in range(ndim)]


def _both(left: Sequence[str], right: Sequence[str], names: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(map(left.index, names)), tuple(map(right.index, names))


def _wanted(out: Sequence[int], groups: int) -> list[str]:
    """The names in the order of the result, groups before the features that they have."""
    names = {out[0]: ["n"], out[1]: ["g", "o"] if groups > 1 else ["o"]}
    names |= {dim: [f"i{number}"] for number, dim in enumerate(out[2:])}
    return [name for dim in sorted(names) for name in names[dim]]
