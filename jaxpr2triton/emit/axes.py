"""Where a program is: the lines that give each axis its places, and how many programs there are.

    row = tl.program_id(0)                          # on the grid
    col = tl.arange(0, 1024)                        # lanes
    for k_start in range(0, 4096, 512):             # a loop, block by block
        k = k_start + tl.arange(0, 512)

Programs that multiply blocks walk down bands of rows, so that those that run at once read few rows and few columns:

    m_block, n_block = tl.swizzle2d(tl.program_id(1), tl.program_id(0), 32, 64, 8)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence, Set

from jaxpr2triton.hardware import MOST_PROGRAMS
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.rules.base import in_parentheses


def places_of_program(axes: Sequence[PlannedAxis], wide: Set[Axis] = frozenset(), band: int = 0) -> list[str]:
    """The places of a program along the axes that no loop runs over; those along `wide` axes are beyond 32 bits.

    `band`: of so many blocks along the second axis from the end programs walk down, if not along the last one.
    """
    grid = [planned for planned in axes if planned.role.is_parallel]
    lines = ["program = tl.program_id(0)"] if _is_flat(grid) else []
    if band:
        *_, rows, columns = grid
        places = "tl.program_id(1), tl.program_id(0)"
        names = f"{rows.axis.name}_block, {columns.axis.name}_block"
        lines.append(f"{names} = tl.swizzle2d({places}, {rows.steps}, {columns.steps}, {band})")
    for planned, program in _numbers(grid, band):
        name, block = planned.axis.name, planned.block
        if block == 1:
            lines.append(f"{name} = {program}")
        elif planned.steps == 1:
            lines.append(f"{name} = tl.arange(0, {block})")
        else:
            number = in_parentheses(program) + _cast(planned.axis in wide)
            lines.append(f"{name} = {number} * {block} + tl.arange(0, {block})")
    lanes = [planned for planned in axes if planned.role.is_vectorized and planned.block > 1]
    return lines + [f"{planned.axis.name} = tl.arange(0, {planned.block})" for planned in lanes]


def _cast(is_wide: bool) -> str:
    return ".to(tl.int64)" * is_wide


def first_programs(axes: Sequence[PlannedAxis], have: Collection[Axis], band: int = 0) -> list[str]:
    """What holds in one of the programs that differ in nothing but the axes that a result has not."""
    grid = [planned for planned in axes if planned.role.is_parallel]
    others = [(planned, number) for planned, number in _numbers(grid, band) if planned.axis not in have]
    return [f"{number} == 0" for planned, number in others if planned.steps > 1]


def band_of(axes: Sequence[PlannedAxis], most: int) -> int:
    """How many rows of blocks programs walk down together; 0 where they are too few, or their places one number."""
    grid = [planned for planned in axes if planned.role.is_parallel]
    walks = len(grid) > 1 and not _is_flat(grid) and all(p.block > 1 and p.steps > most for p in grid[-2:])
    return most if walks else 0


def _numbers(grid: Sequence[PlannedAxis], band: int) -> Iterator[tuple[PlannedAxis, str]]:
    """The number of a program along each axis, the last one first."""
    if _is_flat(grid):
        return zip(reversed(grid), _numbers_in_one(grid))
    programs = [f"tl.program_id({n})" for n in range(len(grid))]
    if band:
        programs[:2] = [f"{planned.axis.name}_block" for planned in reversed(grid[-2:])]
    return zip(reversed(grid), programs)


def grid_of(axes: Sequence[PlannedAxis]) -> tuple[int, int, int]:
    """How many programs there are along each of the three dimensions that a launch has."""
    grid = [planned for planned in axes if planned.role.is_parallel]
    steps = [planned.steps for planned in reversed(grid)]
    if _is_flat(grid):
        return math.prod(steps), 1, 1
    first, second, third, *_ = (*steps, 1, 1, 1)
    return first, second, third


def _is_flat(grid: Sequence[PlannedAxis]) -> bool:
    """Whether a launch has too few dimensions for the axes, or too little room along the second and the third."""
    return len(grid) > 3 or any(planned.steps > MOST_PROGRAMS[1] for planned in grid[:-1])


def _numbers_in_one(grid: Sequence[PlannedAxis]) -> Iterator[str]:
    """`program % 8`, `(program // 8) % 16`, `(program // 128)`: places in one number, the fastest axis first."""
    stride = 1
    for planned in reversed(grid):
        program = "program" if stride == 1 else f"(program // {stride})"
        yield program if planned is grid[0] else f"{program} % {planned.steps}"
        stride *= planned.steps


def loop_over(planned: PlannedAxis, backwards: bool, first: str = "", last: str = "") -> str:
    """The header of a loop along an axis; `first` and `last` are where it begins and ends, if not with the axis."""
    name, size = planned.axis.name, last or planned.axis.size
    if backwards:
        return f"for {name}_start in range({size}):"
    if planned.block == 1:
        return f"for {name} in range({first}, {size}):" if first else f"for {name} in range({size}):"
    return f"for {name}_start in range({first or 0}, {size}, {planned.block}):"


def places_in_loop(planned: PlannedAxis, backwards: bool, is_wide: bool = False) -> list[str]:
    """The places along the axis of a loop, within it."""
    name, lines = planned.axis.name, []
    if backwards:
        lines.append(f"{name} = {planned.axis.size - 1} - {name}_start")
    if planned.block > 1:
        lines.append(f"{name} = {name}_start + tl.arange(0, {planned.block}){_cast(is_wide)}")
    return lines
