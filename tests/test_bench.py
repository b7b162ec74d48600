"""The scripts under bench/ run, and read what compilers print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

from bench import against_xla, contractions, cycles, launched, loops, planning, sass, xla
from jaxpr2triton.launch.cycles.flow import innermost
from jaxpr2triton.launch.cycles.flow import loops as machine_loops
from jaxpr2triton.launch.cycles.sass import instructions
from tests import contraction_programs
from tests.loop_programs import PROGRAMS

SMALL = ["kalman", "ctc_loss"]

DISASSEMBLED = """
        /*0000*/                   IMAD.MOV.U32 R0, RZ, RZ, RZ ;            /* 0x00 */
        /*0010*/                   LDG.E R2, desc[UR4][R4.64] ;             /* 0x00 */
        /*0020*/              @!P0 BRA 0xc0 ;                               /* 0x00 */
        /*0030*/                   FFMA R3, R2, R3, 1 ;                     /* 0x00 */
        /*0040*/                   HFMA2.MMA R6, -RZ, RZ, 0, 1 ;            /* 0x00 */
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;            /* 0x00 */
        /*0060*/                   FADD R2, R2, R3.reuse ;                  /* 0x00 */
        /*0070*/              @!P1 BRA 0x60 ;                               /* 0x00 */
        /*0080*/                   STG.E desc[UR4][R4.64], R2 ;             /* 0x00 */
        /*0090*/                   IADD3 R0, R0.reuse, 0x4, RZ ;            /* 0x00 */
        /*00a0*/                   ISETP.GE.AND P1, PT, R0, 0x8, PT ;       /* 0x00 */
        /*00b0*/              @!P1 BRA 0x30 ;                               /* 0x00 */
        /*00c0*/                   EXIT ;                                   /* 0x00 */
        /*00d0*/                   BRA 0xd0;                                /* 0x00 */
"""

PTX = """
	ld.param.b64 	%rd1, [kernel_param_0];
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
	fma.rn.f32 	%r2, %r2, %r3, 0f3F800000;
	add.f32 	%r4, %r2, %r3;
	@%p1 st.global.b32 [ %rd1 + 0 ], { %r4 };
	setp.ne.b32 	%p2, %r5, 8;
	@%p2 bra 	$L__BB0_1;
	ret;
"""

UNROLLED = """
        /*0000*/                   STG.E desc[UR4][R4.64], R2 ;             /* 0x00 */
        /*0010*/                   STG.E desc[UR4][R4.64+0x4], R2 ;         /* 0x00 */
        /*0020*/                   STG.E desc[UR4][R4.64+0x8], R2 ;         /* 0x00 */
        /*0030*/                   STG.E desc[UR4][R4.64+0xc], R2 ;         /* 0x00 */
        /*0040*/              @P0  BRA 0x0 ;                                /* 0x00 */
        /*0050*/                   EXIT ;                                   /* 0x00 */
"""

OPTIMISED = """HloModule jit_f, is_scheduled=true

%fused (p0: f32[8], p1: f32[100,8], p2: s32[]) -> (f32[8], f32[100,8]) {
  %p0 = f32[8]{0} parameter(0)
  %p1 = f32[100,8]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %sum = f32[8]{0} add(%p0, %p0)
  %row = f32[1,8]{1,0} bitcast(%sum)
  %set = f32[100,8]{1,0} dynamic-update-slice(%p1, %row, %p2, %p2)
  ROOT %both = (f32[8]{0}, f32[100,8]{1,0}) tuple(%sum, %set)
}

