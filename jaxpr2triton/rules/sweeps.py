"""Primitives whose result has the axis again along which they combine elements: running sums, and orders.

One program has the whole of such an axis, as lanes of a tile. The result may be wanted at any place of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxpr2triton import policy
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import is_bool, working_dtype
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.reductions import Outcome


@dataclass(frozen=True)
class Sweep:
    """`write` is an expression of {0}, the tile, and {axis}, which of its axes is swept."""

    write: Callable[[np.dtype, Any], str]  # dtype of the operand, parameters → template
    helper: Callable[[np.dtype], str]
    neutral: Callable[[np.dtype, Any], Any]  # what lanes beyond the axis hold; None if that does not matter
    identity: Callable[[np.dtype], Any] | None  # of what is combined in parts
    flops: Callable[[int], int]  # size of the axis → operations for each element
    linear_in: tuple[int, ...] = ()  # as of a pointwise row
    outcome: Outcome = Outcome.ARITHMETIC  # as of a reduction
    last: bool = False  # whether Triton has it along the last axis of a tile only; {lane} are the places along it


def axis_of(eqn: Any) -> int:
    """The dimension that is swept."""
    axis: int = eqn.params["axis"]
    return axis


def _running(helper: Callable[[np.dtype], str], identity: Callable[[np.dtype], Any], **more: Any) -> Sweep:
    """Each element is the combination of all elements up to it; or, in reverse, from it on."""

    def write(dtype: np.dtype, params: Any) -> str:
        backwards = ", reverse=True" if params["reverse"] else ""
        return f"tl.associative_scan({{0}}, {{axis}}, {helper(dtype)}{backwards})"

    def neutral(dtype: np.dtype, params: Any) -> Any:
        return identity(working_dtype(dtype)) if params["reverse"] else None  # else no lane of the axis reads those

    return Sweep(write, helper, neutral, identity, lambda size: max(size - 1, 1).bit_length(), **more)


def too_long(eqn: Any) -> WhyNot | None:
    """Why a step of a loop cannot sweep along this axis; outside of loops it is done in chunks."""
    size, most = eqn.invars[0].aval.shape[axis_of(eqn)], policy.COMMON.tile
    if size > most:
        return WhyNot(f"an axis of {size} is longer than the {most} elements that a step of a loop combines one by one")
    return None


def _always(helper: str) -> Callable[[np.dtype], str]:
    return lambda dtype: helper


def _larger(dtype: np.dtype) -> str:
    return "_either" if is_bool(dtype) else "_maximum"


def _smaller(dtype: np.dtype) -> str:
    return "_both" if is_bool(dtype) else "_minimum"


def _largest(dtype: np.dtype, params: Any) -> int:
    return int(np.iinfo(dtype).max)


def _sorted(size: int) -> int:
    """Of a network that compares neighbours at distances of 1, 2, 1, 4, 2, 1, …"""
    steps = max(size - 1, 1).bit_length()
    return steps * (steps + 1) // 2


def _packed(dtype: np.dtype) -> str:
    return "_places_of_short" if np.dtype(dtype).itemsize == 2 else "_places"


def _by_keys(dtype: np.dtype, params: Any) -> str:
    return f"{_packed(dtype)}({{0}}, {{lane}})"


def _nothing(dtype: np.dtype, params: Any) -> None:
    return None


def _by_function(dtype: np.dtype, params: Any) -> str:
    """Of several operands {0}, by a function {function} that the emitter writes for the equation's own program."""
    backwards = ", reverse=True" if params["reverse"] else ""
    return f"tl.associative_scan({{0}}, {{axis}}, {{function}}{backwards})"


TABLE: dict[str, Sweep] = {
    "cumsum": _running(_always("_plus"), REDUCTIONS["reduce_sum"].identity, linear_in=(0,)),
    "cumprod": _running(_always("_multiply"), REDUCTIONS["reduce_prod"].identity),
    "cummax": _running(_larger, REDUCTIONS["reduce_max"].identity, outcome=Outcome.SELECTION),
    "cummin": _running(_smaller, REDUCTIONS["reduce_min"].identity, outcome=Outcome.SELECTION),
    "cumlogsumexp": _running(_always("_logaddexp"), lambda dtype: -np.inf),
    "scanned": Sweep(_by_function, _always(""), _nothing, None, lambda size: 4 * max(size - 1, 1).bit_length()),
    "places": Sweep(_by_keys, _packed, _largest, None, _sorted, outcome=Outcome.PLACE, last=True),
}
