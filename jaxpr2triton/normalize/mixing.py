"""Which dimensions of a loop's body are mixed: at one index of them, something is read at another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.rules.classes import Classes
from jaxpr2triton.rules.decompose import DECOMPOSITIONS
from jaxpr2triton.rules.scans import LOOPS, Scan, outer_dims, scan_of, ties, time_dims
from jaxpr2triton.rules.table import POINTWISE

Dim = tuple[Any, int]
ELEMENTWISE = frozenset({*POINTWISE, *DECOMPOSITIONS})
HARMLESS = frozenset(
    {*ELEMENTWISE, "broadcast_in_dim", "transpose", "squeeze", "iota", "copy", "stop_gradient", "optimization_barrier"}
)


class Mixing:
    """The classes of a body's dimensions, and which of them keep the steps of different indices from being apart.

    A coarse answer, for choosing between programs that compute the same: a class counts as mixed when anything sums,
    slices, pads, joins or looks up along it, or when one value has two dimensions of it.
    """

    def __init__(self, eqns: Sequence[Any], tied: Iterable[tuple[Dim, Dim]]) -> None:
        self._classes = Classes(SimpleNamespace(eqns=eqns), tied)
        self._mixed = {self._classes.find(dim) for eqn in eqns for dim in mixed_dims(eqn)}
        for var in (var for eqn in eqns for var in eqn.outvars):
            kinds = [self._classes.find((var, d)) for d, size in enumerate(_shape(var)) if size != 1]
            self._mixed.update(kind for kind in kinds if kinds.count(kind) > 1)

    def is_apart(self, var: Any, dim: int) -> bool:
        """True if a program may run some indices of this dimension, and other programs the others."""
        if isinstance(var, jex.Literal) or _shape(var)[dim] == 1:
            return False
        return self._classes.find((var, dim)) not in self._mixed


def mixed_dims(eqn: Any) -> list[Dim]:
    """Dimensions that one equation mixes."""
    name = eqn.primitive.name
    operands = [atom for atom in eqn.invars if not isinstance(atom, jex.Literal)]
    if name in HARMLESS:
        return []
    if name in LOOPS:
        return _mixed_by_loop(scan_of(eqn))
    if name == "dot_general":
        (left, right), _ = eqn.params["dimension_numbers"]
        pairs = [(eqn.invars[0], d) for d in left] + [(eqn.invars[1], d) for d in right]
        return [(atom, d) for atom, d in pairs if not isinstance(atom, jex.Literal)]
    if name == "rev":
        return [(operands[0], d) for d in eqn.params["dimensions"]]
    if len(operands) == 1 and "axes" in eqn.params:
        return [(operands[0], d) for d in eqn.params["axes"]]
    if name in ("slice", "pad", "concatenate", "reshape", "split"):
        shapes = {_shape(var) for var in (*operands, *eqn.outvars) if _shape(var)}
        same_rank = len({len(shape) for shape in shapes}) == 1
        changed = {d for d, sizes in enumerate(zip(*shapes)) if len(set(sizes)) > 1} if same_rank else None
        return [dim for dim in _all_dims((*operands, *eqn.outvars)) if changed is None or dim[1] in changed]
    return _all_dims((*operands, *eqn.outvars))


def _mixed_by_loop(scan: Scan) -> list[Dim]:
    inner = Mixing(scan.body.eqns, ties(scan))
    pairs = [(outer, dim) for outer, dim in outer_dims(scan) if not inner.is_apart(*dim)]
    return [outer for outer, _ in pairs] + time_dims(scan)


def _all_dims(variables: Iterable[Any]) -> list[Dim]:
    return [(var, d) for var in variables for d in range(len(_shape(var)))]


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))
