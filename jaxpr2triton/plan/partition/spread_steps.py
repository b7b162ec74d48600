"""A step of a loop that is spread, written again: what each program makes of its part, and what all show each other.

A value is `own` where a program has it along its part only. What is elementwise along that is made of own values; a
sum, or a product, along it is one of each part first. Where an own value is wanted elsewhere, it is shown. All else can
be read anywhere, and each program makes what it needs of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.graph.classes import body_classes
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.region import exchange_p
from jaxpr2triton.ir.scans import LOOPS, Dim, Scan
from jaxpr2triton.plan.decisions import Split
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.dims import Kept, beside_places, dims_of
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE

PARTED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
ALONE = (*LOOPS, "accumulate", "cond")  # what no program makes a part of
DEAR = math.inf  # of what is not made again for each program that wants it

Value = Any  # JAX's, as it is traced


class NotSpread(Exception):
    """A step does something that no program can do a part of."""


@dataclass(frozen=True)
class _Made:
    """A value of a step, in its whole shape."""

    value: Value
    dim: int | None  # the dimension of the class that is taken apart; None if there is none
    own: bool = False  # whether a program has only its part along that
    weight: float = 0  # instructions for an element, of what is made anew wherever it is read
    varies: bool = False  # from step to step
    part: Value = None  # what a program has of it, where that is carried


class Step:
    """One step of a loop, written again as it is traced."""

    def __init__(self, scan: Scan, split: Split, most: float) -> None:
        self.scan, self.split, self.most = scan, split, most
        self.classes = body_classes(scan)
        position, dim = split.place
        self.kind = self.classes.find((scan.carries[position][1], dim))
        self.carried_dims = [self._dim(before) for _, before, _, _ in scan.carries]
        self.put_out_dims: list[int | None] = []
        self.env: dict[Var, _Made] = {}
        self.shown: dict[Var, _Made] = {}
        self.turn: Value = None
        self.shows = False

    def _dim(self, atom: Atom) -> int | None:
        """The first dimension of the class that is taken apart."""
        if isinstance(atom, Literal):
            return None
        shape = atom.aval.shape
        return next((d for d, n in enumerate(shape) if n == self.split.size and self._is_split((atom, d))), None)

    def _is_split(self, dim: Dim) -> bool:
        return bool(self.classes.find(dim) == self.kind)

    # -- shapes -------------------------------------------------------------------------------------------------

    def apart(self, dim: int | None, value: Value) -> Value:
        """One dimension as two: programs, and what each has."""
        if dim is None:
            return value
        shape, programs = jnp.shape(value), self.split.programs
        return lax.reshape(value, (*shape[:dim], programs, shape[dim] // programs, *shape[dim + 1 :]))

    def together(self, dim: int | None, value: Value, offset: int) -> Value:
        if dim is None:
            return value
        shape, at = jnp.shape(value), dim + offset
        return lax.reshape(value, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))

    # -- a step -------------------------------------------------------------------------------------------------

    def run(
        self, fixed: Mapping[Var, Value], carried: Sequence[Value], xs: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        """What is carried on, the turn with it, and what is put out."""
        scan, self.shown = self.scan, {}
        *parts, self.turn = carried
        self.env = {var: _Made(value, self._dim(var)) for var, value in fixed.items()}
        self.env |= {inside: _Made(x, self._dim(inside), varies=True) for (_, inside), x in zip(scan.xs, xs)}
        for (_, before, _, _), dim, part in zip(scan.carries, self.carried_dims, parts):
            self.env[before] = _Made(self.together(dim, part, 0), dim, dim is not None, varies=True, part=part)
        for eqn in scan.body.eqns:
            self.env.update(zip(eqn.outvars, self._of(eqn), strict=True))
        afters = [
            self.apart(dim, self._at(after, dim)) for (_, _, after, _), dim in zip(scan.carries, self.carried_dims)
        ]
        self.put_out_dims = [self._dim_of(atom) for atom, _ in scan.ys]
        ys = [self.apart(dim, self._at(atom, dim)) for (atom, _), dim in zip(scan.ys, self.put_out_dims)]
        return [*afters, lax.sub(np.int32(1), self.turn)], ys

    def _dim_of(self, atom: Atom) -> int | None:
        return None if isinstance(atom, Literal) else self.env[atom].dim

    def _at(self, atom: Atom, dim: int | None) -> Value:
        """A value that is wanted whole, or where a program has its own part along a dimension."""
        if isinstance(atom, Literal):
            return atom.val
        made = self.env[atom]
        return made.value if made.own and made.dim == dim else self._everywhere(atom).value

    def _everywhere(self, var: Var) -> _Made:
        """A value that can be read anywhere."""
        made = self.env[var]
        if not made.own:
            return made
        if var not in self.shown:
            dim = made.dim
            assert dim is not None  # it is a program's own along it
            value = self._show(self.apart(dim, made.value) if made.part is None else made.part, dim)
            self.shown[var] = replace(made, value=self.together(dim, value, 0), own=False, weight=0)
        return self.shown[var]

    def _show(self, part: Value, shared: int) -> Value:
        self.shows = True
        return exchange_p.bind(part, self.turn, dims=tuple(range(part.ndim)), shared=(shared,))

    def _is_dear(self, made: _Made) -> bool:
        """Whether to meet once more takes less time than to make a value wherever it is wanted."""
        return made.varies and made.dim is not None and made.weight > self.most

    # -- equations ----------------------------------------------------------------------------------------------

    def _of(self, eqn: Eqn) -> list[_Made]:
        operands = variables(eqn.invars)
        varies = any(self.env[var].varies for var in operands)
        if eqn.primitive.name in ALONE and any(self.env[var].dim is not None for var in operands):
            raise NotSpread(eqn.primitive.name)
        if varies and (summed := self._summed(eqn)) is not None:
            return [summed]
        place, exact = self._goes_along(eqn)
        values, weight = [], 0.0
        for number, atom in enumerate(eqn.invars):
            if isinstance(atom, Literal):
                values.append(atom.val)
                continue
            goes = place is not None and (number, place) in exact
            found = self.env[atom] if goes else self._read(eqn, number, atom, place)
            values.append(found.value)
            weight += found.weight
        results = bind_equation(eqn, values)
        if place is not None:
            return [_Made(result, place, True, varies=varies) for result in results]
        weight += _weight(eqn)
        return [_Made(r, self._dim(out), False, weight, varies) for r, out in zip(results, eqn.outvars)]

    def _read(self, eqn: Eqn, number: int, var: Var, place: int | None) -> _Made:
        """An operand that may be read elsewhere; what takes long to make is shown before it is."""
        made = self.env[var]
        if made.own or not self._is_dear(made):
            return self._everywhere(var)
        place = self._dim(eqn.outvars[0]) if place is None else place
        if any((e.operand, e.dim, e.place) == (number, made.dim, place) for e in _kept(eqn) if e.exact):
            return made
        self.env[var] = replace(made, own=True)
        return self._everywhere(var)

    def _goes_along(self, eqn: Eqn) -> tuple[int | None, set[tuple[int, int]]]:
        """The dimension of the result along which a program has its own part, and which operands lead there.

        As pairs of an operand and the dimension of the result. Where several disagree, most of them decide.
        """
        owned = {n: made for n, atom in enumerate(eqn.invars) if (made := self._owned(atom)) is not None}
        kept = [each for each in _kept(eqn) if each.operand in owned and each.exact]
        exact = {(each.operand, each.place) for each in kept if each.dim == owned[each.operand].dim}
        if not exact or len(eqn.outvars) != 1:
            return None, set()
        places = [place for _, place in sorted(exact)]
        return max(dict.fromkeys(places), key=places.count), exact

    def _owned(self, atom: Atom) -> _Made | None:
        made = None if isinstance(atom, Literal) else self.env[atom]
        return made if made is not None and made.own else None

    # -- sums in parts ------------------------------------------------------------------------------------------

    def _summed(self, eqn: Eqn) -> _Made | None:
        """What is combined along the class that is taken apart: of each part, and then of those."""
        name = eqn.primitive.name
        if name in PARTED and isinstance(operand := eqn.invars[0], Var):
            made = self.env[operand]
            return self._reduced(eqn, made) if made.dim in eqn.params["axes"] and made.varies else None
        return self._contracted(eqn) if name == "dot_general" else None

    def _reduced(self, eqn: Eqn, made: _Made) -> _Made:
        dim, axes = made.dim, eqn.params["axes"]
        assert dim is not None  # as it is among the axes
        own = tuple(sorted((dim + 1, *(axis + (axis > dim) for axis in axes if axis != dim))))
        place = dim - sum(axis < dim for axis in axes)
        dtype = eqn.outvars[0].aval.dtype
        value = lax.convert_element_type(self.apart(dim, made.value), _of_parts(dtype))
        (part,) = bind_equation(eqn.replace(params={**eqn.params, "axes": own}), [value])
        whole = {**eqn.params, "axes": (place,)}
        (total,) = bind_equation(eqn.replace(params=whole), [self._show(part, place)])
        total = lax.convert_element_type(total, dtype)
        return _Made(total, self._dim(eqn.outvars[0]), False, DEAR, True)

    def _contracted(self, eqn: Eqn) -> _Made | None:
        """A product along the class, if its parts are few; else what it is made of is shown, which is less."""
        if len(variables(eqn.invars)) < 2:
            return None
        sides = [self.env[atom] for atom in eqn.invars if isinstance(atom, Var)]
        result = eqn.outvars[0].aval
        dims = self._multiplied_along(sides, list(zip(*eqn.params["dimension_numbers"][0])))
        if dims is None:
            return None
        shown = min(made.value.size for made, d in zip(sides, dims) if made.dim == d)
        if result.size * self.split.programs > shown:
            return None
        parts = [self.apart(dim, made.value) for dim, made in zip(dims, sides)]
        (part,) = bind_equation(eqn.replace(params=_in_parts(eqn, dims)), parts)
        total = lax.convert_element_type(lax.reduce_sum(self._show(part, 0), (0,)), result.dtype)
        return _Made(total, self._dim(eqn.outvars[0]), False, DEAR, True)

    def _multiplied_along(self, sides: Sequence[_Made], pairs: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """The dimensions of two factors along which each program has a part of both, or could make one."""
        for pair in pairs:
            if any(made.dim == d and (made.own or self._is_dear(made)) for made, d in zip(sides, pair)):
                return None if any(made.own and made.dim != d for made, d in zip(sides, pair)) else pair
        return None


def _in_parts(eqn: Eqn, dims: tuple[int, int]) -> dict[str, object]:
    """A product whose factors have these dimensions as two: one result for each part, before all else."""
    contracted, batch = eqn.params["dimension_numbers"]
    summed = tuple(tuple(d + (d >= dim) for d in side) for dim, side in zip(dims, contracted))
    batches = tuple((dim, *(d + (d > dim) for d in side)) for dim, side in zip(dims, batch))
    kind = _of_parts(eqn.outvars[0].aval.dtype)
    return {**eqn.params, "dimension_numbers": (summed, batches), "preferred_element_type": kind}


def _of_parts(dtype: np.dtype) -> np.dtype:
    """In which parts of a sum are shown: what has 16 bits is rounded once, at the end."""
    is_short = jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize < np.dtype(np.float32).itemsize
    return np.dtype(np.float32) if is_short else np.dtype(dtype)


def _kept(eqn: Eqn) -> Iterator[Kept]:
    """The dimensions of operands that are dimensions of the result."""
    for found in (dims_of(eqn), beside_places(eqn)):
        yield from found.kept if found else ()


def _weight(eqn: Eqn) -> float:
    """Instructions for an element of the result, from what it is made of at once."""
    row = TABLE.get(eqn.primitive.name)
    if isinstance(row, Pointwise):
        return float(row.weight)
    return 0 if isinstance(row, Indexing) or eqn.primitive.name in ("dynamic_slice", "gather", "iota") else DEAR
