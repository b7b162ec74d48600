"""Kernels whose programs meet: compiled so that all run at once and a wait for ever is an error, or refused."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from jaxpr2triton.errors import KernelRefused
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile import compile as compile_module
from jaxpr2triton.launch.compile.asserted import named_in_errors
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from tests.launch.handmade import SOFTMAX, shift_kernel

pytestmark = pytest.mark.usefixtures("cache_dir")
SM_90 = TARGETS["sm_90"]
SAYS = "programs that meet have to run at once"


def refusal(kernel: Kernel, target: str = "sm_90", **changes: int) -> str:
    with pytest.raises(KernelRefused) as caught:
        compile_kernel(kernel, dataclasses.replace(TARGETS[target], **changes))
    return str(caught.value)


def strings_of(ptx: str) -> set[str]:
    """The text of all arrays of bytes."""
    arrays = re.findall(r"\.b8 \w+\[(\d+)\] = \{([\d, ]+)\};", ptx)
    assert all(int(size) == text.count(",") + 2 for size, text in arrays), "each ends with a zero"
    return {bytes(map(int, text.split(","))).decode() for _, text in arrays}


@pytest.mark.compile
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("lines", [False, True])
def test_who_waits_for_ever_ends_in_an_error_that_names_the_kernel(target: str, lines: bool) -> None:
    code = str(compile_kernel(shift_kernel(), TARGETS[target], lines).code)
    assert code.count("call.uni __assertfail") >= 1
    assert strings_of(code) == {"kernel shift", SAYS}
    assert resources(compile_kernel(shift_kernel(), TARGETS[target])).spills == 0


def test_other_kernels_assert_nothing() -> None:
    code = str(compile_kernel(SOFTMAX, SM_90).code)
    assert "assert" not in code and named_in_errors(code, "softmax") == code


OPERATIONS = {"ttir": r"\b(?:tt|arith|scf)\.\w+", "ptx": r"^\s+(?:@!?%p\d+ )?([a-z][\w.]*)\s"}


def operations(kernel: Kernel) -> dict[str, Counter[str]]:
    compile_module._stages.cache_clear()
    return {stage: Counter(re.findall(word, asm(kernel, SM_90, stage), re.M)) for stage, word in OPERATIONS.items()}


@pytest.mark.compile
def test_only_what_is_asserted_is_more_code(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, options = shift_kernel(), compile_module._options
    asserted = operations(kernel)
    without = {"debug": False, "sanitize_overflow": True}
    monkeypatch.setattr(compile_module, "_options", lambda *args: options(*args) | without)
    plain = operations(kernel)
    compile_module._stages.cache_clear()
    assert asserted["ttir"] - plain["ttir"] == Counter({"tt.assert": 1, "arith.cmpi": 1})
    more = asserted["ptx"] - plain["ptx"]
    assert {word.split(".")[0] for word in more} <= {"setp", "bra", "mov", "cvta", "st", "call", "trap"}
    assert not {word for word in more if word.startswith("st.") and "param" not in word}
    assert more.total() < 25, "and that is behind the end, but for a comparison and a branch of each meeting"


@pytest.mark.compile
def test_stores_are_seen_behind_a_meeting() -> None:
    """Barrier, release, acquire, barrier; what others have stored is read by loads that no cache answers of its own."""
    code = asm(shift_kernel(steps=1000), SM_90, "ptx")
    order = [
        r"st\.global\.b32",
        r"bar\.sync",
        r"atom\.global\.gpu\.release\.add\.u32",
        r"ld\.global\.gpu\.acquire\.b32",
        r"bar\.sync",
        r"ld\.global\.b32",
    ]
    assert re.search(r"[^$]*?".join(order[:3]), code) and re.search(r"[\s\S]*?".join(order), code)
    assert ".nc" not in code


@pytest.mark.parametrize(("programs", "of_a_processor"), [(8, 1), (132, 1), (133, 2), (264, 2), (265, 3)])
def test_an_assembler_may_not_give_them_more_registers(programs: int, of_a_processor: int) -> None:
    code = str(compile_kernel(shift_kernel(programs, steps=1000), SM_90).code)
    assert f".reqntid 128\n.minnctapersm {of_a_processor}\n" in code


def test_programs_that_do_not_run_at_once_are_refused() -> None:
    most = 132 * 16  # 64 warps of a processor, four of a program
    compile_kernel(shift_kernel(most, steps=1000), SM_90)
    assert refusal(shift_kernel(most + 1, steps=1000)) == (
        "kernel shift needs all of its 2113 programs to run at once, and sm_90 has room for 16 on each of its "
        "132 processors"
    )


def test_a_smaller_device_of_the_same_kind_counts_as_what_it_is() -> None:
    """An H100 for PCIe has 114 processors."""
    kernel = shift_kernel(132 * 8, steps=1000, num_warps=8)
    assert ".minnctapersm 8\n" in str(compile_kernel(kernel, SM_90).code)
    assert refusal(kernel, processors=114) == (
        "kernel shift needs all of its 1056 programs to run at once, and sm_90 has room for 8 on each of its "
        "114 processors"
    )
    compile_kernel(kernel, SM_90)


def test_shared_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = compile_module._stages(shift_kernel(133), SM_90, False)
    with monkeypatch.context() as patch:
        patch.setattr(compile_module, "_stages", lambda *args: dataclasses.replace(stages, shared=120_000))
        assert refusal(shift_kernel(133)) == (
            "kernel shift needs all of its 133 programs to run at once, and sm_90 has room for 1 on each of its "
            "132 processors"
        )


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_they_are_refused_where_they_may_not_see_each_other(target: str) -> None:
    assert refusal(shift_kernel(), target) == (
        f"kernel shift has programs that wait for each other, and on {target} not all that one has stored is sure to "
        "be seen by the others"
    )