%body (state: (s32[], f32[8], f32[100,8])) -> (s32[], f32[8], f32[100,8]) {
  %state = (s32[], f32[8]{0}, f32[100,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[8]{0} get-tuple-element(%state), index=1
  %ys = f32[100,8]{1,0} get-tuple-element(%state), index=2
  %step = (f32[8]{0}, f32[100,8]{1,0}) fusion(%x, %ys, %i), kind=kLoop, calls=%fused
  %next = s32[] copy(%i)
  ROOT %out = (s32[], f32[8]{0}, f32[100,8]{1,0}) tuple(%next, %step#0, %step#1)
}

%condition (state.1: (s32[], f32[8], f32[100,8])) -> pred[] {
  %state.1 = (s32[], f32[8]{0}, f32[100,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] compare(%i.1, %i.1), direction=LT
}

ENTRY %main (start: (s32[], f32[8], f32[100,8])) -> (s32[], f32[8], f32[100,8]) {
  %start = (s32[], f32[8]{0}, f32[100,8]{1,0}) parameter(0)
  ROOT %loop = (s32[], f32[8]{0}, f32[100,8]{1,0}) while(%start), condition=%condition, body=%body
}
"""


@pytest.mark.compile
def test_loops_of_small_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    page = tmp_path / "loops.md"
    assert loops.main([*SMALL, "--grad", "--check-instructions", "--markdown", str(page)]) == 0
    printed, written = capsys.readouterr().out, page.read_text()
    for name in SMALL:
        for kind in ("forward", "gradient"):
            assert any(line.split()[:2] == [name, kind] for line in printed.splitlines())
            assert f"| {name} | {kind} |" in written
    assert "t: loop 1000 by 1" in printed and "compiled for sm_90 without a device" in written
    (kalman,) = [line.split() for line in printed.splitlines() if line.startswith("kalman") and " by 1" in line][:1]
    assert kalman[kalman.index("forward") + 4] == "0", "spills"


def test_a_program_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(function: Any, *args: Any) -> Any:
        raise RuntimeError("out of\nluck")

    monkeypatch.setattr(loops.j2t, "transpile", broken)
    assert loops.main(SMALL) == 1
    printed = capsys.readouterr().out
    for name in SMALL:
        assert any(
            line.startswith(name) and line.endswith("RuntimeError: out of luck") for line in printed.splitlines()
        )


def test_xla_is_left_out_without_the_plugin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Any:
        raise RuntimeError("no plugin")

    monkeypatch.setattr(xla, "device", missing)
    monkeypatch.setattr(loops, "works", lambda names, gradients: [])
    assert loops.main(["--xla"]) == 0
    assert capsys.readouterr().out == "XLA is left out: JAX's CUDA plugin cannot be used here (no plugin)\n"


def test_full_sizes_come_with_their_gradients() -> None:
    names = [work.title for work in loops.works(["inference"], gradients=True)]
    assert names == [[name, kind] for name in ("inference", "inferences") for kind in ("forward", "gradient")]
    assert len(loops.works([], gradients=False)) == sum(p.bench_args is not None for p in PROGRAMS)


def test_loops_of_machine_code() -> None:
    found = machine_loops(instructions(DISASSEMBLED))
    assert [(hex(loop.head), len(loop.instructions)) for loop in found] == [("0x30", 9), ("0x60", 2)]
    assert (sass.floating(found[0]), sass.operations(found[0])) == (2, 3)
    assert (found[0].count(sass.LOADS), found[0].count(sass.STORES)) == (0, 1)
    assert innermost(found) == found[1:] and innermost(found, 3) == found[:1]
    assert machine_loops(()) == ()


def test_loops_of_ptx() -> None:
    (found,) = machine_loops(sass.ptx_instructions(PTX))
    assert (len(found.instructions), sass.operations(found), found.count(sass.STORES)) == (5, 3, 1)
    (round_of_four,) = machine_loops(instructions(UNROLLED))
    assert sass.rounds(round_of_four, found) == 4
    assert sass.rounds(round_of_four, None) == 1


def test_what_is_left_out_of_the_count_is_said() -> None:
    results = loops.Results(xla=[["noisy_chain", "forward", "1 + 0", 503, 1, 2, "100 x 5"]])
    written = loops.markdown(results, ["--xla"])
    assert f"## XLA on an H200\n\n{xla.GRAPHS}\n| program | pass |" in written
    assert xla.GRAPHS in (Path(loops.__file__).parent / "results" / "loops-sm_90.md").read_text()


def test_launches_of_a_loop() -> None:
    step = 3 * 32 + 4 + 8  # two rows are written and one read, with the place; the counter is copied
    n = '{"known_trip_count":{"n":"100"}}'
    known = OPTIMISED.replace("body=%body", f"body=%body, backend_config={n}")
    assert xla.counted(known) == xla.Launches(200, 100 * step, ("100 x 2",))
    # the condition is a kernel here, and its result is copied to the host
    assert xla.counted(OPTIMISED) == xla.Launches(4, step + 9, ("n x 4",))


# planning


def test_growth_is_for_twice_the_equations() -> None:
    few, many = {"equations": 100, "plan": 1.0}, {"equations": 400, "plan": 9.0}
    assert planning.growth(many, few) == pytest.approx(3.0)
    assert planning.growth(few, few) != planning.growth(few, few)  # not a number: there is nothing to compare


@pytest.mark.parametrize("family", planning.FAMILIES.values(), ids=planning.FAMILIES.keys())
def test_every_family_can_be_traced(family: planning.Family) -> None:
    assert set(family.quick) <= set(family.sizes)
    fn, args = family.make(family.sizes[0])
    jax.eval_shape(fn, *args)


# cycles


def row(kernel: str, whole: float | None, a_step: float | None = None, estimate: int | None = None) -> cycles.Row:
    return cycles.Row(
        "f", kernel, "forward", "1 x 1", "", whole, whole, a_step, estimate, "issue 100%", "issue", "", 1.0
    )


def test_what_a_change_did_to_kernels() -> None:
    before = {"a": row("a", 100.0), "b": row("b", 100.0), "c": row("c", 100.0), "gone": row("gone", 5.0)}
    after = {"a": row("a", 101.0), "b": row("b", 150.0), "c": row("c", 50.0), "new": row("new", None, 7.0)}
    assert [line[0::2][:3] for line in cycles.changes(before, after)] == [
        ["f: b", 100, "1.50"],
        ["f: c", 100, "0.50"],
        ["f: gone", 5, cycles.MISSING],
        ["f: new", cycles.MISSING, cycles.MISSING],
    ]


def test_estimates_against_the_model() -> None:
    rows = [row(str(n), None, a_step=100.0 * n, estimate=200 * n) for n in range(1, 6)]
    (line,) = cycles.calibration([*rows, row("without a loop", 3.0)])
    assert line.startswith("estimate / model of 5 kernels with loops: median 2.00, half of them 2.00 to 2.00")
    assert line.endswith("rank correlation 1.00")
    assert cycles.calibration(rows[:2]) == ["too few kernels with loops to compare estimates with"]


@pytest.mark.compile
def test_cycles_of_a_program_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, page = tmp_path / "before.json", tmp_path / "cycles.md"
    assert cycles.main(["kalman", "--save", str(saved)]) == 0
    assert cycles.main(["kalman", "--against", str(saved), "--markdown", str(page)]) == 0
    printed, written = capsys.readouterr().out, page.read_text()
    lines = [line.split() for line in printed.splitlines() if line.startswith("kalman")]
    assert [line[1] for line in lines[:2]] == ["forward", "gradient"]
    assert "t 1,000 x " in printed and "dependent arithmetic" in printed
    assert "| kalman | forward | 1 x 1 |" in written and "## Estimates of schedules" in written
    assert printed.count("Changes since") == 1 and "1.00" not in printed


# what is launched


def facts(**changes: int) -> dict[str, Any]:
    names = ("kernels", "graphs", "kernels_in_graphs", "copies", "copies_in_graphs", "synchronisations", "guesses")
    return dict.fromkeys(names, 0) | changes


def test_launches_are_shown_in_few_letters() -> None:
    assert launched.shown(facts(kernels=1)) == "1 K"
    assert launched.shown(facts()) == "nothing"
    many = facts(kernels=2, graphs=100, kernels_in_graphs=400, copies_in_graphs=2000, synchronisations=3, guesses=1)
    assert launched.shown(many) == r"100 G (400 K, 2,000 C) + 2 K, 3 S \*"
    assert launched.shown({"problem": "nothing after 60 s"}) == "nothing after 60 s"
    assert (launched.calls(many), launched.launched(many)) == (102, 2402)


def test_sums_leave_out_what_is_not_known() -> None:
    one, guessed, failed = facts(kernels=1), facts(graphs=1, kernels_in_graphs=9, guesses=1), {"problem": "exit 1"}
    rows = [("f forward", [one] * 4), ("g forward", [guessed] * 4), ("h forward", [failed, one, one, one])]
    line, *_ = launched.summary(rows)
    assert line == (
        "jax.jit: 2 of 2 rows are one call of the driver, 0 wait inside; in the 1 rows without a star or a problem "
        "1 calls, and 1 kernels and copies"
    )


def test_every_contraction_has_a_full_size() -> None:
    assert set(contractions.SIZES) == {program.name for program in contraction_programs.PROGRAMS}


def test_a_table_of_contractions(tmp_path: Path) -> None:
    """The page has what was asked for: one kernel that reads and writes each array once, modelled beside XLA's."""
    page = tmp_path / "page.md"
    assert contractions.main(["one_term", "--markdown", str(page)]) == 0
    *_, row = page.read_text().splitlines()
    name, _, kernels, left, moved, least, ours, other, ratio = (cell.strip() for cell in row.strip("|").split("|"))
    assert (name, kernels, left) == ("one_term", "1", "0")
    assert moved == least
    assert float(ratio) == pytest.approx(int(ours) / int(other), abs=0.05)
    assert "modelled for sm_90, not measured" in page.read_text()


def test_programs_against_xla(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both estimates and what was measured, the worst first; one above what is allowed is a failure."""
    file = tmp_path / "page.md"
    names = ["kepler", "1024 bodies", "hidden Markov"]
    assert against_xla.main([*names, "--above", "1.2", "--markdown", str(file)]) == 0
    printed, page = capsys.readouterr().out, file.read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")][2:]
    ratios = [float(row[7].removesuffix(" \\* ").replace("*", "")) for row in rows]
    assert len(rows) == 5 and ratios == sorted(ratios, reverse=True) and "1 of 132" in page
    assert "4 programs with loops were measured: estimated ratio / measured one is" in printed
    assert against_xla.main(["hidden Markov", "--above", "0.1"]) == 1
