"""Roles and blocks: what each axis of a kernel becomes, by its size and by what mixes elements along it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.kernels import all_kernels
from jaxpr2triton.ir.check import check_plan
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.ir.plan import Plan, power_of_two
from jaxpr2triton.pipeline.compiled_program import SHRINKS
from jaxpr2triton.plan.schedule.schedule import schedule
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.compiling import RUNNABLE, compiled, halves_of
from tests.golden import functions as f

Shape = tuple[int, ...]
MOST = DEFAULT_POLICY.blocks.resident
Fn = Callable[..., Any]


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def only_plan(fn: Fn, *avals: Any) -> Plan:
    (plan,) = j2t.transpile(fn, *avals).stages["schedule"].plans
    return plan


def roles(fn: Fn, *avals: Any) -> str:
    """`grid lane`: the roles of a kernel's axes, in order."""
    return " ".join(str(planned.role) for planned in only_plan(fn, *avals).axes)


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        *((f.softmax, [(4096, row)], "grid lane") for row in (2, 3, 4, 17, 1000, 4096, MOST)),
        *((f.softmax, [(4096, row)], "grid loop") for row in (MOST + 1, 1_000_000)),
        (f.softmax, [(4096, 1)], "grid"),
        (f.softmax, [(1000,)], "lane"),
        (f.column_softmax, [(1000, 4096)], "grid lane"),
        (f.column_softmax, [(100_000, 4096)], "grid loop"),
        (f.double, [()], ""),
        (f.double, [(8192, 4096)], "grid"),
        (f.turned, [(4096, 1000)], "grid grid"),
        (f.turned, [(4096, 7)], "grid"),
        (f.turned_inside, [(64, 512, 300)], "grid grid grid"),
        (f.rotary, [(8, 16, 64, 32), (64, 32), (64, 32)], "grid unroll"),
        (f.interleaved, [(8, 16, 64, 32), (64, 16), (64, 16)], "grid unroll"),
        (f.length, [(1000, 3)], "grid unroll"),
        (f.length, [(1000, 4)], "grid unroll"),
        (f.length, [(1000, 5)], "grid lane"),
        (f.length, [(3,)], "lane"),
        (lambda x: x.sum(1), [(1000, 3, 4)], "grid unroll"),
        (lambda x: x.sum((1, 2)), [(1000, 30, 40)], "grid lane"),
        (lambda x: x.sum((0, 2)), [(30, 1000, 40)], "grid lane"),
        (lambda x: x - x.mean((0, 1)), [(8, 9)], "lane"),
        (lambda x: jnp.where(jnp.arange(40) < 3, x, 0.0), [(7, 40)], "grid"),
    ],
)
def test_roles(fn: Fn, shapes: list[Shape], expected: str) -> None:
    assert roles(fn, *(floats(*shape) for shape in shapes)) == expected


def all_plans(name: str) -> list[Plan]:
    return [plan for half in halves_of(name) for plan in half.compiled.stages["schedule"].plans]


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_plan_is_sound(name: str) -> None:
    for plan in all_plans(name):
        assert 1 <= plan.num_warps <= DEFAULT_POLICY.blocks.warps and plan.num_warps & (plan.num_warps - 1) == 0
        for planned in plan.axes:
            assert planned.axis.size > 1, "an axis of size 1 is no axis"
            match planned.role:
                case Role.LANE:
                    assert planned.block == power_of_two(planned.axis.size)
                case Role.UNROLL:
                    assert planned.block == 1 and planned.axis.size <= 8
                case Role.LOOP:
                    assert planned.block < planned.axis.size
                case Role.GRID:
                    assert planned.block <= power_of_two(planned.axis.size)


def tile(plan: Plan) -> int:
    return int(np.prod([planned.block for planned in plan.axes], dtype=np.int64))


LARGE: list[tuple[Fn, list[Shape]]] = [
    (f.softmax, [(4096, 4096)]),
    (f.softmax, [(128, 1_000_000)]),
    (f.column_softmax, [(1000, 4096)]),
    (f.double, [(8192, 4096)]),
    (f.turned, [(4096, 1000)]),
    (f.layer_norm, [(8192, 4096), (4096,), (4096,)]),
    (f.length, [(100_000, 30)]),
]


@pytest.mark.parametrize(("fn", "shapes"), LARGE)
def test_a_smaller_schedule_is_smaller(fn: Fn, shapes: list[Shape]) -> None:
    plans = [only_plan(fn, *(floats(*shape) for shape in shapes))]
    for shrink in SHRINKS:
        plans.append(schedule(plans[0].jaxpr, plans[0].name, shrink))
        check_plan(plans[-1])
    sizes = [tile(plan) for plan in plans]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


