"""What lanes, warps and programs compute."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxpr2triton.launch.machine.ptx import NotUnderstood
from jaxpr2triton.launch.machine.run import At, Block, Program, run
from tests.machine.handwritten import kernel, program_of, see
from tests.machine.value_cases import VALUES, Value

TABLE = ".global .align 16 .b32 table[4] = {5, -6, 7, 8};\n"


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_values(value: Value) -> None:
    program = program_of(kernel(value.body, TABLE), value.launch)
    seen = see(program, value.launch)
    assert seen.says == []
    found = seen.out.view(value.expected.dtype)[: value.expected.size]
    np.testing.assert_array_equal(found, value.expected)
    lines = {each.line: place for place, each in enumerate(program.encoded.module.body) if each.opcode}
    assert {line: seen.ran.counts[lines[line], 0] for line in value.warps or {}} == (value.warps or {})


STRUCTURE = """
.version 8.0
.target sm_80
.address_size 64
.func (.param .align 8 .b8 both[16]) halves(.param .b64 of)
;
.func (.param .align 8 .b8 both[16]) halves(.param .b64 of)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<2>;
  ld.param.b64 %rd1, [of];
  shr.u64 %rd2, %rd1, 32;
  cvt.u32.u64 %r1, %rd1;
  st.param.b64 [both], %rd2;
  st.param.b32 [both+8], %r1;
  ret;
}
.visible .entry kernel(.param .u64 .ptr .global out)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  ld.param.b64 %rd1, [out];
  mov.b64 %rd2, 0x0000000700000009;
  { // callseq
  .param .b64 param0;
  .param .align 8 .b8 retval0[16];
  st.param.b64 [param0], %rd2;
  call.uni (retval0), halves, (param0);
  ld.param.b64 %rd3, [retval0];
  ld.param.b32 %r1, [retval0+8];
  }
  cvt.u32.u64 %r2, %rd3;
  st.global.b32 [%rd1], %r1;
  st.global.b32 [%rd1+4], %r2;
  ret;
}
"""


def test_a_function_that_gives_a_structure() -> None:
    out = np.zeros(2, np.uint32)
    ran = run(Program.of(STRUCTURE), [Block("out", out, granule=4)], [At(0)], (1, 1, 1), (1, 1, 1))
    assert (out.tolist(), ran.findings) == ([9, 7], ())


@pytest.mark.parametrize(("size", "place"), [(16, "+8"), (8, "")])
def test_parts_of_a_structure_that_are_handed_over_together(size: int, place: str) -> None:
    """Also if it is as long as a register."""
    ptx = STRUCTURE.replace("both[16]", f"both[{size}]").replace("retval0[16]", f"retval0[{size}]")
    ptx = ptx.replace("  st.param.b64 [both], %rd2;\n", "").replace("ld.param.b32 %r1, [retval0+8];", "")
    both = f"  cvt.u32.u64 %r0, %rd2;\n  st.param.v2.b32 [both{place}], {{%r0, %r1}};"
    ptx = ptx.replace("  st.param.b32 [both+8], %r1;", both)
    ptx = ptx.replace("ld.param.b64 %rd3, [retval0];", f"ld.param.v2.b32 {{%r1, %r2}}, [retval0{place}];")
    ptx = ptx.replace("  cvt.u32.u64 %r2, %rd3;\n", "")
    out = np.zeros(2, np.uint32)
    ran = run(Program.of(ptx), [Block("out", out, granule=4)], [At(0)], (1, 1, 1), (1, 1, 1))
    assert (out.tolist(), ran.findings) == ([7, 9], ())


def test_parts_of_a_structure_that_are_read_otherwise_than_written_are_not_understood() -> None:
    ptx = STRUCTURE.replace("ld.param.b32 %r1, [retval0+8];", "ld.param.b32 %r1, [retval0+4];")
    with pytest.raises(NotUnderstood, match="overlap"):
        Program.of(ptx)


ROUNDS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global out)
{
  .reg .pred %p<3>;
  .reg .b64 %rd<4>;
  .reg .b32 %r<8>;
  ld.param.b64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.b32 %r2, 0;
  mov.b32 %r3, 0;
  and.b32 %r5, %r1, 1;
  setp.eq.s32 %p1, %r5, 0;
LOOP:
  add.s32 %r3, %r3, 1;
  @%p1 add.s32 %r2, %r2, %r1;
  @!%p1 sub.s32 %r2, %r2, %r3;
  setp.lt.s32 %p2, %r3, 30000;
  @%p2 bra LOOP;
  st.global.b32 [%rd3], %r2;
  ret;
}
"""


def test_several_threads_run_machines_at_once() -> None:
    program, lanes = Program.of(ROUNDS), np.arange(32)
    expected = np.where(lanes % 2 == 0, 30000 * lanes, -30000 * 30001 // 2)

    def once(_: int) -> list[int]:
        out = np.zeros(32, np.int32)
        assert run(program, [Block("out", out, granule=4)], [At(0)], (1, 1, 1), (32, 1, 1)).findings == ()
        return out.tolist()

    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected.tolist() for found in pool.map(once, range(32)))
