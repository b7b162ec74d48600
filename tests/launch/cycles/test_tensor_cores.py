"""Products of matrices in machine code, and how long tensor cores take for them."""

from __future__ import annotations

import pytest

from jaxpr2triton.launch.cycles.latencies import MACHINES, TENSOR_CORES
from jaxpr2triton.launch.cycles.tensor_cores import Product, groups_left, product_of
from tests.launch.cycles.written import code_of


def found(text: str) -> Product:
    product = product_of(code_of(text)[0])
    assert product is not None
    return product


def test_products_of_a_group() -> None:
    """64 by 64 results of 16 terms: the second factor is in shared memory, and the first where no registers hold it."""
    registers = found("HGMMA.64x64x16.F32.BF16 R56, R28, gdesc[UR4].tnspB, R56")
    assert registers == Product(64, 64, 16, 16, is_async=True, is_first_shared=False, ends_group=False)
    assert (registers.amount, registers.bytes_shared) == (65_536, 2048)
    shared = found("HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0")
    assert shared.is_first_shared and shared.ends_group and shared.bytes_shared == 4096


def test_what_waits_for_groups() -> None:
    wait, arrive, copies = code_of("WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.ARRIVE", "DEPBAR.LE SB0, 0x2")
    assert [groups_left(each) for each in (wait, arrive, copies)] == [1, None, None]


@pytest.mark.parametrize(
    ("text", "a100", "h100"),
    [
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", 8, 8),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", 8, 8),
        ("HMMA.1684.F32.TF32 R4, R8, R12, R4", 4, 4),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", 8, 8),
        ("DMMA.884 R4, R8, R12, R4", 16, 8),
        ("DMMA.8x8x4 R4, R8, R12, R4", 16, 8),
    ],
)
def test_cycles_of_one_warp(text: str, a100: float, h100: float) -> None:
    """An H100 has twice the tensor cores' rate, and half of it for 16 bits and less."""
    (each,) = code_of(text)
    assert [MACHINES[name].pipes(each) for name in ("sm_80", "sm_90")] == [((TENSOR_CORES, n),) for n in (a100, h100)]


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24", 128),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", 32),
        ("HGMMA.64x128x8.F32.TF32 R24, gdesc[UR4], R24", 64),
        ("IGMMA.64x128x32.S8.S8 R24, gdesc[UR4], R24", 64),
        ("QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24", 64),
        ("HGMMA.64x8x16.F32.BF16 R24, gdesc[UR4], R24", 18),  # 2,304 bytes of shared memory
        ("HGMMA.64x8x16.F32.BF16 R24, R28, gdesc[UR4], R24", 4),
    ],
)
def test_cycles_of_a_group(text: str, cycles: float) -> None:
    assert MACHINES["sm_90"].multiplying(found(text)) == cycles


@pytest.mark.parametrize(
    ("name", "gigahertz", "bf16", "f64"),
    [("sm_80", 1.41, 312, 19.5), ("sm_90", 1.83, 989.4, None), ("sm_90", 1.98, None, 67)],
)
def test_rates_are_those_of_data_sheets(name: str, gigahertz: float, bf16: float | None, f64: float | None) -> None:
    """TFLOP/s, at the clocks that they are said for."""
    machine = MACHINES[name]
    scale = 2 * gigahertz * machine.target.processors / 1000
    assert bf16 is None or scale * machine.target.products == pytest.approx(bf16, rel=0.01)
    assert f64 is None or scale * machine.f64_products == pytest.approx(f64, rel=0.01)


@pytest.mark.parametrize("text", ["HFMA2.MMA R0, -RZ, RZ, 1, 0", "FFMA R0, R1, R2, R0", "WARPGROUP.ARRIVE"])
def test_all_else_multiplies_no_matrices(text: str) -> None:
    assert product_of(code_of(text)[0]) is None
