"""The numbers that plans, kernels and reports are made by, for each machine.

A number stands here as it is for an H100 (sm_90), with its unit; `policy_of` makes of it what it is for others:

    _programs(64)    counts programs                             more where there are more processors
    _values(34_400)  counts 4-byte numbers of a program          more where a processor has more registers
    _tile(16_384)    the same, of a tile that lanes exchange     no more than fit into shared memory either
    _thread(160)     counts numbers that one thread keeps        more where a thread may have more registers
    _lanes(128)      counts lanes                                as many warps of 64 as of 32
    _warps(16)       counts warps                                as many lanes, in fewer warps
    anything else    is the same on all machines

Times are cycles. Where a comment does not say what a number comes from, it was chosen, by the programs of `bench/bytes`
and `bench/loops`, and not measured one by one; `tests/policy/` has a program for each that notices when it moves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from jaxpr2triton.hardware import DEFAULT_TARGET, LINE, TARGETS, Target

H100 = TARGETS["sm_90"]  # the machine that the numbers below are for
T = TypeVar("T")


def _of_a_tile(number: int, target: Target) -> int:
    return min(number * target.registers // H100.registers, target.shared_bytes // 4)


SCALES: dict[str, Callable[[int, Target], int]] = {
    "programs": lambda number, target: max(1, round(number * target.processors / H100.processors)),
    "values": lambda number, target: number * target.registers // H100.registers,
    "tile": _of_a_tile,
    "thread": lambda number, target: number * (target.registers_of_a_thread + 1) // (H100.registers_of_a_thread + 1),
    "lanes": lambda number, target: number * target.warp_size // H100.warp_size,
    "warps": lambda number, target: max(1, number * H100.warp_size // target.warp_size),
}


def _counting(unit: str) -> Callable[[int], Any]:
    return lambda number: field(default=number, metadata={"unit": unit})


_programs, _values, _tile, _thread, _lanes, _warps = map(_counting, SCALES)


def _for(kind: type[T], target: Target) -> T:
    """The numbers of one subject on this machine."""
    units = {each.name: each.metadata["unit"] for each in fields(kind) if each.metadata}  # type: ignore[arg-type]  # `kind` is a dataclass
    return kind(**{name: SCALES[unit](getattr(kind, name), target) for name, unit in units.items()})


@dataclass(frozen=True)
class Cutting:
    """Where kernels end (`plan/partition/cut.py`)."""

    held: int = 1 << 20  # elements that one program walks for the sake of a value it wants for all of them
    small: int = 1 << 14  # elements: so little work that one program may do it all
    carried: float = 0.62  # of a program's registers, that a loop's state takes at most
    read_each_step: int = 150_000  # elements that one program may read in every step, from the second-level cache
    small_loop: int = _lanes(256)  # lanes of a loop: so many run in one program as well as in several
    steps: int = 1500  # computations in one kernel: Triton's time grows with their square
    variables_of_loops: int = 12_000  # … with loops, each of one number: there are no layouts, and that time is linear
    instructions: int = 1 << 16  # of a thread for the steps of loops, all that is written: a minute of compiling
    reads: int = 4  # arrays that a value is computed from again in kernels of several levels

    @property
    def steps_of_loops(self) -> int:
        """Computations in a kernel with loops, which cannot be cut."""
        return 4 * self.steps


@dataclass(frozen=True)
class Splitting:
    """Long sums in two steps (`plan/partition/split.py`, `companions.py`)."""

    rows: int = 16  # rows of a chunk at least: what is written for each is read again
    elements: int = 4096  # elements of a chunk at least, so that it is worth a program and its result a small addition


@dataclass(frozen=True)
class Grouping:
    """Which outputs share a kernel (`plan/partition/group.py`)."""

    outputs: int = 32  # arrays that a kernel writes at most
    pointers: int = 448  # … of all results of a loop and what they read: a kernel takes 4096 bytes of arguments


@dataclass(frozen=True)
class Axes:
    """What becomes of small axes (`plan/schedule/draft.py`, `merge.py`)."""

    unrolled_sum: int = 4  # terms of a sum that are one variable each


@dataclass(frozen=True)
class Blocks:
    """How much a program holds at once where nothing is carried (`plan/schedule/blocks.py`)."""

    resident: int = _tile(16_384)  # values of one tile that may stay in registers
    across: int = 64  # columns at most, when a program walks down them
    of_a_thread: int = 16  # elements for each thread, in a kernel that sums something
    warps: int = _warps(16)  # of a program, at most

    @property
    def room(self) -> int:
        """The values of a tile where another one of this size is needed at once."""
        return self.resident // 2

    @property
    def piece(self) -> int:
        """The elements of a tile in a loop, of which some are under way while others are used."""
        return self.resident // 4


@dataclass(frozen=True)
class Block:
    """What a program contracts at once."""

    rows: int
    columns: int
    sums: int
    warps: int
    stages: int  # loads that are under way


@dataclass(frozen=True)
class Products:
    """Contractions (`plan/schedule/products.py`): blocks without spills, the largest first."""

    plain: tuple[Block, ...] = (  # of factors of 16 bits that are read; two programs fit on a processor
        Block(128, 256, 64, 8, 3),
        Block(128, 128, 64, 8, 3),
        Block(128, 64, 64, 4, 4),
        Block(64, 64, 64, 4, 4),
        Block(32, 64, 64, 4, 4),
        Block(16, 64, 64, 4, 4),
    )
    tf32: tuple[Block, ...] = (
        Block(128, 128, 32, 8, 3),
        Block(64, 128, 32, 4, 4),
        Block(64, 64, 32, 4, 4),
        Block(16, 64, 32, 4, 4),
    )
    exact: tuple[Block, ...] = (  # f32 without losing a bit, and f64
        Block(128, 128, 16, 8, 3),
        Block(64, 64, 16, 4, 3),
        Block(32, 32, 32, 2, 2),
    )
    outer: tuple[Block, ...] = (
        Block(128, 128, 1, 8, 2),
        Block(64, 64, 1, 4, 2),
        Block(32, 64, 1, 4, 2),
        Block(64, 64, 4, 8, 2),  # whose threads share the terms
        Block(32, 32, 16, 8, 2),
    )
    of_a_thread: int = _thread(128)  # results that one thread accumulates
    terms_of_a_chunk: int = 512  # that one program adds at least, where there are too few results to share
    exactly: int = 4  # times fewer results of a chain, where all bits are multiplied
    warps_at_once: int = 16  # of a processor, each of which waits for several products in a step while others go on
    band: int = 8  # rows of blocks that programs walk down together, so that they share what they read
    library: float = 0.75  # of the products that a processor could add in a cycle, those that XLA's library does
    own: float = 0.65  # … and a kernel: 0.65 to 0.8 as measured on an H100
    own_made: float = 0.35  # … which makes a factor for each of its blocks: 0.3 to 0.45 there
    of_members: float = 2.0  # times the terms of the groups that rows are in: the rows of a block are in several
    own_windows: float = 0.4  # … of which one is read at windowed places: 0.3 of few channels
    odd: int = 4  # times as long, where rows begin at odd places
    launch_after_gap_us: float = 4.0  # of a launch, and of the break before it: 3.0 to 6.3 as measured on an H100

    @property
    def narrow(self) -> tuple[Block, ...]:
        """Of factors of 16 bits that are made for each block, and of 8 bits."""
        return tuple(replace(block, stages=4) for block in self.plain[1:])

    @property
    def walked(self) -> tuple[Block, ...]:
        """Of chains: rows, and columns of the products that they walk along, beside all that is made of them."""
        shapes = (128, 64, 8), (64, 64, 4), (64, 32, 4), (32, 32, 4), (16, 16, 2)
        return tuple(Block(rows, columns, 1, warps, 3) for rows, columns, warps in shapes)

    @property
    def lanes(self) -> tuple[Block, ...]:
        """Of rows whose other side is what is summed."""
        return Block(16, 1, 2 * LINE, 4, 2), Block(16, 1, LINE, 4, 2)


@dataclass(frozen=True)
class Loops:
    """Kernels whose loops carry something (`plan/schedule/schedule.py`, `tiled_products.py`, `emit/emitter.py`)."""

    kept_by_program: int = _values(34_400)  # values that all threads of a program can keep, beside what a step needs
    under_way: int = 700  # cycles until what is read from memory is there
    cached: int = 278  # … from the second-level cache
    steps_ahead: int = 8  # that it is read at most
    instructions_in_a_row: int = 1536  # … while a thread has no more than these
    graph_launch_us: float = 1.5  # of each launch of a loop that XLA runs in a CUDA graph: 1.1 to 1.8 on an H100
    launches_of_a_graph: int = 5  # of a step at least; each of fewer is one after a break
    asking: float = 10.0  # … until the host knows whether a `while` goes on
    loop_overhead_launches: int = 3  # launches for what each step reads of its place, writes there, and counts
    meeting_us: float = 1.2  # until all programs of a device have met: an estimate
    spread_pays: float = 0.7  # of XLA's time a loop takes at most that is spread: what it waits for was not measured
    spilled_where_programs_meet: int = 2048  # bytes that a thread puts aside and gets back in a step, as compiled
    longer: float = 1.2  # times as long, from which on a kernel or XLA is the slower one: estimates are no closer


@dataclass(frozen=True)
class Cost:
    """What a step takes (`plan/schedule/cost.py`, `emit/emitter.py`): cycles of an H100, rounded.

    Latencies, barriers, shared memory and the second-level cache are as measured (`bench/results/measured-figures.md`).
    """

    latency: int = 4  # cycles until the next instruction can use a result
    shuffle: int = 29  # … one that another lane of the warp made
    alone: float = 1.8  # cycles from one instruction of a warp that is alone to the next
    barrier: int = 12  # cycles of a barrier
    barrier_of_a_warp: int = 2  # … more for each warp that waits
    barriers_of_a_meeting: int = 2  # … and writings before them, where another warp made it, as Triton writes sums
    shared: int = 28  # cycles until what was written to shared memory can be used
    long: int = 4  # instructions of a function, from which on not all of them wait for each other …
    special: int = 17  # … and some for a special function
    programs_at_once: int = 32  # that a processor has room for, however few warps they have
    request: int = _lanes(4)  # cycles of a processor for a warp's worth of neighbours, read or written
    address: int = 2  # instructions for each request
    room_of_a_thread: int = _thread(215)  # numbers that a thread keeps through a loop, of its 255 registers
    kept_beside: int = _thread(64)  # … and needs besides, to compute with them
    spill: int = 10  # cycles for each that does not fit
    waiting: float = 0.05  # more steps, of one, for each doubling of the lanes that end together
    multiplied: int = 1024  # products of 16 bits that a processor adds up in a cycle
    cached: int = 36  # bytes that each processor reads of the second-level cache in a cycle, where all of them do
    cached_for_one: int = 122  # … and a few at most
    copies_of_state: int = 8  # values as large as a carried tile that a step needs at once
    copies_of_sums: int = 3  # … if a step does nothing but add to it
    far_above: int = 32  # times what operations need, to be talked of: more than waiting for others explains
    copies_of_operands: int = 2  # a matrix may be held by rows for one product and by columns for another one

    @property
    def read_by_a_thread(self) -> int:
        """Numbers of what it reads at once that a thread has room for."""
        return self.room_of_a_thread - self.kept_beside

    @property
    def meeting(self) -> int:
        """Cycles until a number that all lanes have made is there."""
        return self.barriers_of_a_meeting * (self.barrier + self.shared)


@dataclass(frozen=True)
class Writing:
    """What is an `if`, what a call, and which loops leave out steps (`emit/branches.py`, `calls.py`, `spans.py`)."""

    branch: int = 256  # cycles of a step, on the longer side of an `if`
    written_out: int = 10_000  # instructions: two seconds of compiling, and more than an instruction cache holds
    steps_to_spare_one: int = 16  # steps of which one is left out on average, at least, where a loop ends earlier
    all_steps: int = 4  # of a loop that takes all of them, also where it is known between which its terms are
    asked_at_once: int = 4096  # numbers, before a loop, of which any may tell that nothing is to be left out


@dataclass(frozen=True)
class Policy:
    """The numbers for one machine."""

    target: Target
    cuts: Cutting
    splits: Splitting
    groups: Grouping
    axes: Axes
    blocks: Blocks
    products: Products
    loops: Loops
    cost: Cost
    writing: Writing

    @property
    def block(self) -> int:
        """Elements of a block: as many for each lane of a program as are worth a thread."""
        return self.blocks.of_a_thread // 2 * self.target.lanes

    @property
    def carried(self) -> int:
        """Numbers of a loop's state that fit into one program: the rest of its registers is for what a step makes."""
        return int(self.target.registers * self.cuts.carried)

    @property
    def much(self) -> float:
        """Numbers of 4 bytes, more than memory moves in the time of a launch."""
        return self.loops.graph_launch_us / self.target.moving(4)

    def keeps_busy(self, programs: float, times: float = 1.0) -> bool:
        """Whether processors have so many programs each, or that part of them one, but for one in 33."""
        return 33 * programs >= 32 * times * self.target.processors


@functools.cache
def policy_of(target: Target) -> Policy:
    """The numbers for kernels that are to run on this machine."""
    return Policy(
        target,
        _for(Cutting, target),
        _for(Splitting, target),
        _for(Grouping, target),
        _for(Axes, target),
        _for(Blocks, target),
        _for(Products, target),
        _for(Loops, target),
        _for(Cost, target),
        _for(Writing, target),
    )


DEFAULT_POLICY = policy_of(DEFAULT_TARGET)
