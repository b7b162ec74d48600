"""The machine's libraries: made once, kept on disk, whole or not at all, and what is said where that cannot be."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from jaxpr2triton.errors import BackendError, CacheWarning, CompilerBug
from jaxpr2triton.launch.machine import build, library
from tests.machine.lanes import PROTOTYPE, carries_of, operands_of

ANSWER = "int answer(void) { return 42; }\n"
QUESTION = "int question(void) { return 6 * 9; }\n"


def built(text: str, defines: Sequence[str] = ()) -> Path:
    (path,) = build.built([text], defines)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("J2T_CACHE_DIR", str(tmp_path))
    return tmp_path / "machine"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on."""
    texts: list[str] = []
    real = build._compile

    def counted(compiler: tuple[str, ...], flags: list[str], text: str, path: Path) -> None:
        texts.append(text)
        real(compiler, flags, text, path)

    monkeypatch.setattr(build, "_compile", counted)
    return texts


def test_a_library_is_made_once(folder: Path, compilations: list[str]) -> None:
    first, again = built(ANSWER), built(ANSWER)
    assert first == again and first.parent == folder and compilations == [ANSWER]
    assert build.opened(first).answer() == 42
    assert [path.suffix for path in folder.iterdir()] == [".so"]


def test_text_flags_and_defines_make_another_one(folder: Path) -> None:
    paths = [built(ANSWER), built(ANSWER + "\n"), built(ANSWER, ["NOISE"])]
    assert len(set(paths)) == 3


def test_another_processor_makes_another_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = built(ANSWER)
    monkeypatch.setattr(build, "_identity", lambda compiler: "another")
    assert built(ANSWER) != first


