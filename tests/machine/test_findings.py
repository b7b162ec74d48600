"""What the machine finds in short texts, and what it does not find in the same ones mended."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from jaxpr2triton.launch.machine.findings import WORDS
from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.launch.machine.ptx import NotUnderstood
from jaxpr2triton.launch.machine.run import Program, Settings
from tests.machine.finding_cases import CASES, Case
from tests.machine.handwritten import Launch, Seen, kernel, program_of, see

SAID = {
    Kind.OUT_OF_BOUNDS: "access outside of a buffer",
    Kind.MISALIGNED: "misaligned access",
    Kind.INPUT_WRITTEN: "store into an input",
    Kind.RACE_OF_WARPS: "race between warps",
    Kind.RACE_IN_WARP: "race within a warp",
    Kind.RACE_OF_PROGRAMS: "race between programs",
    Kind.TWO_VALUES: "one store, two values",
    Kind.UNDEFINED_ADDRESS: "address that nothing defines",
    Kind.UNDEFINED_CHOICE: "choice by a value that nothing defines",
    Kind.UNDEFINED_STORED: "store of a value that nothing defines",
    Kind.DIVERGENT_BARRIER: "barrier or shuffle that not all lanes reach",
    Kind.BARRIER_NOT_REACHED: "barrier that a warp which has ended does not reach",
    Kind.STALE_LOAD: "load through the cache of constants from a buffer that the kernel writes",
    Kind.NO_END: "no end within the budget",
    Kind.TRAPPED: "trap",
    Kind.ABSENT_LANE: "shuffle from a lane that is not there",
    Kind.COPIES_CHOOSE: "copies of one value that differ between lanes decide something",
    Kind.COPIES_ADDRESS: "copies of one value that differ between lanes are an address",
    Kind.COPIES_STORED: "copies of one value that differ between lanes are stored to one place",
    Kind.LANES_DISAGREE: "lanes of a warp that leave a loop of the source at different steps",
    Kind.WARPS_DISAGREE: "warps of a program that leave a loop of the source at different steps",
    Kind.REGISTER_UNDER_WAY: "use of a register that a product which is not awaited has",
    Kind.REGISTER_NOT_FENCED: "product of registers that were written with no wgmma.fence since",
    Kind.MEMORY_UNDER_WAY: "store to shared memory that a product which is not awaited reads",
    Kind.MEMORY_NOT_FENCED: "product of shared memory that was stored to with no fence.proxy.async since",
    Kind.NEVER_COMMITTED: "end with products that no group was made of",
    Kind.WARPGROUP_DISAGREES: "product that is not the same in all lanes of four warps",
    Kind.ASSERTION_FAILS: "assertion that fails",
    Kind.DEADLOCK: "programs that wait for each other, and none goes on",
}
ORDERS = [Settings(seed=seed, quantum=quantum, budget=10**6) for seed in (2, 3, 5) for quantum in (0, 1)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_finding_and_its_mend(case: Case) -> None:
    assert see(case.wrong, case.launch).says == list(case.says)
    assert see(case.right, case.launch).says == []


def test_every_kind_of_finding_has_a_case() -> None:
    assert {say.split()[0] for case in CASES for say in case.says} == {kind.name for kind in Kind}


def test_every_kind_of_finding_has_its_words() -> None:
    assert WORDS == SAID


def _sorts(seen: Seen) -> set[tuple[Kind, frozenset[int]]]:
    return {(f.kind, frozenset((f.line, f.other_line))) for f in seen.ran.findings}


# which value a race gives, and whether it is one that is defined, depends on the order; so does which store is the last
UNORDERED = ("a copy that another warp reads", "two programs store to one place")


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in UNORDERED], ids=lambda case: case.name)
def test_findings_do_not_depend_on_the_order_of_warps(case: Case) -> None:
    wrong, right = program_of(case.wrong, case.launch), program_of(case.right, case.launch)
    found, out = _sorts(see(wrong, case.launch)), see(right, case.launch).out
    for settings in ORDERS:
        its = case.launch.settings
        settings = dataclasses.replace(settings, budget=its.budget, resident=its.resident)
        launch = dataclasses.replace(case.launch, settings=settings)
        assert _sorts(see(wrong, launch)) == found
        mended = see(right, launch)
        assert mended.says == []
        assert mended.out.tobytes() == out.tobytes()


def test_many_findings_of_one_kind_leave_room_for_others() -> None:
    many = [f"st.shared.b32 [%base+{4 * k}], %tid;" for k in range(100)]
    seen = see("\n".join([*many, "trap;"]))
    assert seen.kinds == {Kind.TWO_VALUES, Kind.TRAPPED}
    assert len(seen.says) == 16 + 1


def test_many_findings_of_many_kinds() -> None:
    """More than there is room for, though none of them is what all the room was for."""
    each = [
        "st.shared.b32 [%base], %tid;",
        "st.shared.b16 [%sh+1], 1;",
        "st.global.b32 [%its], 1;",
        "ld.global.b32 %r1, [%in+900];",
        "st.global.b32 [%mine], %r9;",
    ]
    seen = see("\n".join(each * 20))
    assert len(seen.kinds) >= 5
    assert len(seen.says) == 64


def test_without_checks_nothing_is_found() -> None:
    for case in CASES:
        kinds = {say.split()[0] for say in case.says}
        settings = dataclasses.replace(case.launch.settings, check=False)
        without = dataclasses.replace(case.launch, settings=settings)
        found = {kind.name for kind in see(case.wrong, without).kinds}
        assert found == kinds & _ALWAYS, case.name
        checked, unchecked = see(case.right, case.launch), see(case.right, without)
        assert checked.out.tobytes() == unchecked.out.tobytes()


_ALWAYS = {
    *("OUT_OF_BOUNDS", "MISALIGNED", "INPUT_WRITTEN", "DIVERGENT_BARRIER", "BARRIER_NOT_REACHED", "NO_END", "TRAPPED"),
    *("ABSENT_LANE", "ASSERTION_FAILS", "DEADLOCK"),
}


# words and lines


def test_a_finding_in_words() -> None:
    program = Program.of(kernel("st.shared.b32 [%base], %tid;"), users={1: "model.py:7"})
    (finding,) = see(program).ran.findings
    assert str(finding) == (
        "line 1 (model.py:7): one store, two values: `st.shared.b32 [%base], %tid` against line 1 `st.shared.b32"
        " [%base], %tid`; shared memory, byte 0, program 0, warp 0, lane 1, the other: warp 0, lane 0; 31 times"
    )


SAYS = """.global .align 1 .b8 says[12] = {116, 119, 111, 32, 119, 111, 114, 100, 115, 0, 120, 120};
mov.b64 %q1, says;
.param .b64 message;
st.param.b64 [message], %q1;
call.uni __assertfail, (message);
trap;"""


def test_an_assertion_in_words() -> None:
    """It ends all programs, and those that come after it; the message ends at a zero."""
    (finding,) = see(kernel(SAYS), Launch(grid=(3, 1, 1))).ran.findings
    assert str(finding) == (
        "line 5: assertion that fails (two words): `call.uni __assertfail, (message)`; program 0, warp 0, lane 0; once"
    )


WAITING_FOR = """LOOK:
ld.acquire.gpu.global.b32 %r1, [%out];
setp.eq.u32 %p1, %r1, 0;
@%p1 bra LOOK;"""


def test_a_deadlock_in_words() -> None:
    launch = Launch(grid=(3, 1, 1), zeros=True, settings=Settings(resident=2))
    (finding,) = see(WAITING_FOR, launch).ran.findings
    assert re.sub("program .", "program 0", str(finding)) == (
        "line 2: programs that wait for each other, and none goes on: `ld.acquire.gpu.global.b32 %r1, [%out]`; program"
        " 0, warp 0, lane 0; 2 times"
    )


def test_a_deadlock_is_known_after_as_many_rounds_as_wanted() -> None:
    rounds = {}
    for patience in (10, 20, 40):
        settings = Settings(resident=2, patience=patience)
        rounds[patience] = see(WAITING_FOR, Launch(grid=(2, 1, 1), zeros=True, settings=settings)).ran.executed
    assert rounds[40] - rounds[20] == 2 * (rounds[20] - rounds[10])


def test_who_waits_alone_is_cut_off_as_ever() -> None:
    settings = Settings(budget=1000)
    assert see(WAITING_FOR, Launch(zeros=True, settings=settings)).kinds == {Kind.NO_END}


def test_programs_that_are_resident_are_cut_off_too() -> None:
    settings = Settings(budget=1000, resident=2, patience=10**6)
    seen = see(WAITING_FOR, Launch(grid=(3, 1, 1), zeros=True, settings=settings))
    assert seen.kinds == {Kind.NO_END}
    assert 1000 <= seen.ran.executed < 1100


@pytest.mark.parametrize("resident", range(1, 9))
def test_all_programs_run_however_many_are_resident(resident: int) -> None:
    place = "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %q1, %r1, 128;\nadd.s64 %mine, %mine, %q1;\n"
    seen = see(place + "st.global.b32 [%mine], %r1;", Launch(grid=(7, 1, 1), settings=Settings(resident=resident)))
    assert seen.says == []
    assert seen.words.reshape(8, 32)[:7].tolist() == [[program] * 32 for program in range(7)]


LOCATIONS = """
.file 1 "/tmp/<triton kernels 1>/k.py"
.file 2 "standard.py"
"""
INLINED = """
.loc 1 5 0
mov.b32 %r1, 0;
.loc 2 70 0, function_name $L__info, inlined_at 1 8 3
st.shared.b32 [%base], %tid;
.loc 2 71 0, function_name $L__info, inlined_at 2 70 0
st.shared.b32 [%base+4], %tid;
.loc 2 99 0
st.shared.b32 [%base+8], %tid;
.loc 1 9 0
st.shared.b32 [%base+12], %tid;
"""


def test_what_was_inlined_has_the_line_of_the_kernel() -> None:
    text = kernel("HERE").replace(".loc 1 1 0\nHERE", INLINED).replace('.file 1 "kernel.py"', LOCATIONS)
    assert [finding.line for finding in see(text).ran.findings] == [8, 8, 8, 9]


# which programs, how long


def test_an_empty_range_of_programs_runs_none() -> None:
    seen = see("st.global.b32 [%mine], %tid;", Launch(settings=Settings(programs=range(0))))
    assert seen.ran.executed == 0
    assert seen.ran.unwritten == {"out": 1024}


def test_what_nothing_wrote_is_counted() -> None:
    seen = see("setp.lt.u32 %p1, %tid, 5;\n@%p1 st.global.b32 [%mine], %tid;", Launch(granule=1))
    assert seen.ran.unwritten == {"out": 1024 - 20}


WAITING = """setp.lt.u32 %p2, %tid, 32;
@%p2 bra WAIT;
L:
add.s32 %r1, %tid, 1;
setp.gt.s32 %p1, %r1, 0;
@%p1 bra L;
WAIT:
bar.sync 0;"""


def test_a_program_that_is_cut_off_is_not_looked_at_any_more() -> None:
    """Neither for warps that wait, nor for the rounds of loops; one of the budgets is just what it has executed."""
    over = []
    for budget in (100, 101, 102):
        settings = Settings(budget=budget)
        seen = see(WAITING, Launch(threads=(64, 1, 1), control=(6,), settings=settings))
        assert seen.kinds == {Kind.NO_END}
        over.append(seen.ran.executed - budget)
    assert sorted(over) == [0, 1, 2]


def test_a_kernel_wants_its_number_of_threads() -> None:
    program = Program.of(kernel("mov.b32 %r1, 1;").replace("k_1)\n{", "k_1)\n.reqntid 64\n{"))
    with pytest.raises(NotUnderstood, match="wants 64 threads, and is launched with 32"):
        see(program)


FOUR, TWO = "{%r1, %r2, %r3, %r4}", "{%r1, %r2}"


@pytest.mark.parametrize(
    "text",
    [
        "bar.sync 1;",
        "bar.sync 0, 64;",
        "frobnicate.b32 %r1, %r2;",
        "add.s32 %r1, %r1, %q1;",
        "mov.b32 %r1, %nobody;",
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1, %r2}, [%base];",
        "atom.global.add.noftz.f16 %h1, [%mine], %h2;",
        f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {FOUR}, {TWO}, {TWO}, {FOUR}, %r5, 0x0;",
        f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {FOUR}, {FOUR}, {TWO}, {FOUR}, %r5, 0x0;",
        f"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {FOUR}, {TWO}, {TWO}, {FOUR};",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {FOUR}, {TWO}, {TWO}, {FOUR};",
        f"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {FOUR}, {FOUR}, {TWO}, {FOUR};",
        "cp.async.bulk.shared.global [%base], [%in], 16;",
        "redux.sync.min.abs.f32 %r1, %r2, -1;",
        "redux.sync.min.f32 %r1, %r2, -1;",
    ],
)
def test_what_the_machine_does_not_know_it_says(text: str) -> None:
    with pytest.raises(NotUnderstood):
        program_of(text)


# counts


def _memory(body: str, line: int, **launch: object) -> list[int]:
    settings = Settings(count=True)
    seen = see(body, Launch(settings=settings, **launch))  # type: ignore[arg-type]
    program = program_of(body)
    place = next(k for k, each in enumerate(program.encoded.module.body) if each.line == line)
    return seen.ran.counts[place].tolist()


ACCESSES = [
    ("ld.global.b32 %r1, [%its];", 32, 4, 4),
    ("ld.global.b32 %r1, [%its+16];", 32, 5, 4),
    ("ld.global.b32 %r1, [%in];", 32, 1, 4),
    ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%in];", 32, 1, 16),
    ("@%p1 ld.global.b32 %r1, [%its];", 9, 2, 2),
    ("st.shared.b32 [%sh], 1;", 32, 1, 1),
    ("st.shared.b32 [%base], 1;", 32, 1, 1),
    ("@%p1 st.shared.b32 [%sh], 1;", 9, 1, 1),
    ("st.shared.b32 [%r2], 1;", 32, 2, 1),
    ("st.shared.b32 [%r3], 1;", 32, 32, 1),
    ("st.shared.b32 [%r5], 1;", 32, 4, 1),
    ("st.shared.b64 [%r2], 1;", 32, 2, 2),
    ("st.shared.v4.b32 [%r4], {1, 1, 1, 1};", 32, 4, 4),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r4];", 32, 4, 4),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r3];", 32, 8, 1),
]


@pytest.mark.parametrize(("statement", "lanes", "sectors", "least"), ACCESSES)
def test_sectors_and_wavefronts(statement: str, lanes: int, sectors: int, least: int) -> None:
    text = f"""setp.lt.u32 %p1, %tid, 9;
    add.s32 %r2, %sh, %r0;
    shl.b32 %r3, %tid, 7;
    add.s32 %r3, %r3, %base;
    shl.b32 %r4, %tid, 4;
    add.s32 %r4, %r4, %base;
    and.b32 %r5, %r3, 0x180;
    add.s32 %r5, %r5, %base;
    {statement}"""
    assert _memory(text, 9, shared=4096) == [1, lanes, sectors, least]


def test_counts_of_warps_add_up() -> None:
    assert _memory("ld.global.b32 %r1, [%its];", 1, threads=(64, 1, 1)) == [2, 64, 8, 8]
    assert _memory("st.shared.b32 [%sh], 1;", 1, threads=(64, 1, 1)) == [2, 64, 2, 2]


def test_noise_is_small_and_there() -> None:
    body = """ld.global.b32 %r1, [%its];
    ex2.approx.ftz.f32 %r2, %r1;
    rcp.approx.ftz.f32 %r3, %r1;
    st.global.b32 [%mine], %r2;
    st.global.b32 [%mine+128], %r3;
    add.f32 %r4, %r1, %r1;
    st.global.b32 [%mine+256], %r4;"""
    x = np.linspace(0.5, 3, 64).astype(np.float32)
    exact = see(body, Launch(x=x)).words[:96].astype(np.int64)
    noisy = see(body, Launch(x=x, settings=Settings(noise=True))).words[:96].astype(np.int64)
    off = np.abs(noisy - exact)
    assert off[:32].max() in (1, 2, 3, 4)
    assert off[32:64].max() in (1, 2, 3, 4)
    assert off[64:].max() == 0


# functions and scopes

FUNCTION = """
.func (.param .b32 result) twice(.param .b32 x, .param .b64 y)
{
.reg .b32 %r<4>;
.reg .b64 %q<2>;
.reg .pred %p1;
ld.param.b32 %r1, [x];
ld.param.b64 %q1, [y];
setp.lt.u32 %p1, %r1, 10;
@%p1 bra SMALL;
add.s32 %r1, %r1, %r1;
st.param.b32 [result], %r1;
ret;
SMALL:
cvt.u32.u64 %r2, %q1;
st.param.b32 [result], %r2;
ret;
}
"""
CALL = """mov.b32 %r1, 5;
cvt.u64.u32 %q1, %tid;
{
.param .b32 given;
.param .b64 wide;
.param .b32 back;
st.param.b32 [given], %tid;
st.param.b64 [wide], %q1;
call.uni (back), twice, (given, wide);
ld.param.b32 %r2, [back];
}
{
.reg .b32 %r1;
.param .b32 given;
.param .b64 wide;
.param .b32 back;
mov.b32 %r1, 77;
st.param.b32 [given], %r1;
st.param.b64 [wide], %q1;
call.uni (back), twice, (given, wide);
ld.param.b32 %r3, [back];
}
st.global.b32 [%mine], %r1;
st.global.b32 [%mine+128], %r2;
st.global.b32 [%mine+256], %r3;"""


def test_functions_have_registers_and_labels_of_their_own() -> None:
    seen = see(kernel(CALL, FUNCTION))
    lanes = np.arange(32)
    expected = [np.full(32, 5), np.where(lanes < 10, lanes, 2 * lanes), np.full(32, 154)]
    assert seen.says == []
    assert seen.words[:96].tolist() == np.concatenate(expected).tolist()
