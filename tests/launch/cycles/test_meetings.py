"""Programs that meet ask once in the model, and a meeting takes as long as a device is said to need."""

from __future__ import annotations

import dataclasses

import pytest

from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.cycles import model
from jaxpr2triton.launch.cycles.latencies import MACHINES
from jaxpr2triton.launch.cycles.meetings import asked_once, forgetting
from jaxpr2triton.launch.cycles.model import calls_of_its_own, cycles_of
from jaxpr2triton.launch.cycles.reuse import Reuse
from jaxpr2triton.policy import policy_of
from tests.launch.cycles.written import flow
from tests.launch.handmade import SOFTMAX, shift_kernel

SM_90 = TARGETS["sm_90"]
STEPS = 1000

SPUN = flow(
    "UMOV UR4, URZ",
    "ATOMG.E.ADD.STRONG.GPU PT, R9, desc[UR10][R10.64], R13",  # 10: a step
    "LDG.E.STRONG.GPU R10, desc[UR10][R10.64]",  # 20: asks
    "CCTL.IVALL",
    "@P1 BRA P3, 0x20",  # 40: and asks again
    "@P2 BRA 0x90",  # 50: or fails
    "UIADD3 UR4, UR4, 0x1, URZ",  # 60
    "@P0 BRA 0x10",  # 70
    "EXIT",  # 80
    "MOV R0, 0x0",  # 90
    "CALL.ABS.NOINC R2",  # a0
    "BRA 0xb0",  # b0: what ptxas puts behind it
)


def modelled(target: str = "sm_90", programs: int = 8, steps: int = STEPS) -> Cycles:
    return cycles_of(shift_kernel(programs, steps), TARGETS[target])


def test_a_loop_in_which_they_wait_is_none() -> None:
    assert [loop.head for loop in SPUN.loops] == [0x10, 0x20]
    found, asks = asked_once(SPUN)
    assert asks == {0x20}
    assert [loop.head for loop in found.loops] == [0x10]
    assert forgetting(found) == {0x10}


def test_nothing_fails() -> None:
    found, _ = asked_once(SPUN)
    assert SPUN.blocks[0x50].after == (0x60, 0x90) and found.blocks[0x50].after == (0x60,)
    assert 0x90 in SPUN.above and 0x90 not in found.above
    assert SPUN.blocks[0x90].after == (), "what is called ends the kernel"


def test_other_code_is_left_as_it_is() -> None:
    plain = flow("UMOV UR4, URZ", "LDG.E R2, desc[UR10][R4.64]", "@P0 BRA 0x10", "EXIT")
    assert asked_once(plain) == (plain, frozenset()) and forgetting(plain) == frozenset()


def test_what_is_asserted_is_no_function_of_the_kernel() -> None:
    ptx = "\t{ // callseq 0, 0\n\tcall.uni __assertfail, (param0);\n\t} // callseq 0\n"
    assert not calls_of_its_own(ptx)
    assert calls_of_its_own(ptx + "\tcall.uni (retval0), body, (param0);\n")


@pytest.mark.compile
@pytest.mark.parametrize("target", MACHINES)
def test_a_meeting_takes_as_long_as_is_said(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once, policy = modelled(target), policy_of(TARGETS[target])
    (loop,) = once.loops
    assert (loop.name, loop.steps, loop.depth) == ("t", STEPS, 0)
    assert once.whole is not None and (once.bound, once.trust) == ("meetings", "±40 %")
    meeting = policy.loops.meeting_us * 1000 * TARGETS[target].clock
    assert meeting < loop.cycles < meeting + 800, "beside it, two barriers, a store and a load"
    longer = dataclasses.replace(policy, loops=dataclasses.replace(policy.loops, meeting_us=2.2))
    monkeypatch.setattr(model, "policy_of", lambda target: longer)
    twice = modelled(target)
    assert twice.whole is not None
    assert twice.whole - once.whole == pytest.approx(STEPS * 1000 * TARGETS[target].clock, rel=0.01)


@pytest.mark.compile
def test_meetings_that_are_written_out_count_each() -> None:
    few, many = modelled(steps=2), modelled(steps=4)
    assert few.loops == many.loops == () and few.whole is not None and many.whole is not None
    meeting = policy_of(SM_90).loops.meeting_us * 1000 * SM_90.clock
    assert 2 * meeting < many.whole - few.whole < 2 * (meeting + 800)


@pytest.mark.compile
def test_nothing_is_read_again_from_a_cache_that_has_forgotten_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight is the same in each step, and comes from the second-level cache all the same."""
    found, reuse_of = [], model.reuse_of
    monkeypatch.setattr(model, "reuse_of", lambda *args: found.append(reuse_of(*args)) or found[-1])
    kernel = shift_kernel(steps=STEPS)
    again = "x = x * tl.load(x_ptr + p * 128 + lane) + tl.load(shown_ptr"
    cycles_of(dataclasses.replace(kernel, source=kernel.source.replace("x = x + tl.load(shown_ptr", again)), SM_90)
    assert found == [Reuse()]


def test_others_never_meet() -> None:
    assert not calls_of_its_own(str(compile_kernel(SOFTMAX, SM_90).code))
    assert "meetings" not in {each.what for each in cycles_of(SOFTMAX, SM_90).shares}
