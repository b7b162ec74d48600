"""The machines that kernels are compiled for: their numbers are those of data sheets, or a little less."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import DEFAULT_TARGET, SHARED_RESERVED, TARGETS, Target, target_named
from jaxpr2triton.launch.cycles.latencies import MACHINES


@dataclass(frozen=True)
class Sheet:
    """What the makers publish. Rates are the highest; a target has what a device holds, if that was measured."""

    device: str
    processors: int
    lanes: int  # of f32, of the whole device: "CUDA cores", "stream processors"
    boost: float  # GHz
    memory_rate: float  # GB/s
    tensor_rate: float  # TFLOP/s of 16-bit floats that are added up in f32, without sparsity
    shared: int  # KB that one program may use, of the CUDA Programming Guide's table of compute capabilities
    registers: int  # KB of one processor
    warps: int = 0  # of one processor at once, of the same table
    programs: int = 0


# From "A100 80GB", "GA102" and "Ada" white papers, "H100 SXM", "HGX B200", the "RTX Blackwell" white paper, and AMD's
# pages of MI250 (half of it: a card is two devices) and MI300X.
SHEETS = {
    "sm_80": Sheet("A100 SXM 80 GB", 108, 6_912, 1.41, 2_039, 312, 163, 256, 64, 32),
    "sm_86": Sheet("GeForce RTX 3090", 82, 10_496, 1.695, 936, 71, 99, 256, 48, 16),
    "sm_89": Sheet("GeForce RTX 4090", 128, 16_384, 2.52, 1_008, 165.2, 99, 256, 48, 24),
    "sm_90": Sheet("H100 SXM", 132, 16_896, 1.98, 3_350, 989.4, 227, 256, 64, 32),
    "sm_100": Sheet("B200", 148, 18_944, 1.98, 8_000, 2_250, 227, 256, 64, 32),
    "sm_120": Sheet("GeForce RTX 5090", 170, 21_760, 2.407, 1_792, 209.5, 99, 256, 48, 24),
    "gfx90a": Sheet("Instinct MI250, one of two", 104, 6_656, 1.7, 1_638.4, 181.05, 64, 512),
    "gfx942": Sheet("Instinct MI300X", 304, 19_456, 2.1, 5_300, 1_307.4, 64, 512),
}
HELD = 0.85  # of what is published a device holds at least so much


def is_held(number: float, published: float) -> bool:
    return HELD * published <= number <= 1.01 * published


def test_every_target_has_a_data_sheet() -> None:
    assert SHEETS.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_as_their_data_sheets_say(name: str) -> None:
    target, sheet = TARGETS[name], SHEETS[name]
    assert target.processors == sheet.processors
    assert target.cores * target.processors == sheet.lanes
    assert target.shared_bytes == sheet.shared * 1024
    assert 4 * target.registers == sheet.registers * 1024
    assert is_held(target.clock, sheet.boost)
    assert is_held(target.memory_rate, sheet.memory_rate)
    rate = 2 * target.products * target.processors * target.clock / 1000
    assert is_held(rate, sheet.tensor_rate)
    assert target.schedulers == 4
    assert target.registers_of_a_thread == (255 if target.backend == "cuda" else 512)
    assert target.tf32 == (target.backend == "cuda")
    assert target.backend != "cuda" or (target.warps, target.programs) == (sheet.warps, sheet.programs)


@dataclass(frozen=True)
class Processor:
    """What the white papers of two architectures say of one processor."""

    first_level: int  # KB, with shared memory
    shared: int  # KB
    f64: float  # TFLOP/s of the device, without tensor cores
    f64_tensor: float  # … and with them
    cache_rate: float  # bytes of the second-level cache in a cycle, for reading


PROCESSORS = {
    "sm_80": Processor(192, 164, 9.7, 19.5, 5_120),
    "sm_90": Processor(256, 228, 33.5, 66.9, 5_120),
}


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_modelled_is_as_published(name: str) -> None:
    machine, processor, boost = MACHINES[name], PROCESSORS[name], SHEETS[name].boost
    target = machine.target
    assert (machine.first_level, machine.lanes) == (processor.first_level * 1024, 32)
    assert target.shared_bytes + SHARED_RESERVED == processor.shared * 1024
    assert machine.float_cycles == target.issue
    per_cycle = target.processors * boost / 1000
    lanes = target.schedulers * machine.lanes / machine.f64_cycles
    assert 2 * lanes * per_cycle == pytest.approx(processor.f64, rel=0.02)
    assert 2 * machine.f64_products * per_cycle == pytest.approx(processor.f64_tensor, rel=0.02)
    assert 0.7 * processor.cache_rate <= machine.cache_rate <= processor.cache_rate
    assert machine.cache_rate / target.processors <= machine.cache_rate_of_one <= 128
    assert 30 <= machine.load_again < machine.load < machine.load_from_memory <= 1_000
    assert 0.5 <= machine.of_one_warp <= 1


@pytest.mark.parametrize(
    ("registers", "shared", "num_warps", "programs"),
    [
        (32, 0, 4, 16),  # as many warps as there are
        (16, 0, 1, 32),  # … and programs
        (128, 0, 4, 4),
        (168, 0, 4, 3),
        (200, 0, 1, 8),  # ten by all registers together, but two by those of each scheduler
        (255, 0, 16, 0),
        (32, 100_000, 4, 2),
        (32, 232_448, 4, 1),
    ],
)
def test_programs_that_a_processor_has_room_for(registers: int, shared: int, num_warps: int, programs: int) -> None:
    """As CUDA's `cuda_occupancy.h` counts them on an H100."""
    assert DEFAULT_TARGET.at_once(registers, shared, num_warps) == programs


@pytest.mark.parametrize("name", TARGETS)
def test_names_and_backends_agree(name: str) -> None:
    target = target_named(name)
    assert target.name == name
    match target:
        case Target(backend="cuda", arch=int(arch), warp_size=32):
            assert name == f"sm_{arch}"
        case Target(backend="hip", arch=str(arch), warp_size=64):
            assert name == arch
        case _:
            pytest.fail(f"{target} is neither a CUDA nor a HIP target")


def test_the_targets_that_are_promised() -> None:
    assert {"sm_80", "sm_90", "sm_100", "gfx942"} <= set(TARGETS)
    assert target_named("sm_90") is DEFAULT_TARGET
    assert DEFAULT_TARGET.shared_bytes == 232_448


def test_an_unknown_target_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        target_named("sm_91")
    assert str(caught.value) == f"unknown target 'sm_91'\n  try  one of {', '.join(TARGETS)}"
