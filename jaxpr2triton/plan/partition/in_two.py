"""A reduction in two steps: what each part of its elements comes to, and what all parts come to.

    r = reduce x        →        p = boundary (fold (lift x, in parts));  r = end (fold p)

Each reduction is a law: how its elements are lifted to states, which state changes nothing, how states are folded to
one, and what the result is of that. It does not matter to a law who folds: lanes, steps, programs, a second kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.reduced import Empty, first_of_best, reduced_p
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.scanned import Combination
from jaxpr2triton.rules.reductions import TABLE, identity_of

Array = jax.Array
Axes = Sequence[int]


@dataclass(frozen=True)
class Law:
    """What a reduction is, whoever combines its elements."""

    lift: Callable[[Sequence[Array]], Sequence[Array]]  # operands → states, with the digits of a kernel
    empty: Sequence[ArrayLike]  # the state that changes nothing
    fold: Callable[[Sequence[Array], Axes], Sequence[Array]]  # states → states, combined along some axes
    end: Callable[[Sequence[Array]], Array]


def law_of(eqn: Eqn) -> Law:
    """The law of a reduction of the table."""
    if eqn.primitive is reduced_p:
        return _by_function(eqn)
    return _place(eqn) if TABLE[eqn.primitive.name].indexed else _of_values(eqn)


def states_of(law: Law, lifted: Sequence[Array], dims: Axes, size: int, inside: Axes, place: int) -> list[Array]:
    """What each part comes to, in memory: `dims` are cut, and `place` is the dimension of the parts once `inside` of
    each is folded.
    """
    parts = [parts_of(x, dims, size, empty) for x, empty in zip(lifted, law.empty, strict=True)]
    return in_memory(law.fold(parts, inside), place)


def in_memory(states: Sequence[Array], place: int) -> list[Array]:
    return [boundary_p.bind(each, dim=place) for each in states]


def wide_of(dtype: np.dtype) -> np.dtype:
    """The dtype in which what is summed up comes into memory."""
    return np.dtype(np.float32) if is_float(dtype) and np.dtype(dtype).itemsize == 2 else np.dtype(dtype)


def _of_values(eqn: Eqn) -> Law:
    dtype = eqn.outvars[0].aval.dtype
    wide = wide_of(dtype)

    def fold(states: Sequence[Array], axes: Axes) -> list[Array]:
        return [eqn.primitive.bind(*states, **{**eqn.params, "axes": tuple(axes)})]

    return Law(
        lambda operands: [lax.convert_element_type(x, wide) for x in operands],
        [identity_of(TABLE[eqn.primitive.name], wide)],
        fold,
        lambda states: lax.convert_element_type(states[0], dtype),
    )


def _by_function(eqn: Eqn) -> Law:
    return _of_parts(lambda operands: operands, eqn.params["combine"], eqn.params["empty"], eqn.params["output"])


def _place(eqn: Eqn) -> Law:
    """Elements know their places: of two it is the better one, and the first of those that are alike."""
    (axis,), name, dtype = eqn.params["axes"], eqn.primitive.name, eqn.outvars[0].aval.dtype
    wide = wide_of(eqn.invars[0].aval.dtype)
    empty: Empty = (wide.type(TABLE[name].identity(wide)), dtype.type(np.iinfo(dtype).max))

    def lift(operands: Sequence[Array]) -> list[Array]:
        (x,) = operands
        return [lax.convert_element_type(x, wide), lax.broadcasted_iota(dtype, x.shape, axis)]

    return _of_parts(lift, first_of_best(name == "argmax", wide, dtype), empty, 1)


def _of_parts(
    lift: Callable[[Sequence[Array]], Sequence[Array]], combine: Combination, empty: Empty, output: int
) -> Law:
    def fold(states: Sequence[Array], axes: Axes) -> list[Array]:
        how = {"axes": tuple(axes), "combine": combine, "empty": empty}
        return [reduced_p.bind(*states, **how, output=n) for n in range(len(states))]

    return Law(lift, list(map(np.asarray, empty)), fold, lambda states: states[output])


def parts_of(value: Array, dims: Axes, size: int, empty: ArrayLike) -> Array:
    """Some dimensions, next to each other, as two: the parts, and what is in each; behind the end is what is empty."""
    first, flat = dims[0], flattened(value, dims)
    parts = -(-flat.shape[first] // size)
    if beyond := parts * size - flat.shape[first]:
        config = [(0, beyond if d == first else 0, 0) for d in range(flat.ndim)]
        flat = lax.pad(flat, jnp.asarray(empty, flat.dtype), config)
    return lax.reshape(flat, (*flat.shape[:first], parts, size, *flat.shape[first + 1 :]))


def flattened(value: Array, dims: Axes) -> Array:
    """With one dimension in the place of several."""
    if len(dims) == 1:
        return value
    first, last = dims[0], dims[-1]
    length = math.prod(value.shape[first : last + 1])
    return lax.reshape(value, (*value.shape[:first], length, *value.shape[last + 1 :]))
