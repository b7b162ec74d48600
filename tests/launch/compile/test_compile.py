"""Kernels compile for every target on a machine without a GPU; what cannot run is refused with a reason."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from jaxpr2triton.errors import KernelRefused, UserError
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile import compile as compile_module
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from tests.launch.handmade import SOFTMAX, add_kernel, elementwise, make_kernel

pytestmark = pytest.mark.usefixtures("cache_dir")
SM_90 = TARGETS["sm_90"]


@pytest.mark.compile
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_every_target(target: str) -> None:
    binary = compile_kernel(SOFTMAX, TARGETS[target])
    assert (binary.name, binary.num_warps, binary.target) == ("softmax", 4, target)
    assert 0 < binary.shared <= 64
    if target == "gfx942":
        assert binary.kind == "hsaco"
        assert isinstance(binary.code, bytes) and binary.code.startswith(b"\x7fELF")
    else:
        assert binary.kind == "ptx"
        assert isinstance(binary.code, str) and f".target {target}" in binary.code


@pytest.mark.parametrize(
    ("target", "version"), [("sm_80", "8.0"), ("sm_89", "8.0"), ("sm_90", "8.0"), ("sm_100", "8.6"), ("sm_120", "8.7")]
)
def test_the_assembler_of_jax_may_be_older_than_tritons(target: str, version: str) -> None:
    assert f".version {version}\n" in str(compile_kernel(SOFTMAX, TARGETS[target]).code)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint32", "int64", "float16", "bfloat16", "float64"])
def test_every_element(dtype: str) -> None:
    binary = compile_kernel(elementwise("tl.where(a == b, a, b)", [dtype, dtype], dtype), SM_90)
    assert ".entry pointwise" in str(binary.code)


def test_the_code_says_nothing_about_this_machine(tmp_path: Path) -> None:
    code = str(compile_kernel(SOFTMAX, SM_90).code)
    assert ".loc" not in code and ".file" not in code and str(Path.home()) not in code
    assert str(tmp_path) not in code


@pytest.mark.compile
@pytest.mark.parametrize(
    ("target", "kind", "expected"),
    [
        ("sm_90", "ttir", "tt.func public @softmax"),
        ("sm_90", "ttgir", "#ttg.blocked"),
        ("sm_90", "llir", "define ptx_kernel void @softmax"),
        ("sm_90", "ptx", ".entry softmax"),
        ("sm_90", "sass", "EXIT"),
        ("sm_100", "sass", "EXIT"),
        ("gfx942", "amdgcn", "s_endpgm"),
        ("gfx942", "ttgir", "#ttg.blocked"),
    ],
)
def test_every_stage_as_text(target: str, kind: str, expected: str) -> None:
    assert expected in asm(SOFTMAX, TARGETS[target], kind)


def test_stages_that_a_target_does_not_have() -> None:
    with pytest.raises(UserError) as caught:
        asm(SOFTMAX, TARGETS["gfx942"], "ptx")
    assert str(caught.value) == "there is no ptx for gfx942\n  try  one of ttir, ttgir, llir, amdgcn"


@pytest.mark.compile
def test_resources() -> None:
    for target in ("sm_80", "sm_90", "sm_100"):
        binary = compile_kernel(SOFTMAX, TARGETS[target])
        used = resources(binary)
        assert 8 <= used.registers <= 64
        assert (used.spills, used.stack) == (0, 0)
    with pytest.raises(UserError) as caught:
        resources(compile_kernel(SOFTMAX, TARGETS["gfx942"]))
    assert str(caught.value) == "resources are known for CUDA targets only, not for gfx942"


def test_spills_are_seen() -> None:
    lines = ["i = tl.arange(0, 256)"]
    lines += [f"x{n} = tl.load(x_ptr + {n} * 256 + i)" for n in range(40)]
    lines += ["for t in tl.range(100, loop_unroll_factor=1):"]
    lines += [f"    x{n} = x{n} * x{(n + 7) % 40} + 0.5" for n in range(40)]
    lines += [f"tl.store(out_ptr + {n} * 256 + i, x{n})" for n in range(40)]
    inputs, outputs = [("x", (40 * 256,), "float32")], [("out", (40 * 256,), "float32")]
    used = resources(compile_kernel(make_kernel("greedy", "\n".join(lines), inputs, outputs, num_warps=1), SM_90))
    assert used.spill_stores > 0 and used.spill_loads > 0 and used.stack > 0


def refusal(kernel: Any, target: str = "sm_90") -> str:
    with pytest.raises(KernelRefused) as caught:
        compile_kernel(kernel, TARGETS[target])
    return str(caught.value)


def test_errors_of_triton_become_refusals() -> None:
    message = refusal(elementwise("tl.exp(a)", ["int32"], "int32"))
    assert message.startswith("Triton refuses kernel pointwise: CompilationError: ")
    assert "\n" not in message and "Expected dtype ['fp32', 'fp64']" in message
    message = refusal(elementwise("nowhere", ["int32"], "int32"))
    assert message == "Triton refuses kernel pointwise: CompilationError: NameError('nowhere is not defined')"


def test_the_whole_story_is_in_a_note() -> None:
    for _ in range(2):
        with pytest.raises(KernelRefused) as caught:
            compile_kernel(elementwise("nowhere", ["int32"], "int32"), SM_90)
        (note,) = caught.value.__notes__
        assert note.startswith("Triton says: at ") and "tl.store(out_ptr + i, nowhere" in note


def test_refusals_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = elementwise("tl.exp(a)", ["int32"], "int32")
    first = refusal(kernel)
    with monkeypatch.context() as patch:
        patch.setattr(compile_module, "_stages", lambda *args: pytest.fail("compiled again"))
        assert refusal(kernel) == first


def test_more_shared_memory_than_there_is() -> None:
    text = """
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    a = tl.load(a_ptr + at)
    c = tl.dot(a, a)
    tl.store(out_ptr + at, tl.dot(c.to(tl.float16), a))
    """
    kernel = make_kernel("big", text, [("a", (64, 64), "float16")], [("out", (64, 64), "float32")])
    small = dataclasses.replace(SM_90, shared_bytes=1000)
    with pytest.raises(KernelRefused) as caught:
        compile_kernel(kernel, small)
    needed = compile_kernel(kernel, SM_90).shared
    assert str(caught.value) == f"kernel big needs {needed} bytes of shared memory, and sm_90 has 1000"
    assert needed > 1000


def test_grids_that_cannot_run() -> None:
    kernel = dataclasses.replace(SOFTMAX, grid=(1, 65_536, 1))
    assert refusal(kernel) == "kernel softmax: 65536 programs along y, where 1 to 65535 can run"
    kernel = dataclasses.replace(SOFTMAX, grid=(0, 1, 1))
    assert refusal(kernel) == "kernel softmax: 0 programs along x, where 1 to 2147483647 can run"


def test_memory_for_each_program_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = compile_module._stages(SOFTMAX, SM_90, True)
    kernel = dataclasses.replace(SOFTMAX, name="scratching")
    with monkeypatch.context() as patch:
        patch.setattr(compile_module, "_stages", lambda *args: dataclasses.replace(stages, scratch=64))
        assert refusal(kernel) == "kernel scratching needs 64 bytes of scratch memory for each program"


def test_a_terminal_shows_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    working, titles = compile_module.working, []

    def noted(title: str) -> Any:
        titles.append(title)
        return working(title)

    monkeypatch.setattr(compile_module, "working", noted)
    refusal(dataclasses.replace(SOFTMAX, name="titled", grid=(0, 1, 1)))
    assert titles == ["Triton compiles titled for sm_90"]


def test_two_threads_compile_a_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, calls = compile_module.compiled_beside, []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return compiled(*args)

    monkeypatch.setattr(compile_module, "compiled_beside", counted)
    found: list[Any] = []
    kernel = add_kernel(64, "once")
    threads = [threading.Thread(target=lambda: found.append(compile_kernel(kernel, SM_90))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(binary is found[0] for binary in found)
    assert len(calls) == 1
