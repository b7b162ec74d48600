"""Limits of the machines that kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpr2triton.errors import UserError

SECTOR, LINE = 8, 32  # numbers of 4 bytes that memory moves at least, and that a cache keeps together
ALIGNED = 16  # bytes that a thread reads at once, from a place that is a multiple of them
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)  # along each dimension of a grid
REGISTERS_AT_ONCE = 256  # that a warp is given: a multiple of it
SHARED_RESERVED = 1024  # bytes of shared memory more than it asks for that a program takes


@dataclass(frozen=True)
class Target:
    """One kind of device, as Triton names it."""

    name: str  # sm_90, gfx942
    backend: str  # cuda or hip
    arch: int | str  # 90, or "gfx942"
    warp_size: int
    shared_bytes: int  # the most shared memory that one program may use
    processors: int  # streaming multiprocessors, or compute units, of a typical device
    clock: float  # GHz that it holds under load
    memory_rate: float  # bytes of device memory in a nanosecond
    products: int  # of 16-bit floats that a processor's units for matrices add in a cycle
    registers: int = 65_536  # of one processor, 4 bytes each
    registers_of_a_thread: int = 255
    schedulers: int = 4  # of one processor
    cores: int = 128  # elements of f32 that one processor begins to compute in a cycle
    tf32: bool = True  # whether f32 is multiplied with fewer bits where nobody asks for more, as XLA does there
    warps: int = 64  # that a processor keeps at once, at most; of CUDA devices
    programs: int = 32  # … and programs

    @property
    def issue(self) -> int:
        """Cycles for which a scheduler is busy with one instruction of a warp."""
        return max(1, self.schedulers * self.warp_size // self.cores)

    @property
    def lanes(self) -> int:
        """Of a program that has a warp for each scheduler."""
        return self.schedulers * self.warp_size

    def at_once(self, registers: int, shared: int, num_warps: int) -> int:
        """How many programs a processor has room for, as CUDA counts them: each scheduler has registers of its own."""
        of_warp = -(-registers * self.warp_size // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        warps = self.schedulers * (self.registers // self.schedulers // of_warp) if of_warp else self.warps
        of_shared = (self.shared_bytes + SHARED_RESERVED) // (shared + SHARED_RESERVED)
        return min(warps // num_warps, self.warps // num_warps, of_shared, self.programs)

    def moving(self, nbytes: float) -> float:
        """Microseconds in which so many bytes pass through memory."""
        return nbytes / self.memory_rate / 1000

    def computing(self, operations: float) -> float:
        """Microseconds in which all cores do so many operations."""
        return operations / (self.cores * self.processors * self.clock * 1000)


_TARGETS = (
    Target("sm_80", "cuda", 80, 32, 166_912, 108, 1.41, 2039, 1024, cores=64),
    Target("sm_86", "cuda", 86, 32, 101_376, 82, 1.7, 936, 256, warps=48, programs=16),
    Target("sm_89", "cuda", 89, 32, 101_376, 128, 2.5, 1008, 256, warps=48, programs=24),
    Target("sm_90", "cuda", 90, 32, 232_448, 132, 1.755, 3000, 2048),
    Target("sm_100", "cuda", 100, 32, 232_448, 148, 1.85, 8000, 4096),
    Target("sm_120", "cuda", 120, 32, 101_376, 170, 2.4, 1792, 256, warps=48, programs=24),
    Target("gfx90a", "hip", "gfx90a", 64, 65_536, 104, 1.7, 1638, 512, 131_072, 512, cores=64, tf32=False),
    Target("gfx942", "hip", "gfx942", 64, 65_536, 304, 2.1, 5300, 1024, 131_072, 512, cores=64, tf32=False),
)

TARGETS = {target.name: target for target in _TARGETS}
DEFAULT_TARGET = TARGETS["sm_90"]


def target_named(name: str) -> Target:
    """The target of that name, or an error that lists the known ones."""
    if name not in TARGETS:
        raise UserError(f"unknown target {name!r}", hint="one of " + ", ".join(TARGETS))
    return TARGETS[name]
