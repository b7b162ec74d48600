"""Kernels whose programs meet, on the machine: all of them at once; and what is found where nothing orders them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.machine.findings import Finding
from jaxpr2triton.launch.machine.kernels import (
    Examined,
    compiled_for_machine,
    examine,
    program_of,
    run_on_machine,
)
from jaxpr2triton.launch.machine.run import EVERYTHING, Settings
from tests.launch.machine_meeting import Meeting, multiplied, shifted

MADE = (shifted, multiplied)
RACES = {
    "race between programs: `ld.global` against `st.global`; shown",
    "race between programs: `st.global` against `ld.global`; shown",
}


def seen(
    meeting: Meeting,
    target: str = "sm_90",
    kernel: Kernel | None = None,
    changed: Callable[[str], str] = str,
    settings: Settings = EVERYTHING,
) -> Examined:
    """`kernel` may be another one than the meeting's, and its PTX may be changed."""
    kernel = kernel or meeting.kernel
    binary = compiled_for_machine(kernel, target_named(target))
    program = program_of(changed(str(binary.code)), kernel.source)
    return examine(kernel, binary, meeting.inputs, settings, program)


def short(finding: Finding) -> str:
    """Without what is Triton's own: lines, numbers of registers, how wide an access is."""
    what, where = finding.what.split("; ")
    what = re.sub(r"(line \d+ )?`(@!?%\w+ )?(?P<opcode>\w+\.\w+)[^`]*`", r"`\g<opcode>`", what)
    return f"{what}; {where.split(',')[0]}"


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("programs", [2, 5, 8])
@pytest.mark.parametrize("made", MADE)
def test_values(made: Callable[..., Meeting], programs: int, target: str) -> None:
    for warps in (1, 2, 4):
        meeting = made(programs, 9, warps)
        executed = set()
        for seed in range(4):
            for quantum in (0, 7):
                examined = seen(meeting, target, settings=Settings(seed=seed, quantum=quantum))
                assert [*map(str, examined.findings), *examined.forgotten] == []
                np.testing.assert_array_equal(examined.outputs[0], meeting.expected())
                executed.add(examined.ran.executed)
        assert len(executed) > 1  # programs take their turns in other orders


@pytest.mark.parametrize("made", MADE)
def test_as_many_programs_as_a_device_has_processors(made: Callable[..., Meeting]) -> None:
    meeting = made(128, 64)
    for settings in (Settings(), Settings(check=False)):
        examined = seen(meeting, settings=settings)
        assert list(map(str, examined.findings)) == []
        np.testing.assert_array_equal(examined.outputs[0], meeting.expected())


def test_the_same_seed_gives_the_same_run() -> None:
    meeting = shifted(5, 9)
    one, other = (seen(meeting, settings=Settings(seed=3)).ran for _ in range(2))
    assert one.executed == other.executed
    np.testing.assert_array_equal(one.counts, other.counts)


def test_all_programs_run_where_two_are_asked_for() -> None:
    meeting = shifted(5, 9)
    examined = seen(meeting, settings=Settings(programs=range(2)))
    np.testing.assert_array_equal(examined.outputs[0], meeting.expected())


# what is missing is found

SABOTAGES = {
    "a release": ("sem='release'", "sem='relaxed'"),
    "an acquisition": ("sem='acquire'", "sem='relaxed'"),
    "a release for other programs": ("sem='release'", "sem='release', scope='cta'"),
    "an acquisition for other programs": ("sem='acquire'", "sem='acquire', scope='cta'"),
    "waiting": ("while (", "while (rounds < 0) & ("),
    "a meeting": ("_all_meet(met_ptr, 8)", "pass"),
    "another half": ("half = t % 2", "half = 0"),
}
ALL_THAT_IS_SAID = ("a release", "an acquisition", "a release for other programs")


@pytest.mark.parametrize("missing", SABOTAGES)
@pytest.mark.parametrize("made", MADE)
def test_what_is_missing_in_the_source(made: Callable[..., Meeting], missing: str) -> None:
    for warps in (1, 4):
        meeting = made(8, 9, warps)
        assert SABOTAGES[missing][0] in meeting.kernel.source
        kernel = replace(meeting.kernel, source=meeting.kernel.source.replace(*SABOTAGES[missing]))
        for seed in range(3):
            said = set(map(short, seen(meeting, kernel=kernel, settings=Settings(seed=seed)).findings))
            assert said >= RACES
            assert missing not in ALL_THAT_IS_SAID or said == RACES


def without_barriers(ptx: str, begins: str, ends: str) -> str:
    """… between a line that has the one and a line that has the other."""
    found, inside = [], False
    for line in ptx.split("\n"):
        inside = bool(re.search(begins, line)) or (inside and not re.search(ends, line))
        found.append("" if inside and "bar.sync" in line else line)
    return "\n".join(found)


@pytest.mark.parametrize("made", MADE)
def test_barriers_that_are_missing_before_the_release(made: Callable[..., Meeting]) -> None:
    """All of them: Triton may have one of its own there."""
    for warps in (1, 4):
        less = seen(made(8, 9, warps), changed=lambda ptx: without_barriers(ptx, r"st\.global", r"atom\."))
        said = set(map(short, less.findings))
        assert said & RACES


@pytest.mark.parametrize("made", MADE)
def test_barriers_that_are_missing_behind_the_acquisition(made: Callable[..., Meeting]) -> None:
    """With those by which Triton tells all threads what one has read."""
    for warps in (1, 4):
        less = seen(
            made(8, 9, warps),
            changed=lambda ptx: without_barriers(ptx, "acquire", r"ld\.global\.(v2\.)?b32 {"),
            settings=Settings(budget=10**5),  # warps may be in different meetings for ever
        )
        assert RACES & set(map(short, less.findings))


# programs that are not there

DEADLOCK = "programs that wait for each other, and none goes on: `ld.global`; program "
FAILS = "assertion that fails (programs that meet have to run at once): `call.uni`; program "


@pytest.mark.parametrize("resident", [1, 4])
@pytest.mark.parametrize("made", MADE)
def test_a_device_with_less_room_than_programs(made: Callable[..., Meeting], resident: int) -> None:
    (finding,) = seen(made(5, 9), settings=Settings(resident=resident)).findings
    assert short(finding)[:-1] == DEADLOCK
    assert finding.times == resident


@pytest.mark.parametrize("resident", [1, 4])
@pytest.mark.parametrize("made", MADE)
def test_waiting_ends_in_an_error(made: Callable[..., Meeting], resident: int) -> None:
    meeting = made(5, 9)
    kernel = replace(meeting.kernel, source=meeting.kernel.source.replace("16777216", "60"))
    (finding,) = seen(meeting, kernel=kernel, settings=Settings(resident=resident)).findings
    assert short(finding)[:-1] == FAILS
    enough = seen(meeting, kernel=kernel)
    assert list(map(str, enough.findings)) == []
    np.testing.assert_array_equal(enough.outputs[0], meeting.expected())


def test_a_mistake_is_an_error_of_ours() -> None:
    meeting = shifted(5, 9)
    less = replace(meeting.kernel, source=meeting.kernel.source.replace(*SABOTAGES["a release"]))
    for kernel in (meeting.kernel, less):
        binary = compiled_for_machine(kernel, target_named("sm_90"))
        if kernel is less:
            with pytest.raises(CompilerBug, match="kernel shifted in the PTX simulator .*: race between programs: "):
                run_on_machine(kernel, binary, meeting.inputs)
        else:
            np.testing.assert_array_equal(run_on_machine(kernel, binary, meeting.inputs)[0], meeting.expected())
