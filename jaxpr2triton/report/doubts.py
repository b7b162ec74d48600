"""What in a kernel is likely to be slow, in words: too few programs, or many more cycles than operations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jaxpr2triton.hardware import DEFAULT_TARGET, WARP
from jaxpr2triton.ir.kernel import Kernel, KernelAxis, Role
from jaxpr2triton.report.table import count

FEW_PROGRAMS = 4  # leave more than nine tenths of every known device idle
MUCH_MOVED = 2**20  # bytes: more than 10 µs for one processor alone
MUCH_COMPUTED = 10**7  # operations: the same
LANES = 4 * WARP  # operations that one processor does in a cycle
LONG_STEP = 10_000  # cycles: less than a launch takes, so nothing to talk about
FAR_ABOVE = 32  # times what the operations need: more than waiting for results and for other lanes explains


def doubts_about(kernel: Kernel) -> Iterator[str]:
    """norms is 1 program for 132 processors, with 8,388,608 bytes to move and 4,194,304 operations."""
    programs, processors = math.prod(kernel.grid), DEFAULT_TARGET.processors
    moved = kernel.bytes_read + kernel.bytes_written
    if 0 < programs <= FEW_PROGRAMS and (moved > MUCH_MOVED * programs or kernel.flops > MUCH_COMPUTED * programs):
        yield (
            f"{kernel.name} is {count(programs, 'program')} for {processors} processors, "
            f"with {moved:,} bytes to move and {count(kernel.flops, 'operation')}"
        )
    if kernel.choice is not None and programs and not any(axis.unbounded for axis in kernel.axes):
        cycles = kernel.choice.chosen.cycles
        needed = math.ceil(kernel.flops / _steps(kernel) / (min(programs, processors) * LANES))
        if cycles > max(LONG_STEP, FAR_ABOVE * needed):
            yield (
                f"{kernel.name} is estimated to take {cycles:,} cycles a step, "
                f"and its operations alone some {max(needed, 1):,}"
            )


def _steps(kernel: Kernel) -> int:
    """Of the longest loop, as loops may stand beside each other: rather too few than too many."""
    return max((_steps_along(axis) for axis in kernel.axes if axis.role is Role.LOOP), default=1) or 1


def _steps_along(axis: KernelAxis) -> int:
    return -(-axis.size // axis.block)
