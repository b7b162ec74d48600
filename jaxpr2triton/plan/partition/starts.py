"""Regions that differ in nothing but where they begin to read arrays are one kernel, and each launch says where.

    w = slice[start_indices=(3, 0)] ws                w = dynamic_slice[slice_sizes=(1, 64)] ws start 0
    w = slice[start_indices=(4, 0)] ws           →        in one kernel, launched with ws and 3, and with ws and 4

So hundreds of layers whose weights are stacked are as many kernels as those of a list of weights. It leaves alone what
is computed, and slices along which an array lies so that no address would be known to be aligned any more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.hardware import ALIGNED
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.form import form_of
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.tracing import argument_names, avals, result_names, retrace

Region = tuple[Closed, list[Var | np.int32]]  # and its operands
Place = tuple[int, int]  # the position of an equation, and a dimension


def with_starts(regions: Sequence[tuple[Closed, list[Var]]]) -> list[Region]:
    """The regions, those that would be many kernels alike as one."""
    found: list[Region] = [(region, [*operands]) for region, operands in regions]
    alike: dict[Hashable, list[int]] = {}
    for number, (region, _) in enumerate(regions):
        if slices := _slices(region):
            alike.setdefault(_open_form(region, slices), []).append(number)
    for members in alike.values():
        starts = [tuple(_starts(regions[number][0])) for number in members]
        if len(set(starts)) >= policy.COMMON.times:
            for number, told in zip(members, _as_one([regions[number] for number in members])):
                found[number] = told
    return found


def _slices(region: Closed) -> dict[int, list[int]]:
    """The slices of operands, by the positions of their equations, each with the dimensions along which it may begin
    anywhere.
    """
    given = set(region.jaxpr.invars)
    found = {}
    for position, eqn in enumerate(region.jaxpr.eqns):
        if eqn.primitive is lax.slice_p and eqn.invars[0] in given and set(eqn.params["strides"] or (1,)) == {1}:
            shape, width = eqn.invars[0].aval.shape, eqn.invars[0].aval.dtype.itemsize
            strides = [math.prod(shape[d + 1 :]) * width for d in range(len(shape))]
            if dims := [d for d, stride in enumerate(strides) if stride and stride % ALIGNED == 0]:
                found[position] = dims
    return found


def _open_form(region: Closed, slices: Mapping[int, Sequence[int]]) -> Hashable:
    """What the region is, wherever its slices begin."""
    eqns = region.jaxpr.eqns
    return form_of(region, {id(eqns[position]): _opened(eqns[position], dims) for position, dims in slices.items()})


def _opened(eqn: Eqn, dims: Sequence[int]) -> Mapping[str, object]:
    starts = tuple(-1 if d in dims else start for d, start in enumerate(eqn.params["start_indices"]))
    return {"start_indices": starts, "limit_indices": eqn.outvars[0].aval.shape, "strides": None}


def _starts(region: Closed) -> Iterator[int]:
    """Where its slices begin, one after the other."""
    for position, dims in _slices(region).items():
        yield from (int(region.jaxpr.eqns[position].params["start_indices"][d]) for d in dims)


def _as_one(regions: Sequence[tuple[Closed, list[Var]]]) -> Iterator[Region]:
    """The same regions as the first one of them, and as many numbers as differ among them."""
    first = regions[0][0]
    places = [(position, d) for position, dims in _slices(first).items() for d in dims]
    columns = dict(zip(places, zip(*(_starts(region) for region, _ in regions))))
    numbers = list(dict.fromkeys(column for column in columns.values() if len(set(column)) > 1))
    told = {place: numbers.index(column) for place, column in columns.items() if column in numbers}
    region = _told(first, told, len(numbers))
    for number, (_, operands) in enumerate(regions):
        yield region, [*operands, *(np.int32(column[number]) for column in numbers)]


def _told(region: Closed, told: Mapping[Place, int], count: int) -> Closed:
    """The region with so many further operands: where slices begin."""
    inner = region.jaxpr
    positions = {id(inner.eqns[position]): position for position, _ in told}

    def program(*args: object) -> list[object]:
        numbers = args[len(inner.invars) :]

        def begun(eqn: Eqn, values: list[object]) -> list[object] | None:
            if id(eqn) not in positions:
                return None
            fixed = enumerate(eqn.params["start_indices"])
            starts = [(told.get((positions[id(eqn)], d)), start) for d, start in fixed]
            places = [np.int32(start) if number is None else numbers[number] for number, start in starts]
            return [lax.dynamic_slice_p.bind(*values, *places, slice_sizes=eqn.outvars[0].aval.shape)]

        env = dict(zip(inner.invars, args))
        run(inner.eqns, env, begun)
        return [read(env, atom) for atom in inner.outvars]

    begin = [np.int32(0)] * count
    names = [*argument_names(region), *["start"] * count]
    return retrace(program, *avals(region), *begin, names=names, results=result_names(region))