@pytest.mark.parametrize(("fn", "shapes"), LARGE)
def test_a_device_is_busy(fn: Fn, shapes: list[Shape]) -> None:
    plan = only_plan(fn, *(floats(*shape) for shape in shapes))
    assert plan.programs >= 64
    assert plan.programs * tile(plan) >= np.prod(shapes[0], dtype=np.int64) or Role.LOOP in {p.role for p in plan.axes}


@pytest.mark.parametrize("shape", [(128, 256, 56, 56), (128, 128, 28, 28)])
def test_channels_that_are_few_are_a_program_each(shape: Shape) -> None:
    """What lies next to each other is summed, in runs of an image: no program has several channels for its sake."""
    (channels, _) = only_plan(lambda x: x.sum((0, 2, 3)), floats(*shape)).axes
    assert (channels.role, channels.axis.size, channels.block) == (Role.GRID, shape[1], 1)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_wide_values_get_smaller_tiles(dtype: Any) -> None:
    with jax.enable_x64(True):
        wide = only_plan(f.double, floats(8192, 4096, dtype=dtype))
        assert only_plan(f.softmax, floats(4096, MOST, dtype=np.float64)).axes[1].role is Role.LOOP
    assert 2 * tile(wide) == tile(only_plan(f.double, floats(8192, 4096)))


# large arrays and large grids


def only_kernel(fn: Fn, *avals: Any) -> Kernel:
    (kernel,) = j2t.transpile(fn, *avals).kernels
    return kernel


@pytest.mark.parametrize(
    ("fn", "shapes", "wide"),
    [
        (f.double, [(2**31,)], False),  # the last place is one less
        (f.double, [(2**31 + 1,)], True),
        (f.double, [(2**16, 2**16)], True),
        (f.softmax, [(2**20, 2**12)], True),
        (f.softmax, [(2**12, 2**20)], True),
        (f.turned, [(2**16, 2**16)], True),
        (f.outer, [(2**16,), (2**16,)], True),
        (lambda x: x.sum(1), [(2**21, 2**11)], True),
        (lambda x: x.sum(0), [(2**8, 2**24)], True),
    ],
)
def test_places_beyond_32_bits_have_64(fn: Fn, shapes: list[Shape], wide: bool) -> None:
    kernel = only_kernel(fn, *(floats(*shape) for shape in shapes))
    assert ("int64" in kernel.source) == wide


@pytest.mark.parametrize(
    ("fn", "shapes", "grid"),
    [
        (f.double, [(2**30,)], (2**20, 1, 1)),
        (f.softmax, [(100_000, 4096)], (100_000, 1, 1)),
        (f.turned_inside, [(64, 512, 300)], (16, 10, 64)),
        (f.turned_inside, [(70_000, 64, 64)], (70_000 * 4, 1, 1)),  # more than 65535 along z
        (f.turned, [(64, 2**23)], (2 * 2**18, 1, 1)),
    ],
)
def test_grids_that_a_device_accepts(fn: Fn, shapes: list[Shape], grid: tuple[int, int, int]) -> None:
    kernel = only_kernel(fn, *(floats(*shape) for shape in shapes))
    assert kernel.grid == grid
    assert kernel.grid[0] < 2**31 and max(kernel.grid[1:]) <= 65535


def test_more_axes_than_a_grid_has() -> None:
    """The programs are numbered by one number, which is taken apart again."""

    def fn(x: Any) -> Any:
        return x.transpose(3, 2, 1, 0, 4).sum(-1)

    x = np.random.default_rng().standard_normal((32, 3, 2, 5, 7)).astype(np.float32)
    made = compiled(fn, x)
    (kernel,) = made.kernels
    assert sum(axis.role is Role.GRID for axis in kernel.axes) == 4
    assert kernel.grid[1:] == (1, 1) and "program = tl.program_id(0)" in kernel.source
    np.testing.assert_allclose(made.run("interpret", False, x)[0], fn(x), rtol=1e-5, atol=1e-5)


def test_a_table_that_is_looked_up_is_no_set_of_variables() -> None:
    """Each look at a row would be a choice between all rows, and a step of nuts three times as long."""
    (nuts,) = (found for found in all_kernels(["nuts"]) if found.kind == "forward")
    (kernel,) = nuts.kernels
    assert next(axis for axis in kernel.axes if axis.size == 10).role is Role.LANE
