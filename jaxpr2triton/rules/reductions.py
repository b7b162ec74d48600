"""Primitives that combine elements along new axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpr2triton.errors import CompilerBug, WhyNot
from jaxpr2triton.ir.dtypes import is_bool, is_float, working_dtype


class Outcome(Enum):
    """What a result is, of the elements that are combined."""

    ARITHMETIC = auto()  # a number of its own: of floats it is rounded, and another copy of it may differ
    BITS = auto()  # made of their bits, exactly
    SELECTION = auto()  # one of them; of truth values `and` is the least one, `or` the largest
    PLACE = auto()  # where one of them is


@dataclass(frozen=True)
class Reduction:
    """`combine` joins two partial results elementwise; `collapse` joins the lanes of one tile along a tile axis.

    `collapse` may name a helper function, whose text is put before the kernel.
    """

    combine: Callable[[np.dtype], str]  # dtype → template over {0} and {1}
    collapse: Callable[[np.dtype], str]  # dtype → template over {0}, the tile, and {axis}
    identity: Callable[[np.dtype], Any]
    helper: Callable[[np.dtype], str | None] = lambda dtype: None
    refuse: Callable[[Any], WhyNot | None] = lambda eqn: None
    several: bool = False  # an element has several parts, of which the result is one
    indexed: bool = False  # … its value and its place, which is the result
    follow: str | None = None  # of an indexed one: the helper that joins them where the places of the second are later
    linear_in: tuple[int, ...] = ()  # as of a pointwise row
    outcome: Outcome = Outcome.ARITHMETIC  # of which the least is known


def _through(helper: str) -> Callable[[np.dtype], str]:
    return lambda dtype: f"tl.reduce({{0}}, {{axis}}, {helper})"


def _always(helper: str) -> Callable[[np.dtype], str | None]:
    return lambda dtype: helper


def _extreme(direction: str, helper: str) -> Reduction:
    """max and min: a NaN anywhere is the result, as in JAX."""

    def combine(dtype: np.dtype) -> str:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if is_float(dtype) else ""
        return f"tl.{direction}imum({{0}}, {{1}}{nan})"

    def identity(dtype: np.dtype) -> Any:
        if is_bool(dtype):
            return direction == "min"
        if is_float(dtype):
            return -np.inf if direction == "max" else np.inf
        limits = jnp.iinfo(dtype)
        return int(limits.min if direction == "max" else limits.max)

    def lanes(dtype: np.dtype) -> str:
        return f"tl.reduce({{0}}, {{axis}}, {helper})"

    return Reduction(combine, lanes, identity, _always(helper), outcome=Outcome.SELECTION)


def _sum(dtype: np.dtype) -> str:
    """Floats go through a helper, whose text says why; integers are Triton's own sum."""
    if is_float(dtype):
        return "tl.reduce({0}, {axis}, _add)"
    # Triton widens small integers while it sums; the sum wraps as JAX's does when it is cut back.
    small = np.dtype(dtype).itemsize < 4
    return f"tl.sum({{0}}, axis={{axis}}).to(tl.{np.dtype(dtype).name})" if small else "tl.sum({0}, axis={axis})"


def _sum_helper(dtype: np.dtype) -> str | None:
    return "_add" if is_float(dtype) else None


def _one_axis(eqn: Any) -> WhyNot | None:
    if len(eqn.params["axes"]) != 1:
        return WhyNot("it looks for a place along several axes at once")
    return None


def _all_ones(dtype: np.dtype) -> Any:
    if is_bool(dtype):
        return True
    return -1 if jnp.issubdtype(dtype, jnp.signedinteger) else int(jnp.iinfo(dtype).max)


def _nothing(dtype: np.dtype) -> Any:
    return False if is_bool(dtype) else 0


def _bitwise(sign: str, helper: str, identity: Callable[[np.dtype], Any], outcome: Outcome) -> Reduction:
    return Reduction(lambda dtype: f"{{0}} {sign} {{1}}", _through(helper), identity, _always(helper), outcome=outcome)


def _place(direction: str) -> Reduction:
    helper = f"_first_{direction}"
    extreme = _extreme(direction, helper)
    return Reduction(
        combine=lambda dtype: f"{helper}({{0}}, {{1}}, {{2}}, {{3}})",
        collapse=lambda dtype: f"tl.reduce(({{0}}, {{1}}), {{axis}}, {helper})",
        identity=extreme.identity,
        helper=_always(helper),
        refuse=_one_axis,
        several=True,
        indexed=True,
        follow=f"_next_{direction}",
        outcome=Outcome.PLACE,
    )


def _by_equation(dtype: np.dtype) -> Any:
    raise CompilerBug("what changes nothing in a reduction by a function is a part of its equation")


TABLE: dict[str, Reduction] = {
    "reduce_sum": Reduction(lambda d: "{0} + {1}", _sum, lambda d: 0, _sum_helper, linear_in=(0,)),
    "reduce_max": _extreme("max", "_maximum"),
    "reduce_min": _extreme("min", "_minimum"),
    "reduce_prod": Reduction(lambda d: "{0} * {1}", _through("_multiply"), lambda d: 1, _always("_multiply")),
    "reduce_and": _bitwise("&", "_both", _all_ones, Outcome.SELECTION),
    "reduce_or": _bitwise("|", "_either", _nothing, Outcome.SELECTION),
    "reduce_xor": _bitwise("^", "_differ", _nothing, Outcome.BITS),
    "argmax": _place("max"),
    "argmin": _place("min"),
    "reduced": Reduction(  # by a function {function} that the emitter writes for the equation's own program
        lambda d: "{function}({parts})", lambda d: "tl.reduce({0}, {axis}, {function})", _by_equation, several=True
    ),
}


def identity_of(row: Reduction, dtype: Any) -> Any:
    """The neutral element, of the dtype that the kernel holds."""
    return row.identity(working_dtype(dtype))
