"""Scatters into so many places, of so many updates, that no place can look through them all: added up in memory.

    c = scatter-add a i u       →   c = accumulate[op=add] a i u
    c = scatter-max a i u:f16   →   c = …of the number (accumulate[op=max] (number a) i (number u))
    c = scatter a i u           →   last = accumulate[op=max] -1 i 0…n;   c = select (last ≥ 0) u[last] a

Numbers that are compared are integers in their order, NaN before or after all others, since a device compares no other
ones in memory. What is smaller than 32 bits is wider meanwhile. In which order floats are added is left open, as XLA
leaves it on a device. Left alone: products, and windows that are shorter than what they are written into, but along
what is indexed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxpr2triton.ir.accumulate import accumulate_p
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.normalize.arrays.pulled import Found, last_of
from jaxpr2triton.normalize.rewrite import Value
from jaxpr2triton.rules.written.sorts import turned

OPERATIONS = {"scatter-add": "add", "scatter-sub": "add", "scatter-min": "min", "scatter-max": "max"}


def pushed(name: str, found: Found, operand: Value, indices: Value, updates: Value) -> Value | None:
    """The scatter of this name as sums in memory; None if it is none."""
    batches, indexed = len(found.batches), len(found.places.indexed)
    if found.window[indexed:] != found.shape[batches + indexed :]:
        return None
    many, lead = math.prod(found.lead[: found.free]), found.lead[found.free :]
    operand, indices = found.operand(operand), lax.reshape(found.indices(indices), (many, *lead, indexed))
    if name == "scatter":
        whole = found.updates(updates)

        def met(begun: Value, number: Value) -> Value:
            shape = (many, *lead, *found.window[:indexed])
            return _met("max", begun, indices, lax.reshape(number, shape), batches)

        return last_of(found, operand, met, whole)
    if name not in OPERATIONS:
        return None
    updates = lax.reshape(found.updates(updates), (many, *lead, *found.window))
    op = OPERATIONS[name]
    updates = lax.neg(updates) if name == "scatter-sub" else updates
    ready, back = _wide(operand.dtype) if op == "add" else _in_order(operand.dtype, op)
    return back(_met(op, ready(operand), indices, ready(updates), batches))


def _met(op: str, operand: Value, indices: Value, updates: Value, batches: int) -> Value:
    return accumulate_p.bind(operand, indices, updates, op=op, batch=batches, indexed=indices.shape[-1])


Change = Callable[[Value], Value]


def _wide(dtype: Any) -> tuple[Change, Change]:
    """To what a device adds up in memory, and back."""
    wide = np.dtype(np.float32 if is_float(dtype) else np.int32)
    if dtype.itemsize >= wide.itemsize:
        return lambda x: x, lambda x: x
    return lambda x: lax.convert_element_type(x, wide), lambda x: lax.convert_element_type(x, dtype)


def _in_order(dtype: Any, op: str) -> tuple[Change, Change]:
    """To integers in the order of these numbers, and back."""
    if is_bool(dtype):
        return lambda x: lax.convert_element_type(x, np.int32), lambda x: lax.ne(x, np.int32(0))
    if not is_float(dtype):
        return _wide(dtype)
    widen, narrow = _wide(dtype)
    bits = 8 * max(dtype.itemsize, 4)
    whole, number = np.dtype(f"int{bits}"), np.dtype(f"float{bits}")
    none = 2 ** (bits - 1) - 1 if op == "max" else -(2 ** (bits - 1))

    def numbers(x: Value) -> Value:
        x = widen(x)
        placed = turned(lax.bitcast_convert_type(x, whole))
        return lax.select(lax.ne(x, x), lax.full_like(placed, none), placed)

    def back(placed: Value) -> Value:
        x = lax.bitcast_convert_type(turned(placed), number)
        return narrow(lax.select(lax.ne(x, x), lax.full_like(x, np.nan), x))

    return numbers, back