@pytest.mark.parametrize("changed", sorted(path.name for path in build.HERE.glob("*.h")))
def test_a_header_that_is_changed_makes_another_one(
    changed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing need be compiled to see that."""
    monkeypatch.setattr(build, "_compile", lambda *_: None)
    before, read = built(ANSWER), Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, *how: read(path, *how) + "\n" * (path.name == changed))
    assert built(ANSWER) != before


def test_without_the_cache_it_is_in_a_temporary_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    assert build.opened(built(ANSWER)).answer() == 42
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine").write_text("in the way")
    monkeypatch.setenv("J2T_CACHE_DIR", str(tmp_path))
    with pytest.warns(CacheWarning) as caught:
        path = built(ANSWER)
    (warning,) = caught
    reason = f"[Errno 17] File exists: '{tmp_path / 'machine'}'"
    assert str(warning.message) == (
        f"the folder of the PTX simulator's libraries {tmp_path / 'machine'} cannot be written ({reason}); "
        "they are compiled again"
    )
    assert build.opened(path).answer() == 42
    built(ANSWER)  # and no second one


def test_without_a_compiler_the_message_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O0")
    with pytest.raises(BackendError) as caught:
        built(ANSWER)
    assert str(caught.value) == (
        "the PTX simulator needs a C compiler, and no-such-compiler cannot be run (No such file or directory)\n"
        "  try  install gcc, or set CC to a C compiler that is like it"
    )


def test_c_that_does_not_compile_is_a_mistake_of_ours(folder: Path) -> None:
    with pytest.raises(CompilerBug, match="gcc refuses the C of the PTX simulator"):
        built("int answer(void) { return nothing; }")
    assert list(folder.iterdir()) == []


FULL = """#!/bin/sh
case "$*" in *-Q*|*--version*) exec gcc "$@";; esac
for last; do :; done
rm -f "$(echo "$*" | sed 's/.* -o \\([^ ]*\\).*/\\1/')"
echo "/tmp/cc5.s: Assembler messages:" >&2
echo "Fatal error: cannot write to output file: No space left on device" >&2
exit 1
"""


def as_compiler(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "compiler"
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    return path


def test_a_full_disk_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler removes what it could not write, so that there is nothing to remove."""
    as_compiler(FULL, tmp_path, monkeypatch)
    with pytest.raises(BackendError) as caught:
        built(ANSWER)
    assert str(caught.value) == (
        f"the library of the PTX simulator cannot be written to {folder} (No space left on device)\n"
        "  try  make room, or set J2T_CACHE_DIR, and TMPDIR for the compiler, to folders that have some"
    )
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_told_where_the_digest_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(BackendError, match=r"cannot be written to .* \(No space left on device\)"):
        built(ANSWER)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("gcc: fatal error: cannot execute 'cc1'", "gcc: fatal error: cannot execute 'cc1'"),
        ("<stdin>:3:1: error: unknown attribute", "<stdin>:3:1: error: unknown attribute"),
        ("", "it does not say why"),
    ],
)
def test_a_compiler_that_is_not_like_gcc_is_no_mistake_of_ours(
    says: str, told: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_compiler(f'#!/bin/sh\ncat >/dev/null\necho "{says}" >&2\nexit 1\n', tmp_path, monkeypatch)
    with pytest.raises(BackendError) as caught:
        built(ANSWER)
    assert str(caught.value) == (
        f"{path} cannot compile the C of the PTX simulator: {told}\n"
        "  try  install gcc, or set CC to a C compiler that is like it"
    )


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "before the digest"])
def test_a_damaged_library_is_made_again(folder: Path, damage: str, compilations: list[str]) -> None:
    path = built(ANSWER)
    whole = path.read_bytes()
    match damage:
        case "cut":  # to load it would end the process: what is missing is looked for behind the end of the file
            path.write_bytes(whole[: len(whole) // 2])
        case "changed":
            path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
        case "empty":
            path.write_bytes(b"")
        case _:
            path.write_bytes(whole[:-32])
    with pytest.warns(CacheWarning) as caught:
        assert built(ANSWER) == path
    (warning,) = caught
    assert str(warning.message) == f"the library {path} of the PTX simulator is damaged; it is compiled again"
    assert compilations == [ANSWER] * 2 and build.opened(path).answer() == 42
    built(ANSWER)  # and no second warning
    assert compilations == [ANSWER] * 2


def test_a_warning_about_one_of_several_points_at_who_asked_for_them(folder: Path) -> None:
    """They are compiled by threads, whose innermost line outside of this package is one of Python's own."""
    path, other = build.built([ANSWER, QUESTION])
    path.write_bytes(b"")
    other.write_bytes(b"")
    with pytest.warns(CacheWarning) as caught:
        assert build.built([ANSWER, QUESTION]) == [path, other]
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert build.opened(path).answer() == 42 and build.opened(other).question() == 54


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_text("no library")
    path = tmp_path / "broken.so"
    with pytest.raises(BackendError) as caught:
        build.opened(path)
    assert str(caught.value) == (
        f"the library of the PTX simulator cannot be loaded: {caught.value.__cause__}\n"
        f"  try  delete {path}, or set J2T_CACHE_DIR to a folder that libraries may be loaded from"
    )


def test_a_library_that_cannot_be_read(folder: Path) -> None:
    path = built(ANSWER)
    path.unlink()
    path.mkdir()
    with pytest.raises(BackendError) as caught:
        built(ANSWER)
    assert str(caught.value) == f"the library {path} of the PTX simulator cannot be read (Is a directory)"


def test_the_log_says_where_it_is_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jaxpr2triton"):
        built(ANSWER)
    assert caplog.messages == [f"compiled a library of the PTX simulator, which is kept in {folder}"]


TWO = f"""
from jaxpr2triton.launch.machine.build import built, opened
print(opened(*built([{ANSWER!r}])).answer())
"""


def test_two_processes_make_the_same_one_at_once(folder: Path) -> None:
    environ = {**os.environ, "J2T_CACHE_DIR": str(folder.parent)}
    running = [
        subprocess.Popen([sys.executable, "-c", TWO], env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0] for process in running] == ["42\n", "42\n"]
    assert [path.suffix for path in folder.iterdir()] == [".so"]


USER = """
import jax, jax.numpy as jnp
import jaxpr2triton as j2t

for call in (lambda f: f, jax.jit, jax.grad):
    try:
        call(j2t.fuse(lambda x: jnp.sin(x).sum(), backend="machine"))(jnp.ones(8))
    except j2t.BackendError as error:
        print(str(error).splitlines()[0])
"""


def test_users_are_told_that_there_is_no_compiler(tmp_path: Path) -> None:
    """Before anything runs, and so under every transformation; an error of a callback would be one of XLA's."""
    environ = {**os.environ, "J2T_CACHE_DIR": str(tmp_path), "CC": "no-such-gcc"}
    done = subprocess.run([sys.executable, "-c", USER], env=environ, capture_output=True, text=True)
    told = "the PTX simulator needs a C compiler, and no-such-gcc cannot be run (No such file or directory)\n"
    assert (done.stdout, done.stderr) == (told * 3, "")


def test_long_compilations_are_seen(folder: Path, nothing_loaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(library, "working", lambda title: titles.append(title) or contextlib.nullcontext())
    library.operation_functions(["add.f32"])
    library.operation_functions(["xor.b32"])
    assert titles == ["compiling the PTX simulator's operations, once for this computer"]


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_functions", {})
    monkeypatch.setattr(library, "usual_operations", lambda: ("add.f32", "ex2.approx.f32", "xor.b32"))


def test_unknown_spellings_are_one_more_library(folder: Path, compilations: list[str], nothing_loaded: None) -> None:
    usual = library.operation_functions(["add.f32", "xor.b32"])
    assert len(compilations) == library.PARTS
    more = library.operation_functions(["div.rz.f32", "add.f32", "cnot.b16", "div.rz.f32"])
    assert len(compilations) == library.PARTS + 1
    assert list(more) == ["div.rz.f32", "add.f32", "cnot.b16"] and more["add.f32"] == usual["add.f32"]
    library.operation_functions(["cnot.b16"])
    assert len(compilations) == library.PARTS + 1


def test_threads_compile_nothing_twice(folder: Path, compilations: list[str], nothing_loaded: None) -> None:
    found: list[dict[str, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(library.operation_functions(["xor.b32"]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations) == library.PARTS and len({each["xor.b32"] for each in found}) == 1


def test_an_operation_that_nobody_knows_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(CompilerBug, match="there is no operation wgmma.f32"):
        library.operation_functions(["wgmma.f32"])


def values_of(opcode: str, address: int, *rows: np.ndarray) -> np.ndarray:
    found = np.zeros(32, np.float32)
    pointers = ctypes.c_void_p * 4
    PROTOTYPE(address)(pointers(found.ctypes.data), pointers(*(row.ctypes.data for row in rows)), None)
    return found


def test_noise_is_two_units_at_most_and_the_same_for_the_same_operand() -> None:
    x = np.linspace(-8, 8, 32, dtype=np.float32)
    x[:4] = [np.inf, -np.inf, np.nan, 0]
    opcodes = ["ex2.approx.ftz.f32", "add.f32"]
    plain, noisy = library.operation_functions(opcodes), library.operation_functions(opcodes, noise=True)
    assert plain["add.f32"] == noisy["add.f32"]
    right, found, again = (values_of(opcodes[0], each[opcodes[0]], x) for each in (plain, noisy, noisy))
    units = found.view(np.int32) - right.view(np.int32)
    assert (found.view(np.int32) == again.view(np.int32)).all()
    assert not units[:3].any() and abs(units).max() <= 2 and {-1, 0, 1} <= set(units.tolist())


def test_a_result_may_be_the_row_of_an_operand() -> None:
    opcode = "sub.s32"
    function = PROTOTYPE(library.operation_functions([opcode])[opcode])
    a, b = (row[0].copy() for row in operands_of(opcode))
    expected = a - b
    pointers = ctypes.c_void_p * 4
    function(pointers(b.ctypes.data), pointers(a.ctypes.data, b.ctypes.data), carries_of(opcode)[0].ctypes.data)
    assert (b == expected).all()


CORE = """
#include "arithmetic.h"
#include "layout.h"
int lanes = LANES;
f32 nearest_bf16(f32 x) { return bf16_value(bf16_rn(x)); }
"""


def test_the_core_is_compiled_with_the_arithmetic(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "core.c").write_text(CORE)
    core = library.core(tmp_path / "core.c")
    assert ctypes.c_int.in_dll(core, "lanes").value == 32
    core.nearest_bf16.restype = ctypes.c_float
    assert core.nearest_bf16(ctypes.c_float(1.00390625)) == 1.0
