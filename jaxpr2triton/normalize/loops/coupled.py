"""Which dimensions of a loop's body are mixed: at one index of them, something is read at another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.ir.scans import LOOPS, Scan, outer_dims, scan_of, ties, time_dims
from jaxpr2triton.rules.dims import beside_places, dims_of

Dim = tuple[Any, int]


class Coupling:
    """The classes of a body's dimensions, and which of them keep the steps of different indices from being apart.

    A coarse answer, for choosing between programs that compute the same: a class counts as mixed when anything sums,
    slices, pads, joins or looks up along it, or when one value has two dimensions of it.
    """

    def __init__(self, eqns: Sequence[Any], tied: Iterable[tuple[Dim, Dim]]) -> None:
        self._classes = Classes(eqns, tied)
        self._mixed = {self._classes.find(dim) for eqn in eqns for dim in coupled_dims(eqn)}
        for var in (var for eqn in eqns for var in eqn.outvars):
            kinds = [self._classes.find((var, d)) for d, size in enumerate(_shape(var)) if size != 1]
            self._mixed.update(kind for kind in kinds if kinds.count(kind) > 1)

    def is_apart(self, var: Any, dim: int) -> bool:
        """True if a program may run some indices of this dimension, and other programs the others."""
        if isinstance(var, jex.Literal) or _shape(var)[dim] == 1:
            return False
        return self._classes.find((var, dim)) not in self._mixed


def coupled_dims(eqn: Any) -> list[Dim]:
    """Dimensions that one equation mixes."""
    if eqn.primitive.name in LOOPS:
        return _coupled_by_loop(scan_of(eqn))
    dims = dims_of(eqn) or beside_places(eqn)
    if dims is None:
        return _all_dims((*eqn.invars, *eqn.outvars))
    exact = [kept for kept in dims.kept if kept.exact]
    read = {(kept.operand, kept.dim) for kept in exact}
    made = {kept.place for kept in exact} | dims.fresh
    mixed = [(atom, d) for n, atom in enumerate(eqn.invars) for atom, d in _all_dims([atom]) if (n, d) not in read]
    mixed += [dim for dim in _all_dims(eqn.outvars) if dim[1] not in made]
    return [(atom, d) for atom, d in mixed if _shape(atom)[d] != 1]


def _coupled_by_loop(scan: Scan) -> list[Dim]:
    inner = Coupling(scan.body.eqns, ties(scan))
    pairs = [(outer, dim) for outer, dim in outer_dims(scan) if not inner.is_apart(*dim)]
    return [outer for outer, _ in pairs] + time_dims(scan)


def _all_dims(variables: Iterable[Any]) -> list[Dim]:
    named = (var for var in variables if not isinstance(var, jex.Literal))
    return [(var, d) for var in named for d in range(len(_shape(var)))]


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))
