"""What in a kernel is likely to be slow, in words: too few programs, or many more cycles than operations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jaxpr2triton.ir.kernel import Kernel, KernelAxis
from jaxpr2triton.pipeline.kernel_time import working_of
from jaxpr2triton.policy import Policy
from jaxpr2triton.report.table import count


def doubts_about(kernel: Kernel, policy: Policy) -> Iterator[str]:
    """norms is 1 program for 132 processors, with 8,388,608 bytes to move and 4,194,304 operations: about 39 µs."""
    target = policy.target
    programs, processors = math.prod(kernel.grid), target.processors
    alone = working_of(kernel, policy)
    if 0 < 4 * programs <= processors and alone * (1 - programs / processors) > 4 * policy.products.launch_after_gap_us:
        moved = kernel.bytes_read + kernel.bytes_written
        yield (
            f"{kernel.name} is {count(programs, 'program')} for {processors} processors, "
            f"with {moved:,} bytes to move and {count(kernel.flops, 'operation')}: about {alone:,.0f} µs"
        )
    if kernel.choice is not None and programs and not any(axis.unbounded for axis in kernel.axes):
        cycles = kernel.choice.chosen.cycles
        needed = math.ceil(kernel.flops / _steps(kernel) / (min(programs, processors) * target.cores))
        launch = policy.products.launch_after_gap_us * target.clock * 1000
        if cycles > max(launch, policy.cost.far_above * needed):
            yield (
                f"{kernel.name} is estimated to take {cycles:,} cycles a step, "
                f"and its operations alone some {max(needed, 1):,}"
            )


def _steps(kernel: Kernel) -> int:
    """Of the longest loop, as loops may stand beside each other: rather too few than too many."""
    return max((_steps_along(axis) for axis in kernel.axes if axis.role.is_sequential), default=1) or 1


def _steps_along(axis: KernelAxis) -> int:
    return -(-axis.size // axis.block)
