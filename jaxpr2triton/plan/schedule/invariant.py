"""Axes along which costly values of an elementwise kernel do not vary: they are no part of a flat one.

    y[t,h,d] = x[t,h,d] * cos (p[t] * f[d])         i: grid t·h·d                   a cosine for each element
                                                    n: grid t | i: grid h | j: grid d   one for each t and d

Where all axes are one, each element has its own of everything. In a tile with a dimension for such an axis, a value
that does not vary along it is made once for all of that dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jaxpr2triton.graph.nodes import Compute, Load
from jaxpr2triton.graph.space import Space
from jaxpr2triton.hardware import LINE
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

Shapes = Sequence[tuple[int, ...]]


def split_along(
    space: Space, axes: Sequence[Axis], whole: Mapping[Axis, Axis], read: Shapes, written: Shapes, policy: Policy
) -> list[Sequence[Axis]]:
    """Axes before the last two dimensions of a tile, and those of each of these; none where one axis does as well.

    `whole` are the axes that some of these are parts of. It pays where what is computed takes longer than what is read
    and written, and that by a launch.
    """
    least = _moved(space, read, written, policy)
    flat = max(least, _computed(space, axes, whole, None, policy))
    best, found = flat - policy.loops.graph_launch_us, list[Sequence[Axis]]()
    for place, axis in enumerate(axes):
        first = min(place, len(axes) - 2)
        before, rows, columns = axes[:first], axes[first : first + 1], axes[first + 1 :]
        if first < 0 or math.prod(each.size for each in columns) < LINE:
            continue
        time = max(least, _computed(space, axes, whole, axis, policy))
        if time < best:
            best, found = time, [before, rows, columns]
    return found


def _computed(
    space: Space, axes: Sequence[Axis], whole: Mapping[Axis, Axis], along: Axis | None, policy: Policy
) -> float:
    """Microseconds to compute all for each element; for those of a thread at once what does not vary along an axis."""
    total = 0.0
    for node in space.graph.of_kind(Compute):
        row = TABLE[node.eqn.primitive.name]
        weight = float(row.weight if isinstance(row, Pointwise) else row.flops)
        if along is not None and whole.get(along, along) not in node.axes:
            weight /= min(along.size, policy.blocks.of_a_thread)
        total += weight if node.axes else 0  # a number of the whole kernel is one anyway
    return policy.target.computing(total * math.prod(axis.size for axis in axes))


def _moved(space: Space, read: Shapes, written: Shapes, policy: Policy) -> float:
    """Microseconds to read and to write all arrays once."""
    widths = {node.buffer: node.dtype.itemsize for node in space.graph.of_kind(Load)}
    nbytes = sum(math.prod(read[buffer]) * width for buffer, width in widths.items())
    nbytes += sum(math.prod(written[store.output]) * store.value.dtype.itemsize for store in space.graph.stores)
    return policy.target.moving(nbytes)
