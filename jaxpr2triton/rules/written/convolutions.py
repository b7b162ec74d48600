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
from functools import reduce
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.windows import windowed

Array = jax.Array


CONVOLUTION = "conv_general_dilated"


def convolution(x: Array, w: Array, *, shape: Sequence[int], **params: Any) -> Array:
    """A convolution whose result has this shape."""
    dtype = params["preferred_element_type"] or x.dtype
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        return lax.full(shape, 0, dtype)
    columns = params["dimension_numbers"].rhs_spec[0]
    results, terms = w.shape[columns] // math.prod(_groups(params)), math.prod(w.shape) // w.shape[columns]
    if terms <= policy.COMMON.few_terms and results <= policy.COMMON.few_results and is_float(dtype):
        return _term_by_term(x, w, shape, dtype, params)
    return _contracted(x, w, shape, dtype, params)


def _term_by_term(x: Array, w: Array, shape: Sequence[int], dtype: Any, params: Mapping[str, Any]) -> Array:
    """Each tap of each channel times a weight: [rows, groups, results of a group, places]."""
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
    whole = (made[0], groups, w.shape[1], *made[2:])
    terms = []
    for channel, *tap in itertools.product(range(channels), *map(range, taps)):
        starts = [place * dilation for place, dilation in zip(tap, params["rhs_dilation"])]
        limits = [first + (n - 1) * step + 1 for first, n, step in zip(starts, made[2:], params["window_strides"])]
        steps = (1, 1, 1, *params["window_strides"])
        one = lax.slice(x, (0, 0, channel, *starts), (*x.shape[:2], channel + 1, *limits), steps)
        weight = lax.slice(w, (0, 0, channel, *tap), (*w.shape[:2], channel + 1, *(place + 1 for place in tap)))
        weight = lax.broadcast_in_dim(lax.reshape(weight, w.shape[:2]), whole, (1, 2))
        terms.append(lax.mul(lax.broadcast_in_dim(one, whole, range(len(whole))), weight))
    y = lax.reshape(lax.convert_element_type(reduce(lax.add, terms), dtype), made)
    return lax.transpose(y, np.argsort(numbers.out_spec))


def _contracted(x: Array, w: Array, shape: Sequence[int], dtype: Any, params: Mapping[str, Any]) -> Array:
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


def padded(x: Array, places: Sequence[int], params: Mapping[str, Any]) -> Array:
    """With zeros around and between its elements."""
    config = [(0, 0, 0)] * x.ndim
    for dim, (low, high), dilation in zip(places, params["padding"], params["lhs_dilation"]):
        config[dim] = (int(low), int(high), int(dilation) - 1)
    return x if set(config) == {(0, 0, 0)} else lax.pad(x, np.zeros((), x.dtype), config)


def _groups(params: Mapping[str, Any]) -> tuple[int, int]:
    return params["feature_group_count"], params["batch_group_count"]


def _windows(w: Array, taps: Sequence[int], shift: int, params: Mapping[str, Any]) -> list[tuple[int, int, int]]:
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
