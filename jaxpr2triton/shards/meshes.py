"""The axes that devices are laid out along, from the numbers of the devices that have each tile of an array.

XLA's partitioner knows devices by their numbers alone: arrays that were sharded over meshes of several shapes may meet
in one program, and there need not be any device yet.

    x: [[0 1 2 3] [4 5 6 7]]      y: [0 1 2 3 4 5 6 7]      →      axes (2, 4), x along (0), (1) and y along (0 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Sizes = tuple[int, ...]  # of the axes
Spec = tuple[tuple[int, ...], ...]  # the axes that each dimension is split over, the major one first


@dataclass(frozen=True)
class Tiles:
    """Which device has which tile; with `copies` the last dimension counts those that have the same one."""

    devices: np.ndarray[Any, Any]
    copies: bool


def common_axes(count: int, arrays: Sequence[Tiles | None]) -> tuple[Sizes, list[Spec]]:
    """Axes of `count` devices, and how each array lies along them; one that does not counts as whole."""
    found = [(sizes, [_along(sizes, tiles) for tiles in arrays]) for sizes in _layouts(_primes(count))]
    sizes, specs = max(found, key=lambda each: sum(spec is not None for spec in each[1]))
    return _joined(sizes, [spec or () for spec in specs])


def _primes(count: int) -> list[int]:
    for prime in range(2, math.isqrt(count) + 1):
        if count % prime == 0:
            return [prime, *_primes(count // prime)]
    return [count]


def _layouts(primes: Sequence[int]) -> Iterator[Sizes]:
    """[2, 2, 3] → (2, 2, 3), (2, 3, 2), (3, 2, 2)"""
    if not primes:
        yield ()
    for first in dict.fromkeys(primes):
        rest = list(primes)
        rest.remove(first)
        yield from ((first, *others) for others in _layouts(rest))


def _along(sizes: Sizes, tiles: Tiles | None) -> Spec | None:
    if tiles is None:
        return ()
    strides = {math.prod(sizes[axis + 1 :]): axis for axis in range(len(sizes))}
    spec: list[tuple[int, ...]] = []
    for d, count in enumerate(tiles.devices.shape):
        line = np.moveaxis(tiles.devices, d, 0).reshape(count, -1)[:, 0]
        axes: list[int] = []
        place = 1
        while place < count:
            axis = strides.get(int(line[place] - line[0]))
            if axis is None:
                return None
            axes.insert(0, axis)
            place *= sizes[axis]
        if place != count:
            return None
        spec.append(tuple(axes))
    order = [axis for axes in spec for axis in axes]
    if sorted(order) != list(range(len(sizes))):
        return None
    laid_out = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(tiles.devices.shape)
    return tuple(spec[: len(spec) - tiles.copies]) if np.array_equal(laid_out, tiles.devices) else None


def _joined(sizes: Sizes, specs: Sequence[Spec]) -> tuple[Sizes, list[Spec]]:
    """Neighbours that every array has one after the other, or does not have, are one axis."""
    runs: list[list[int]] = []
    for axis in range(len(sizes)):
        if runs and all(_goes_on(dim, axis - 1, axis) for spec in specs for dim in spec):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    number = {run[0]: n for n, run in enumerate(runs)}  # by the axis that each begins with
    joined = [tuple(tuple(number[axis] for axis in dim if axis in number) for dim in spec) for spec in specs]
    return tuple(math.prod(sizes[axis] for axis in run) for run in runs), joined


def _goes_on(dim: tuple[int, ...], one: int, other: int) -> bool:
    return one not in dim and other not in dim or (one, other) in zip(dim, dim[1:])
