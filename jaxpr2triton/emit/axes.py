"""Where a program is: the lines that give each axis its places, and how many programs there are.

    row = tl.program_id(0)                          # on the grid
    col = tl.arange(0, 1024)                        # lanes
    for k_start in range(0, 4096, 512):             # a loop, block by block
        k = k_start + tl.arange(0, 512)

Programs that multiply blocks walk down bands of rows, so that those that run at once read few rows and few columns:

    m_block, n_block = tl.swizzle2d(tl.program_id(1), tl.program_id(0), 32, 64, 8)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Sequence, Set

from jaxpr2triton.hardware import MOST_PROGRAMS
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.ir.tree import as_expr, assign, call, expr, loop_of, name

Loop = ast.For | ast.While | ast.If  # an `if` is a loop that ends after its first step


def places_of_program(
    axes: Sequence[PlannedAxis], wide: Set[Axis] = frozenset(), band: int = 0, last_first: Collection[Axis] = ()
) -> list[ast.Assign]:
    """The places of a program along the axes that no loop runs over; those along `wide` axes are beyond 32 bits.

    `band`: of so many blocks along the second axis from the end programs walk down, if not along the last one.
    `last_first`: of these axes the first programs have the last places, as there is most to do there.
    """
    grid = [planned for planned in axes if planned.role.is_parallel]
    lines = [assign("program", expr("tl.program_id(0)"))] if _is_flat(grid) else []
    if band:
        *_, rows, columns = grid
        places = expr("tl.swizzle2d(tl.program_id(1), tl.program_id(0), {}, {}, {})", rows.steps, columns.steps, band)
        lines.append(assign([f"{rows.axis.name}_block", f"{columns.axis.name}_block"], places))
    for planned, program in _numbers(grid, band):
        block = planned.block
        if planned.axis in last_first and planned.steps > 1:
            program = expr("({} - {})", planned.steps - 1, program)
        if block == 1:
            place = program
        elif planned.steps == 1:
            place = expr("tl.arange(0, {})", block)
        else:
            place = expr("{0} * {1} + tl.arange(0, {1})", _cast(program, planned.axis in wide), block)
        lines.append(assign(planned.axis.name, place))
    lanes = [planned for planned in axes if planned.role.is_vectorized and planned.block > 1]
    return lines + [assign(planned.axis.name, expr("tl.arange(0, {})", planned.block)) for planned in lanes]


def _cast(value: ast.expr, is_wide: bool) -> ast.expr:
    return expr("{}.to(tl.int64)", value) if is_wide else value


def first_programs(axes: Sequence[PlannedAxis], have: Collection[Axis], band: int = 0) -> list[ast.expr]:
    """What holds in one of the programs that differ in nothing but the axes that a result has not."""
    grid = [planned for planned in axes if planned.role.is_parallel]
    others = [(planned, number) for planned, number in _numbers(grid, band) if planned.axis not in have]
    return [expr("{} == 0", number) for planned, number in others if planned.steps > 1]


def band_of(axes: Sequence[PlannedAxis], most: int) -> int:
    """How many rows of blocks programs walk down together; 0 where they are too few, or their places one number."""
    grid = [planned for planned in axes if planned.role.is_parallel]
    walks = len(grid) > 1 and not _is_flat(grid) and all(p.block > 1 and p.steps > most for p in grid[-2:])
    return most if walks else 0


def _numbers(grid: Sequence[PlannedAxis], band: int) -> Iterator[tuple[PlannedAxis, ast.expr]]:
    """The number of a program along each axis, the last one first."""
    if _is_flat(grid):
        return zip(reversed(grid), _numbers_in_one(grid))
    programs = [expr("tl.program_id({})", n) for n in range(len(grid))]
    if band:
        programs[:2] = [name(f"{planned.axis.name}_block") for planned in reversed(grid[-2:])]
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


def _numbers_in_one(grid: Sequence[PlannedAxis]) -> Iterator[ast.expr]:
    """`program % 8`, `(program // 8) % 16`, `(program // 128)`: places in one number, the fastest axis first."""
    stride = 1
    for planned in reversed(grid):
        program = name("program") if stride == 1 else expr("program // {}", stride)
        yield program if planned is grid[0] else expr("{} % {}", program, planned.steps)
        stride *= planned.steps


def loop_over(
    planned: PlannedAxis, backwards: bool, first: ast.expr | None = None, last: ast.expr | None = None
) -> ast.For:
    """A loop along an axis, empty; `first` and `last` are where it begins and ends, if not with the axis."""
    step, ends = planned.axis.name, [first or as_expr(0), last or as_expr(planned.axis.size)]
    if backwards or planned.block > 1:
        step += "_start"
    if backwards or planned.block == 1:
        ends = ends[1:] if backwards or first is None else ends
    else:
        ends.append(as_expr(planned.block))
    return loop_of(step, call("range", *ends), [])


def places_in_loop(planned: PlannedAxis, backwards: bool, is_wide: bool = False) -> list[ast.Assign]:
    """The places along the axis of a loop, within it."""
    axis, lines = planned.axis, []
    start = name(f"{axis.name}_start")
    if backwards:
        lines.append(assign(axis.name, expr("{} - {}", axis.size - 1, start)))
    if planned.block > 1:
        lanes = _cast(expr("tl.arange(0, {})", planned.block), is_wide)
        lines.append(assign(axis.name, expr("{} + {}", start, lanes)))
    return lines
