"""The cycles of a kernel, modelled from its machine code: what bounds each of its loops, and the whole.

    alone   one warp by itself, along the schedule that ptxas wrote (`warp.py`); warps of a program meet at barriers
    busy    the instructions of all warps that share a scheduler, or a pipe, or the way to the second-level cache

A loop takes the longer of the two, and so does what stands beside loops. Where tensor cores work while warps go on, all
warps of a scheduler are simulated in place of one (`concurrent_warps.py`). Programs that find no room on a processor
wait for others: registers, shared memory and warps say how many run at once. The whole takes no less time than its
bytes, once each, take to pass through device memory.

Not in it: launches, conflicts between banks of shared memory, sectors of which lanes far apart read a part, lanes that
end before others, copies that come too late, caches but for what is plainly read again; but where all are simulated,
warps of one program that run ahead of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from jaxpr2triton.hardware import SHARED_RESERVED, Target
from jaxpr2triton.ir.cycles import Cycles, LoopCycles, Stall
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.compile.nvidia_tools import Resources, machine_code
from jaxpr2triton.launch.cycles.concurrent_warps import round_of_all
from jaxpr2triton.launch.cycles.flow import flow_of
from jaxpr2triton.launch.cycles.latencies import MEMORY_PIPE, TENSOR_CORES, Machine, machine_of
from jaxpr2triton.launch.cycles.meetings import Meetings, asked_once
from jaxpr2triton.launch.cycles.path import Walker, Way
from jaxpr2triton.launch.cycles.reuse import reuse_of
from jaxpr2triton.launch.cycles.sass import instructions
from jaxpr2triton.launch.cycles.sectors import moved_by
from jaxpr2triton.launch.cycles.steps import Known, foreign_loops, matched, source_loops, taken
from jaxpr2triton.launch.cycles.tensor_cores import multiplies_async
from jaxpr2triton.launch.cycles.trips import rounds_of
from jaxpr2triton.launch.cycles.warp import (
    ARITHMETIC,
    ISSUE,
    MEETINGS,
    ONE_WARP,
    WHOLE,
    Part,
    Phase,
    Tally,
    Warp,
    tally,
)
from jaxpr2triton.policy import policy_of
from jaxpr2triton.progress import counted, working

CACHE = "bytes (L2)"
BYTES = "bytes"
# More than the code decides.
UNSURE = ("loads (L2)", MEETINGS, "stores", "barriers", "shared memory", "local memory", CACHE)
MUCH_OF_IT = 0.2  # of all cycles


@dataclass(frozen=True)
class Crowd:
    """Who shares a processor."""

    machine: Machine
    schedulers: int
    num_warps: int  # of a program
    programs: int  # that it runs in all
    at_once: int
    rate: float  # bytes that it is given by the second-level cache in a cycle

    @property
    def waves(self) -> int:
        return -(-self.programs // self.at_once)

    def busy(self, phase: Phase, programs: int) -> tuple[float, str]:
        """Cycles for which so many programs keep what they share busy, and what that is."""
        warps = programs * self.num_warps
        of_scheduler = -(-warps // self.schedulers)
        shares = {pipe: busy * (warps if pipe == MEMORY_PIPE else of_scheduler) for pipe, busy in phase.busy.items()}
        shares[CACHE] = phase.bytes * warps / self.rate
        return max((cycles, what) for what, cycles in shares.items())


@dataclass(frozen=True)
class Spent:
    """Cycles, by what bounds them."""

    cycles: float
    by: Tally

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cycles + other.cycles, tally((self.by, 1), (other.by, 1)))

    def __mul__(self, times: float) -> Spent:
        return Spent(self.cycles * times, tally((self.by, times)))

    @property
    def shares(self) -> tuple[Stall, ...]:
        """What bounds it, the most first.

        A warp that is alone and waits for nothing executes what depends on each other, or is just very much.
        """
        own = {what: self.by.get(what, 0.0) for what in (ARITHMETIC, ONE_WARP)}
        more = ONE_WARP if 2 * own[ONE_WARP] > self.cycles else ARITHMETIC
        others = {what: cycles for what, cycles in self.by.items() if what not in own}
        return stalls({more: sum(own.values()), **others})


def cycles_of_all(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Cycles]:
    """Each kernel once; a `UserError` for a target that no model knows, also where there is no kernel."""
    machine_of(target)
    with working(f"modelling cycles on {target.name}"):
        return {kernel: cycles_of(kernel, target) for kernel in counted("kernel", dict.fromkeys(kernels))}


def cycles_of(kernel: Kernel, target: Target) -> Cycles:
    """The kernel, compiled for this target, on one of its devices."""
    machine = machine_of(target)
    binary = compile_kernel(kernel, target)
    text, resources = machine_code(str(binary.code), target.arch)
    code = instructions(text)
    flow, asks = asked_once(flow_of(code))
    meetings = Meetings(asks, policy_of(target).loops.meeting_us * machine.clock * 1000)
    rounds = {loop.head: rounds_of(flow, loop) for loop in flow.loops}
    source = source_loops(kernel.source, kernel.name)
    foreign = foreign_loops(flow.loops, source, rounds)
    walker = Walker(flow, not calls_of_its_own(str(binary.code)), foreign)
    way = walker.whole()
    crowd = _crowd(kernel, target, machine, resources, binary.shared)
    at_once = min(crowd.at_once, crowd.programs)
    room = machine.first_level - at_once * (binary.shared + SHARED_RESERVED)
    reuse = reuse_of(flow, way, rounds, machine.lanes * kernel.num_warps, at_once, room)
    moved = moved_by(code, machine.lanes)
    near, far = (
        _walked(way, crowd, partial(Warp, machine, is_far, rounds, reuse, moved, kernel.num_warps, meetings))
        for is_far in (False, True)
    )
    known = matched(near.inner, source, rounds)
    ends = [axis.seldom for axis in kernel.axes if axis.unbounded]
    rounds = taken(known, rounds, bool(ends) and all(ends))
    whole, whole_far = (_whole(part, crowd, rounds) for part in (near, far))
    least = (kernel.bytes_read + kernel.bytes_written) / machine.memory_rate * machine.clock
    once, once_far = (_round(part, crowd, rounds) for part in (near, far))
    is_bytes = whole is not None and least > whole.cycles
    return Cycles(
        target=target.name,
        clock=machine.clock,
        loops=tuple(_loops(near, far, crowd, rounds, known)),
        whole=None if whole is None else max(whole.cycles, least),
        from_memory=None if whole_far is None else max(whole_far.cycles, least),
        bytes_alone=least,
        shares=(Stall(BYTES, least),) if is_bytes else (whole or once).shares,
        trust="±20 %" if is_bytes else _trust(whole or once, whole_far or once_far),
        registers=resources.registers,
        spills=resources.spills,
        programs_at_once=at_once,
        waves=crowd.waves,
        jumped_over=len(walker.jumped_over),
        both_sides=len(walker.both),
    )


def calls_of_its_own(ptx: str) -> bool:
    """Whether functions of the kernel are called; what is asserted calls one that is not its own."""
    return any("call" in line and "__assertfail" not in line and "callseq" not in line for line in ptx.split("\n"))


def _walked(way: Way, crowd: Crowd, new_warp: Callable[[], Warp]) -> Part:
    """Through the code by a warp that is alone, and where products are under way meanwhile by all that run at once."""
    whole = new_warp().walk(way)
    programs, waiting = min(crowd.programs, crowd.at_once), [whole]
    for part in waiting:
        waiting += part.inner
        if any(multiplies_async(step) for step in part.steps):
            once = part.head == WHOLE
            part.together = round_of_all(part.steps, new_warp, crowd.num_warps // crowd.schedulers, programs, once)
    return whole


def _crowd(kernel: Kernel, target: Target, machine: Machine, resources: Resources, shared: int) -> Crowd:
    warps, programs = kernel.num_warps, math.prod(kernel.grid)
    most = target.at_once(resources.registers, shared, warps)
    rate = min(machine.cache_rate / min(programs, target.processors), machine.cache_rate_of_one)
    of_processor = -(-programs // target.processors)
    return Crowd(machine, target.schedulers, warps, of_processor, max(most, 1), rate)


def _whole(part: Part, crowd: Crowd, rounds: Mapping[int, int | None]) -> Spent | None:
    """All programs of a processor."""
    spent = _spent(part, crowd, crowd.programs, crowd.waves)
    for inner in part.inner:
        times, found = rounds[inner.head], _whole(inner, crowd, rounds)
        if times is None or found is None:
            return None
        spent += found * times
    return spent


def _spent(part: Part, crowd: Crowd, programs: int, waves: int) -> Spent:
    """A part, without the loops in it: so many waves of programs, one after the other, and all of them together."""
    alone = _alone(part, crowd) * waves
    busy, what = crowd.busy(part.all_phases, programs)
    return Spent(busy, tally(({what: busy}, 1))) if busy > alone.cycles else alone


def _alone(part: Part, crowd: Crowd) -> Spent:
    """One program, whose warps wait for each other at barriers; or all that run at once, where that is simulated."""
    if part.together is not None:
        return Spent(part.together.cycles, part.together.stalls)
    spent = Spent(0.0, Tally(float))
    for phase in part.phases:
        busy, what = crowd.busy(phase, 1) if len(part.phases) > 1 else (0.0, "")
        spent += Spent(busy, tally(({what: busy}, 1))) if busy > phase.cycles else Spent(phase.cycles, phase.stalls)
    return spent


def _round(part: Part, crowd: Crowd, rounds: Mapping[int, int | None]) -> Spent:
    """A round of all warps that run at once; of loops in it that the device ends, one round."""
    programs = min(crowd.programs, crowd.at_once)
    spent = _spent(part, crowd, programs, 1)
    for inner in part.inner:
        spent += _round(inner, crowd, rounds) * _times(inner, rounds)
    return spent


def _loops(
    near: Part,
    far: Part,
    crowd: Crowd,
    rounds: Mapping[int, int | None],
    known: Mapping[int, Known],
    depth: int = 0,
) -> Iterator[LoopCycles]:
    for part, other in zip(near.inner, far.inner, strict=True):
        source = known[part.head]
        spent, distant = _round(part, crowd, rounds), _round(other, crowd, rounds)
        alone = _of_one_warp(part, rounds)
        yield LoopCycles(
            name=source.name,
            depth=depth,
            steps=0 if rounds[part.head] == 0 else source.steps,
            unrolled=source.unrolled,
            cycles=spent.cycles / source.unrolled,
            from_memory=distant.cycles / source.unrolled,
            alone=sum(alone.values()) / source.unrolled,
            instructions=_instructions(part, rounds) / source.unrolled,
            shares=(spent * (1 / source.unrolled)).shares,
            stalls=stalls(tally((alone, 1 / source.unrolled))),
        )
        yield from _loops(part, other, crowd, rounds, known, depth + 1)


def _of_one_warp(part: Part, rounds: Mapping[int, int | None]) -> Tally:
    """What a lone warp spends a round on."""
    inner = [(_of_one_warp(inner, rounds), _times(inner, rounds)) for inner in part.inner]
    return tally((part.all_phases.stalls, 1), *inner)


def _instructions(part: Part, rounds: Mapping[int, int | None]) -> float:
    inside = sum(_instructions(inner, rounds) * _times(inner, rounds) for inner in part.inner)
    return part.all_phases.busy[ISSUE] + inside


def _times(part: Part, rounds: Mapping[int, int | None]) -> int:
    """One where the device finds out."""
    times = rounds[part.head]
    return 1 if times is None else times


def stalls(spent: Mapping[str, float]) -> tuple[Stall, ...]:
    longest = sorted(spent.items(), key=lambda each: -each[1])
    return tuple(Stall(what, cycles) for what, cycles in longest if cycles > 0)


def _trust(near: Spent, far: Spent) -> str:
    """Machine code says how long arithmetic takes; where data comes from, and who waits for whom, it does not."""
    if near.by.get(TENSOR_CORES):
        return "±40 %"
    unsure = sum(near.by.get(what, 0.0) for what in UNSURE)
    return "±40 %" if max(unsure, far.cycles - near.cycles) > MUCH_OF_IT * near.cycles else "±15 %"
