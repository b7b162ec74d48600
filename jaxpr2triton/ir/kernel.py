"""What the stages after scheduling hand on: buffers, axes with roles, and the finished kernel."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

import numpy as np

_LINE = re.compile(r"^\s*# ([^:\s]+:\d+): ", re.MULTILINE)  # # model.py:12: y = f(x)


class Role(Enum):
    """What an iteration axis becomes in Triton."""

    GRID = "grid"  # tl.program_id times a block: nothing in the kernel mixes elements along it
    LANE = "lane"  # a whole dimension of the tile, padded to a power of two and masked
    LOOP = "loop"  # a `for` inside the kernel, a block of elements at a time
    UNROLL = "unroll"  # nothing: one variable for each index

    def __str__(self) -> str:
        return self.value

    @property
    def is_parallel(self) -> bool:
        """Whether programs share its blocks among them."""
        return _traversal_of(self).parallel

    @property
    def is_sequential(self) -> bool:
        """Whether one program takes its blocks one after the other."""
        return _traversal_of(self).sequential

    @property
    def is_vectorized(self) -> bool:
        """Whether one program holds all of it at once, as a dimension of the tile."""
        return _traversal_of(self).vectorized

    @property
    def is_unrolled(self) -> bool:
        """Whether values have a variable for each of its indices, and no dimension of the tile for it."""
        return _traversal_of(self).unrolled


@dataclass(frozen=True)
class _Traversal:
    """How an axis is walked through, in the words of the schedules of loop nests."""

    parallel: bool
    sequential: bool
    vectorized: bool
    unrolled: bool


@functools.cache
def _traversal_of(role: Role) -> _Traversal:
    """All that others ask of a role: a new one says all of it here."""
    match role:
        case Role.GRID:
            return _Traversal(parallel=True, sequential=False, vectorized=False, unrolled=False)
        case Role.LANE:
            return _Traversal(parallel=False, sequential=False, vectorized=True, unrolled=False)
        case Role.LOOP:
            return _Traversal(parallel=False, sequential=True, vectorized=False, unrolled=False)
        case Role.UNROLL:
            return _Traversal(parallel=False, sequential=False, vectorized=False, unrolled=True)
    assert_never(role)


@dataclass(frozen=True)
class KernelAxis:
    """An axis of a finished kernel; `block` elements are held at once (padded to a power of two)."""

    name: str
    size: int
    role: Role
    block: int
    unbounded: bool = False  # the steps of a `while`: the size says nothing
    seldom: bool = False  # … that hardly ever has any

    def __str__(self) -> str:
        match self.role:
            case Role.GRID:
                return f"{self.name}: grid {self.size}" + (f" by {self.block}" if self.block > 1 else "")
            case Role.LANE:
                return f"{self.name}: lane {self.size} of {self.block}"
            case Role.LOOP if self.unbounded:
                return f"{self.name}: while"
            case Role.LOOP:
                return f"{self.name}: loop {self.size} by {self.block}"
            case Role.UNROLL:
                return f"{self.name}: unroll {self.size}"


@dataclass(frozen=True)
class Buffer:
    """One pointer parameter of a kernel: a dense row-major array."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    is_flag: bool = False  # it begins as zero, and programs do nothing but set it to one
    is_exchanged: bool = False  # programs read in it, behind a meeting, what others have written
    is_met: bool = False  # it begins as zero, and counts who has come to a meeting

    @property
    def parameter(self) -> str:
        return f"{self.name}_ptr"

    @property
    def begins_as_zero(self) -> bool:
        return self.is_flag or self.is_met

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class Estimate:
    """What a step of a kernel's loops is expected to take: a model, for comparing schedules of one kernel."""

    instructions: int  # of each thread
    barriers: int  # of each program
    kept: int  # numbers that each thread keeps through the loops
    programs: int
    processors: int  # that were counted on
    cycles: int


@dataclass(frozen=True)
class Steps:
    """What the loops of a kernel are expected to take, to be compared with what XLA takes."""

    count: int  # of those of the innermost loop, as if each `while` had a few
    known: bool  # whether there is no `while`
    cycles: int  # of each

    def microseconds(self, clock: float) -> float:
        """Of all of them, at so many GHz."""
        return self.count * self.cycles / (1000 * clock)


@dataclass(frozen=True)
class Choice:
    """Why a kernel with loops has the schedule it has: what that takes, and what the next best one would."""

    chosen: Estimate
    other: str = ""  # what is different about the next best one; empty if there was none
    of_other: Estimate | None = None
    compiled: tuple[float, ...] = ()  # cycles of it and of others, the least first, if that is how it was chosen


