"""A flag is what programs may all set, to one value, and none may read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import DEFAULT_TARGET, TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, examine
from jaxpr2triton.launch.machine.layout import Kind
from tests.launch.handmade import make_kernel

X = np.arange(40, dtype=np.float32)
LOAD = "i = tl.program_id(0) * 8 + tl.arange(0, 8)\nx = tl.load(x_ptr + i)\n"
SET = "tl.store(out_ptr, 1, mask=tl.max(x, 0) > {least})"


def flagging(text: str, dtype: str = "int32") -> Kernel:
    made = make_kernel("flagging", LOAD + text, [("x", (40,), "float32")], [("out", (), dtype)], (5, 1, 1))
    return replace(made, outputs=(replace(made.outputs[0], is_flag=True),))


def seen(kernel: Kernel) -> tuple[int, set[Kind]]:
    examined = examine(kernel, compiled_for_machine(kernel, DEFAULT_TARGET), [X])
    assert not examined.forgotten
    return int(examined.outputs[0]), {finding.kind for finding in examined.findings}


def test_the_simulator_has_no_other_machines() -> None:
    with pytest.raises(UserError) as caught:
        compiled_for_machine(flagging(SET.format(least=30)), TARGETS["gfx942"])
    assert str(caught.value) == "the PTX simulator runs PTX, and gfx942 has none\n  try  J2T_TARGET=sm_90"


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32", "int64"])
@pytest.mark.parametrize("least", [-1, 20, 38, 39])
def test_any_number_of_programs_set_it(least: int, dtype: str) -> None:
    assert seen(flagging(SET.format(least=least), dtype)) == (least < 39, set())


def test_another_value_is_a_race() -> None:
    _, kinds = seen(flagging("tl.store(out_ptr, tl.program_id(0))"))
    assert kinds == {Kind.RACE_OF_PROGRAMS}


def test_whoever_reads_it_races_with_those_who_set_it() -> None:
    _, kinds = seen(flagging("tl.store(out_ptr, 1, mask=tl.load(out_ptr) == 0)"))
    assert Kind.RACE_OF_PROGRAMS in kinds
