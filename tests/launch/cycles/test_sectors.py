"""What the lanes of a warp move together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.launch.cycles.sass import Instruction
from jaxpr2triton.launch.cycles.sectors import moved_by

LANE = "S2R R0, SR_TID.X"
BASE = "LDC.64 R6, c[0x0][0x210]"


def moved(*lines: str) -> int | None:
    """Of the last one."""
    code = [Instruction(16 * n, "", *line.split(" ", 1)) for n, line in enumerate((LANE, BASE, *lines))]
    return moved_by(code, 32).get(code[-1].address)


LOAD = "LDG.E R8, desc[UR4][R2.64+0x80]"


@pytest.mark.parametrize(
    ("lines", "nbytes"),
    [
        (["IMAD.WIDE R2, R0, 0x4, R6", LOAD], 128),
        (["IMAD.WIDE R2, R0, 0x10, R6", LOAD], 128),  # no more than lanes there are
        (["SHF.R.U32.HI R4, RZ, 0x4, R0", "IMAD.WIDE R2, R4, 0x4, R6", LOAD], 32),
        (["LOP3.LUT R4, R0, 0xf, RZ, 0xc0, !PT", "IMAD.WIDE.U32 R2, R4, 0x4, R6", LOAD], 64),
        (["SHF.R.S32.HI R4, RZ, 0x1f, R0", "LEA.HI R5, R4, R0, RZ, 0x3", "SHF.R.S32.HI R5, RZ, 0x3, R5"]
         + ["LEA R2, P0, R5, R6, 0x5", LOAD], 128),
        (["MOV R2, R6", "ISETP.NE.AND P0, PT, R2, 0x7, PT", LOAD], 32),
        (["HFMA2.MMA R4, -RZ, RZ, 0, 6.103515625e-05", "IADD3 R2, P0, R6, R4, RZ", LOAD], 32),
        (["MOV R2, R6", "LDG.E.128 R8, desc[UR4][R2.64+0x8]"], 32),
        (["MOV R2, R6", "STG.E.128 desc[UR4][R2.64+0x18], R8"], 64),
        (["IMAD.HI.U32 R4, R0, -0x55555555, RZ", "IMAD.WIDE R2, R4, 0x4, R6", LOAD], 96),
        (["USEL UR4, UR8, UR9, UP0", "IADD3 R2, R6, UR4, R0", LOAD], 64),
        (["SGXT.U32 R4, R0, 0x2", "IADD3 R2, R6, R4, RZ", LOAD], 32),
    ],
)  # fmt: skip
def test_lanes_at_one_place_share_what_is_moved(lines: list[str], nbytes: int) -> None:
    assert moved(*lines) == nbytes


@pytest.mark.parametrize(
    "line", ["LDG.E R2, desc[UR4][R6.64]", "SHFL.BFLY PT, R2, R0, 0x1, 0x1f", "IADD3.X R2, R6, RZ, RZ, P0, !PT"]
)
def test_what_is_not_known_is_as_much_as_there_are_lanes(line: str) -> None:
    assert moved(line, LOAD) is None


def test_a_load_for_all_lanes_does_not_keep_the_cache_busy() -> None:
    def summed(xs: Any, rows: Any) -> Any:
        return lax.scan(lambda c, x: (0.5 * c + x[:, None] * rows, None), jnp.zeros_like(rows), xs)[0]

    xs, rows = jax.ShapeDtypeStruct((64, 4096), np.float32), jax.ShapeDtypeStruct((4096, 64), np.float32)
    (kernel,) = j2t.transpile(summed, xs, rows, for_target="sm_90").kernels
    cycles = cycles_of(kernel, DEFAULT_TARGET)
    assert all(stall.what != "bytes (L2)" for stall in cycles.shares)
