"""The estimate by which kernels with loops are scheduled: what it prefers, and that it says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Estimate, Kernel
from jaxpr2triton.plan.schedule.cost import Resident, Work, estimate
from jaxpr2triton.plan.schedule.values import Kind, Round, Value
from jaxpr2triton.plan.schedule.walked import Shape
from jaxpr2triton.policy import DEFAULT_POLICY

ROW, COL = Axis("row", 4096), Axis("col", 64)


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def step_of(lanes: int, warps: int, columns: int = 1, values: Sequence[Value] = (), **more: Any) -> Estimate:
    """A step of 4096 rows, `lanes` of them in each program."""
    shape = Shape({ROW: lanes, COL: columns}, {ROW: 1, COL: 1}, warps, DEFAULT_POLICY)
    counts = {name: defaultdict(float, count) for name, count in more.items() if name != "resident"}
    work = Work(more.get("resident", ()), (Round(1, tuple(values)),), **counts)
    return estimate(work, shape, 4096 // lanes, 1)


ROWS, ALL = frozenset((ROW,)), frozenset((ROW, COL))
COLS = ALL - ROWS


def made(axes: frozenset[Axis], weight: float, *reads: int) -> Value:
    return Value(Kind.MADE, axes, weight, reads)


def summed(
    axes: frozenset[Axis], over: frozenset[Axis], *order: Axis, vector: int = 1, added: bool = False
) -> Value:
    """A sum of the value before it, whose tile lies in this order."""
    return Value(Kind.SUM, axes, 1, (0,), over, order, vector, added)


def test_memory_is_read_by_all_processors() -> None:
    crowded = step_of(128, 4, values=[made(ROWS, 10)], requests={ROWS: 5})
    spread = step_of(32, 1, values=[made(ROWS, 10)], requests={ROWS: 5})
    assert (crowded.programs, spread.programs, spread.processors) == (32, 128, DEFAULT_TARGET.processors)
    assert spread.cycles < crowded.cycles and spread.instructions == crowded.instructions == 10


def test_processors_have_whole_programs() -> None:
    """Of 160 programs of two warps some processors have two, of 320 of one warp some have three: 4 warps, and 3."""

    def taken(programs: int, warps: int) -> int:
        shape = Shape({ROW: 32 * warps, COL: 1}, {ROW: 1, COL: 1}, warps, DEFAULT_POLICY)
        work = Work((), (Round(1, (made(ROWS, 1),)),), defaultdict(float, {ROWS: 100}))
        return estimate(work, shape, programs, 1).cycles

    assert taken(320, 1) / taken(160, 2) == 3 / 4 and taken(132, 4) == taken(160, 2)
    assert taken(132 * 40 + 1, 1) / taken(132 * 40, 1) < 1.001, "more than run at once take their turns"


def test_a_long_sum_is_made_in_parts() -> None:
    """As many as a result takes cycles to be there: until then a thread adds to others."""
    cost = DEFAULT_POLICY.cost
    steps = {
        added: step_of(32, 1, 64, [made(ALL, 0), summed(ROWS, COLS, ROW, COL, added=added)]).cycles
        for added in (False, True)
    }
    assert steps[False] == cost.latency * 64 and steps[True] == round(cost.alone * 64)


def test_lanes_that_meet_in_one_warp_need_no_barrier() -> None:
    meeting = [made(ALL, 1), summed(ROWS, COLS, COL, ROW)]
    one, two, rows = step_of(1, 1, 32, meeting), step_of(1, 2, 64, meeting), step_of(2, 2, 32, meeting)
    assert one.barriers == 0 and two.barriers > 0 and rows.barriers == 0  # … nor where each warp has a row
    assert one.cycles < two.cycles


def test_what_a_sum_leaves_is_with_all_that_had_a_part_in_it() -> None:
    """Of 32 rows of 32, of which a thread has 4 columns: 8 threads are along a row, so each has 8 sums."""
    after = made(ROWS, 100, 1)
    wide = step_of(32, 1, 32, [made(ALL, 1), summed(ROWS, COLS, COL, ROW, vector=4), after])
    assert wide.instructions == 32 + (32 + 2 * 3 * 8) + 8 * 100
    whole = step_of(32, 1, 32, [made(ALL, 1), summed(ROWS, COLS, ROW, COL), after])  # a row for each thread
    assert whole.instructions == 32 + 32 + 100 and whole.cycles < wide.cycles


def test_what_is_read_beside_a_sum_stands_one_number_a_lane() -> None:
    read = Value(Kind.READ, ROWS, 2)
    values = [made(ALL, 1), summed(ROWS, COLS, COL, ROW, vector=4), read, made(ROWS, 100, 1, 2)]
    assert step_of(32, 1, 32, values).instructions < step_of(32, 1, 32, [*values[:3], made(ROWS, 100, 1)]).instructions


def test_what_does_not_wait_for_each_other_goes_along() -> None:
    long = DEFAULT_POLICY.cost.long + 1
    chain = step_of(32, 1, values=[made(ROWS, long), made(ROWS, long, 0), made(ROWS, long, 1)])
    apart = step_of(32, 1, values=[made(ROWS, long)] * 3)
    assert chain.instructions == apart.instructions and apart.cycles < chain.cycles


def test_a_sweep_is_combined_by_threads_then_by_lanes() -> None:
    def swept(length: int, warps: int) -> Estimate:
        return step_of(1, warps, length, [made(COLS, 1), Value(Kind.SWEPT, COLS, 7, (0,), COLS, (COL,))])

    short, long, shared = swept(32, 1), swept(128, 1), swept(128, 4)
    assert short.instructions < long.instructions and short.cycles < long.cycles
    assert long.barriers == 0 < shared.barriers and shared.instructions < long.instructions


def test_a_loop_that_ends_when_all_lanes_do() -> None:
    many, few = (step_of(lanes, lanes // 32, values=[made(ROWS, 10)], ends={ROWS: 1}) for lanes in (128, 32))
    assert few.barriers == 0 < many.barriers and few.cycles < many.cycles


def test_what_does_not_fit_is_dear() -> None:
    tile = frozenset((COL,))
    most = DEFAULT_POLICY.cost.room_of_a_thread // 2 * 2
    fits = Resident((tile,) * (most // 2), 1 << 20)
    spills = Resident((tile,) * (most // 2 + 1), 1 << 20)
    costs = [step_of(1, 1, 64, [made(ALL, 1)], resident=(each,)) for each in (fits, spills)]
    assert costs[0].kept == most and costs[0].cycles < costs[1].cycles
    assert Resident((tile, tile), 100).elements({COL: 64}) == 100


# what it chooses


def decay(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: (0.5 * c + x, c), c, xs)


def newton(number: Any) -> Any:
    return lax.while_loop(lambda x: jnp.abs(x * x - number) > 1e-3, lambda x: 0.5 * (x + number / x), number + 1)


def state_space(decays: Any, h: Any, xs: Any, weights: Any) -> Any:
    """Sixteen numbers of state for each of some channels."""

    def step(h: Any, now: Any) -> Any:
        x, w = now
        h = jnp.exp(decays * x[:, None]) * h + x[:, None]
        return h, (h * w).sum(1)

    return lax.scan(step, h, (xs, weights))


def rnn(weights: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ weights + x)
        return h, h

    return lax.scan(step, h, xs)


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (decay, [(4096,), (30, 4096)], "i: grid 4096 by 32 | t: loop 30 by 1; 1 warp"),
        (decay, [(1_000_000,), (30, 1_000_000)], "i: grid 1000000 by 128 | t: loop 30 by 1; 1 warp"),
        (decay, [(3,), (30, 3)], "i: grid 3 by 4 | t: loop 30 by 1; 1 warp"),
        (jax.vmap(newton), [(100_000,)], "i: grid 100000 by 32 | t: while; 1 warp"),
        (
            rnn,
            [(64, 64), (32, 64), (99, 32, 64)],
            "row: grid 32 | t: loop 99 by 1 | col: lane 64 of 64 | k: lane 64 of 64; 2 warps",
        ),
        (
            state_space,
            [(512, 16), (512, 16), (30, 512), (30, 16)],
            "row: grid 512 by 4 | t: loop 30 by 1 | col: lane 16 of 16; 1 warp",
        ),
        (
            state_space,
            [(100_000, 16), (100_000, 16), (99, 100_000), (99, 16)],
            "row: grid 100000 by 64 | t: loop 99 by 1 | col: unroll 16; 1 warp",
        ),
    ],
)  # fmt: skip
def test_choices(fn: Callable[..., Any], shapes: list[tuple[int, ...]], expected: str) -> None:
    kernel = only_kernel(fn, *(floats(*shape) for shape in shapes))
    warps = "1 warp" if kernel.num_warps == 1 else f"{kernel.num_warps} warps"
    assert f"{' | '.join(map(str, kernel.axes))}; {warps}" == expected


def only_kernel(fn: Callable[..., Any], *avals: Any) -> Kernel:
    (kernel,) = j2t.transpile(fn, *avals).kernels
    return kernel


def test_the_next_best_has_other_roles_if_there_are_any() -> None:
    choice = only_kernel(state_space, floats(512, 16), floats(512, 16), floats(99, 512), floats(99, 16)).choice
    assert choice is not None and choice.of_other is not None
    assert "unroll 16" in choice.other and choice.chosen.cycles <= choice.of_other.cycles
    choice = only_kernel(decay, floats(4096), floats(30, 4096)).choice
    assert choice is not None and choice.other == "i: grid 4096 by 64, 2 warps"
    assert only_kernel(jnp.sin, floats(4096)).choice is None
