"""Warps side by side: what they share, what they wait for, and what overlaps."""

from __future__ import annotations

from functools import partial

import pytest

from jaxpr2triton.launch.cycles.concurrent_warps import round_of_all
from jaxpr2triton.launch.cycles.latencies import MACHINES, TENSOR_CORES
from jaxpr2triton.launch.cycles.warp import Phase, Warp
from tests.launch.cycles.written import code_of, line

SM_90 = MACHINES["sm_90"]
MULTIPLY = [line("HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR4], R24")] * 3 + [
    line("HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR4], R24, gsb0")
]  # 256 cycles
WAIT = line("WARPGROUP.DEPBAR.LE gsb0, 0x0")
COMPUTE = [line("FFMA R100, R101, R102, R100")] * 200
LATENCY = SM_90.latency("HGMMA", False)


def taken(*lines: str, warps: int = 1, programs: int = 1, once: bool = False) -> Phase:
    new_warp = partial(Warp, SM_90, False, {})
    return round_of_all(code_of(*lines), new_warp, warps, programs, once)


def test_a_warp_that_waits_does_one_after_the_other() -> None:
    alone = taken(*MULTIPLY, WAIT, *COMPUTE)
    assert alone.cycles == pytest.approx(LATENCY + 256 + 1 + 200, abs=1)
    assert alone.stalls[TENSOR_CORES] == pytest.approx(LATENCY + 256 - 4, abs=1)
    assert sum(alone.stalls.values()) == pytest.approx(alone.cycles)


@pytest.mark.parametrize(("warps", "programs"), [(2, 1), (1, 2)])
def test_two_warps_take_turns(warps: int, programs: int) -> None:
    """While one of them computes the other one multiplies."""
    both = taken(*MULTIPLY, WAIT, *COMPUTE, warps=warps, programs=programs)
    assert 2 * 256 <= both.cycles < 1.2 * 2 * 256


def test_many_warps_are_bound_by_tensor_cores() -> None:
    many = taken(*MULTIPLY, WAIT, *COMPUTE, programs=4)
    assert many.cycles == pytest.approx(4 * 256, rel=0.02)
    assert max(many.stalls, key=lambda what: many.stalls[what]) == TENSOR_CORES


def test_many_warps_that_compute_are_bound_by_issue() -> None:
    many = taken(*MULTIPLY, WAIT, *COMPUTE * 3, programs=4)
    assert many.cycles == pytest.approx(4 * 605, rel=0.02)
    assert many.stalls["issue"] > many.stalls[TENSOR_CORES]
    assert many.stalls["issue"] > many.stalls["issue of one warp"]


def test_a_group_may_stay_under_way() -> None:
    """A warp by itself computes meanwhile, if it waits for the group before."""
    later = taken(*MULTIPLY, line("WARPGROUP.DEPBAR.LE gsb0, 0x1"), *COMPUTE)
    assert later.cycles == pytest.approx(256, rel=0.05)


def test_warps_of_a_program_meet_at_barriers() -> None:
    """In step they multiply at the same time, and compute at the same time."""
    barrier = line("BAR.SYNC.DEFER_BLOCKING 0x0")
    apart, in_step = (taken(*MULTIPLY, WAIT, *more, *COMPUTE, warps=2) for more in ([], [barrier]))
    assert in_step.stalls["barriers"] > 0 and in_step.cycles > 1.2 * apart.cycles
    alone = taken(*MULTIPLY, WAIT, barrier, *COMPUTE, programs=2)
    assert alone.cycles < in_step.cycles, "programs do not wait for each other"


def test_shared_memory_is_read_in_turns() -> None:
    """Four schedulers share it: a load of 512 bytes takes 4 cycles, and 16 until it is the same one's turn again."""
    loads = [line("LDS.128 R8, [R4]")] * 100
    assert taken(*loads, programs=4).cycles == pytest.approx(4 * 100 * 16, rel=0.02)


def test_once_through() -> None:
    assert taken(*MULTIPLY, WAIT, *COMPUTE, once=True).cycles == pytest.approx(LATENCY + 256 + 1 + 200, abs=2)