@dataclass(frozen=True)
class Kernel:
    """A finished kernel.

    `source` is an importable Python module with one `@triton.jit` function called `name`, whose parameters are
    `<buffer>_ptr` for each input, each output, and each buffer of its own, in this order; there are no others.
    """

    name: str
    source: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    axes: tuple[KernelAxis, ...]  # what each dimension of the computation became
    grid: tuple[int, int, int]  # programs
    num_warps: int  # of each program
    num_stages: int  # as Triton takes it
    bytes_read: int  # by all programs together, what several of them want counted once
    bytes_written: int
    flops: int  # of all programs
    choice: Choice | None = None  # of kernels with loops
    steps: Steps | None = None  # … and what theirs take
    kept: tuple[Buffer, ...] = ()  # buffers of its own, which it writes and reads again
    bytes_asked: int = 0  # that programs load, what several of them want counted for each
    meetings: int = 0  # of all programs, each time that they come to the end of a loop's body

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's lines that it computes, each once, that of its last result at the end: model.py:12."""
        return tuple(reversed(dict.fromkeys(reversed(_LINE.findall(self.source)))))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return *self.inputs, *self.outputs, *self.kept

    @property
    def meets(self) -> bool:
        """Whether its programs wait for each other: all of them have to run at once."""
        return any(buffer.is_met for buffer in self.kept)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"  # jaxprs print their parameters


@dataclass(frozen=True)
class Apart:
    """Why a kernel and the ones before it are several."""

    kernel: str
    others: tuple[str, ...]  # the kernels that it waits for, or the one that it stands beside
    waits: bool
    why: str  # a sum over the whole array is needed first
    where: str = ""  # the user's line that makes what is waited for

    def __str__(self) -> str:
        return self.why  # jaxprs print their parameters


@dataclass(frozen=True)
class Launches:
    """How often something is launched for a loop that XLA runs: an estimate, from the equations of a step."""

    a_step: int
    steps: int | None  # None: the device finds out

    @property
    def in_all(self) -> int | None:
        return None if self.steps is None else self.steps * self.a_step


@dataclass(frozen=True)
class Alone:
    """What XLA would launch for a whole program without any kernel of ours: an estimate, from its equations."""

    beside_loops: int
    loops: tuple[tuple[str, Launches], ...] = ()  # the primitive of each loop, and what it is launched for

    @property
    def in_all(self) -> int | None:
        """None where the device finds out how long a loop is."""
        counts = [launches.in_all for _, launches in self.loops]
        known = [each for each in counts if each is not None]
        return self.beside_loops + sum(known) if len(known) == len(counts) else None


@dataclass(frozen=True)
class Obstacle:
    """An equation in the body of a loop that keeps the loop out of kernels."""

    primitive: str  # sort
    where: str  # model.py:12 (step); empty if JAX remembers no line
    why: str  # there is no rule for the primitive `sort`
    takes: str = ""  # what it would take to have it in a kernel, where that is not plain from the reason


@dataclass(frozen=True)
class StepOfLoop:
    """What runs in each step of a loop that stays with XLA."""

    kernels: tuple[Kernel, ...]
    left_to_xla: tuple[str, ...]  # primitives


@dataclass(frozen=True)
class Divided:
    """Axes of inputs and outputs that several devices split together, or not at all."""

    places: tuple[str, ...]  # x[0], out[0]
    meets: bool  # devices put together what each of them made along it
    why_whole: str  # `sort` needs it whole; empty if it may be split


@dataclass(frozen=True)
class Leftover:
    """An equation that stays with XLA, and why."""

    primitive: str  # sort
    equation: str  # b:f32[8] = sort[num_keys=1] a
    where: str  # model.py:12 (step) via library.py:50; empty if JAX remembers no line
    why: str  # there is no rule for the primitive `sort`
    takes: str = ""  # what it would take to have it in a kernel, where that is not plain from the reason
    launches: Launches | None = None  # of a loop
    obstacles: tuple[Obstacle, ...] = field(default=(), repr=False)  # in the body of a loop, all there are
    step: StepOfLoop | None = field(default=None, repr=False)  # of a loop, where it is made of kernels
    is_fused: bool = field(default=False, repr=False)  # a function with kernels of its own
    nbytes: int = 0  # of what it reads and writes, each once
    microseconds: float | None = None  # an estimate; None where the trip count of a loop is data-dependent


@dataclass(frozen=True)
class Residual:
    """A value that the forward program keeps for the backward one."""

    name: str
    source: str  # input, output or new: what the forward program reads, returns anyway, or writes for this alone
    shape: tuple[int, ...]
    dtype: np.dtype
    where: str  # the line of the user's program that computes it; empty for an input

    @property
    def nbytes(self) -> int:
        """The memory that it takes from the forward program's end to the backward one's."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
