"""The lines that say where a program is."""

from __future__ import annotations

from jaxpr2triton.emit.axes import band_of, first_programs, grid_of, loop_over, places_in_loop, places_of_program
from jaxpr2triton.emit.layout import text_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.ir.printed import printed


def planned(name: str, size: int, block: int, role: Role = Role.GRID) -> PlannedAxis:
    return PlannedAxis(Axis(name, size), role, block)


def lines_of(axes: list[PlannedAxis], band: int = 0) -> list[str]:
    return text_of([*places_of_program(axes, band=band)], "")


def test_each_axis_has_a_dimension_of_the_grid() -> None:
    axes = [planned("row", 12, 1), planned("i", 4000, 1024), planned("col", 100, 128, Role.LANE)]
    assert lines_of(axes) == [
        "i = tl.program_id(0) * 1024 + tl.arange(0, 1024)",
        "row = tl.program_id(1)",
        "col = tl.arange(0, 128)",
    ]
    assert grid_of(axes) == (4, 12, 1)


def test_the_last_places_come_first() -> None:
    """Where there is most to do in the last block; of one block there is no first."""
    axes = [planned("row", 12, 1), planned("i", 4000, 1024), planned("j", 100, 128)]
    lines = text_of([*places_of_program(axes, last_first={axes[1].axis, axes[2].axis})], "")
    assert lines == [
        "j = tl.arange(0, 128)",
        "i = (3 - tl.program_id(1)) * 1024 + tl.arange(0, 1024)",
        "row = tl.program_id(2)",
    ]


def test_an_axis_of_one_block_needs_no_program() -> None:
    axes = [planned("i", 100, 128)]
    assert lines_of(axes) == ["i = tl.arange(0, 128)"]
    assert grid_of(axes) == (1, 1, 1)


def test_four_axes_share_one_number() -> None:
    axes = [planned("a", 2, 1), planned("b", 3, 1), planned("c", 5, 1), planned("d", 64, 16)]
    assert lines_of(axes) == [
        "program = tl.program_id(0)",
        "d = program % 4 * 16 + tl.arange(0, 16)",
        "c = program // 4 % 5",
        "b = program // 20 % 3",
        "a = program // 60",
    ]
    assert grid_of(axes) == (120, 1, 1)


def test_so_do_two_if_the_second_dimension_of_a_launch_is_too_short() -> None:
    axes = [planned("row", 70_000, 1), planned("i", 2, 1)]
    lines = ["program = tl.program_id(0)", "i = program % 2", "row = program // 2"]
    assert (lines_of(axes), grid_of(axes)) == (lines, (140_000, 1, 1))
    turned = axes[::-1]
    assert (lines_of(turned)[0], grid_of(turned)) == ("row = tl.program_id(0)", (70_000, 2, 1))


def test_many_blocks_are_walked_in_bands() -> None:
    axes = [planned("b", 2, 1), planned("m", 640, 64), planned("n", 1280, 128)]
    assert lines_of(axes, band_of(axes, 8)) == [
        "m_block, n_block = tl.swizzle2d(tl.program_id(1), tl.program_id(0), 10, 10, 8)",
        "n = n_block * 128 + tl.arange(0, 128)",
        "m = m_block * 64 + tl.arange(0, 64)",
        "b = tl.program_id(2)",
    ]
    assert [*map(printed, first_programs(axes, [axes[1].axis], 8))] == ["n_block == 0", "tl.program_id(2) == 0"]
    assert grid_of(axes) == (10, 10, 2)


def test_few_blocks_are_walked_as_they_are() -> None:
    assert band_of([planned("m", 512, 64), planned("n", 1280, 128)], 8) == 0
    assert band_of([planned("m", 640, 1), planned("n", 1280, 128)], 8) == 0
    assert band_of([planned("n", 1280, 128)], 8) == 0


def test_loops() -> None:
    steps, blocks = planned("t", 9, 1, Role.LOOP), planned("k", 4000, 512, Role.LOOP)
    assert loop_of(steps, False) == ["for t in range(9):"]
    assert loop_of(steps, True) == ["for t_start in range(9):", "    t = 8 - t_start"]
    assert loop_of(blocks, False) == ["for k_start in range(0, 4000, 512):", "    k = k_start + tl.arange(0, 512)"]


def loop_of(planned: PlannedAxis, backwards: bool) -> list[str]:
    loop = loop_over(planned, backwards)
    loop.body = [*places_in_loop(planned, backwards)]
    return text_of([loop], "")
