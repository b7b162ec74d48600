"""A schedule: the role and the block of every axis of one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.kernel import Choice, KernelAxis, Role, Steps
from jaxpr2triton.policy import DEFAULT_POLICY, Policy


class Form(Enum):
    """How a program accumulates what two sides make together."""

    DOT = "dot"  # a product of blocks: acc = tl.dot(x, w, acc)
    OUTER = "outer"  # anything else, one term after the other: acc = acc + f(x[:, None], w[None, :])
    LANES = "lanes"  # where the other side is what is summed: its lanes are summed at the end


def power_of_two(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(size - 1, 0).bit_length()


@dataclass(frozen=True)
class PlannedAxis:
    axis: Axis
    role: Role
    block: int  # elements held at once; a power of two, except for unrolled axes
    unbounded: bool = False  # the steps of a `while`
    seldom: bool = False  # … that hardly ever has any

    @property
    def shown(self) -> KernelAxis:
        return KernelAxis(self.axis.name, self.axis.size, self.role, self.block, self.unbounded, self.seldom)

    @property
    def is_tile(self) -> bool:
        """Whether values have a tile dimension for this axis."""
        return not self.role.is_unrolled and self.block > 1

    @property
    def ragged(self) -> bool:
        """Whether the last block reaches beyond the axis."""
        return self.axis.size % self.block != 0

    @property
    def steps(self) -> int:
        return -(-self.axis.size // self.block)


@dataclass(frozen=True)
class Plan:
    name: str
    jaxpr: Any  # the region, closed
    axes: tuple[PlannedAxis, ...]  # in the order of tile dimensions
    places: tuple[tuple[Index, ...], ...]  # where each output is stored
    num_warps: int
    num_stages: int
    reload: bool = False  # large tiles that no step of a loop changes are read again in each step: they do not fit
    choice: Choice | None = None  # of kernels with loops
    roles: Mapping[str, Role] = field(default_factory=dict)  # that were asked for
    policy: Policy = DEFAULT_POLICY  # of the machine that it is for
    form: Form | None = None  # of a kernel that contracts two sides
    steps: Steps | None = None  # of one with loops
    code: int = 0  # instructions of a thread for the steps of its loops, as they are written
    graph: Any = None  # what the region computes along these axes, as it was priced
    recorded: bool = False  # whether it is as a given schedule says

    def kernel_axes(self) -> tuple[KernelAxis, ...]:
        return tuple(planned.shown for planned in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the axes."""
        return tuple(planned.axis.name for planned in self.axes)

    @property
    def unrolled(self) -> frozenset[Axis]:
        return frozenset(p.axis for p in self.axes if p.role.is_unrolled)

    @property
    def programs(self) -> int:
        return math.prod(p.steps for p in self.axes if p.role.is_parallel)

    @property
    def title(self) -> str:
        axes = " | ".join(str(axis) for axis in self.kernel_axes()) or "one element"
        return f"kernel {self.name}   {axes}   warps {self.num_warps}"

    def __str__(self) -> str:
        outputs = [f"  out{n}[{', '.join(map(str, place))}]" for n, place in enumerate(self.places)]
        return "\n".join([self.title, *outputs])
