"""Compiled kernels on disk: found again by other processes, and never in the way when the folder is useless."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxpr2triton.errors import CacheWarning
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile import cache
from jaxpr2triton.launch.compile import compile as compile_module
from jaxpr2triton.launch.compile.compile import Binary, compile_kernel
from jaxpr2triton.launch.compile.triton_shim import TRITON_SIDE
from tests.launch.handmade import SOFTMAX, add_kernel, forget

SM_90 = TARGETS["sm_90"]
ROOT = Path(__file__).parents[3]

PROCESS = """
    import sys
    from tests.launch.handmade import SOFTMAX
    from jaxpr2triton.hardware import TARGETS
    from jaxpr2triton.launch.call import primitive
    from jaxpr2triton.launch.compile.compile import compile_kernel

    binary = compile_kernel(SOFTMAX, TARGETS[sys.argv[1]])
    print(binary.name, len(binary.code), "triton" in sys.modules)
"""


def in_a_process(cache_dir: Path, target: str = "sm_90") -> str:
    environ = {**os.environ, "J2T_CACHE_DIR": str(cache_dir), "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PROCESS), target]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compiled_quietly(kernel: Any = SOFTMAX) -> Binary:
    """Compiles as a fresh process would, and must not warn."""
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compile_kernel(kernel, SM_90)


def warnings_of(*kernels: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for kernel in kernels:
            compile_kernel(kernel, SM_90)
    assert all(warning.category is CacheWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def never(*args: Any) -> Any:
    pytest.fail("compiled although it is on disk")


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_another_process_does_not_even_import_triton(cache_dir: Path, target: str) -> None:
    binary = compile_kernel(SOFTMAX, TARGETS[target])
    assert in_a_process(cache_dir, target) == f"softmax {len(binary.code)} False"


def test_two_processes_at_once(cache_dir: Path) -> None:
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(in_a_process(cache_dir))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 2 and all(line.startswith("softmax ") for line in said)
    assert [path.suffix for path in cache_dir.rglob("*") if path.is_file()] == [".json"]
    assert in_a_process(cache_dir).endswith(" False")


def test_no_module_imports_triton_unless_it_is_named() -> None:
    folder = ROOT / "jaxpr2triton" / "launch"
    files = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("*.py")}
    texts = {name: path.read_text() for name, path in files.items()}
    assert {name for name, text in texts.items() if re.search(r"\b(import|from) triton\b", text)} == {*TRITON_SIDE}


def test_a_hit_is_the_same_binary(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled_quietly()
    (entry,) = cache_dir.rglob("*.json")
    assert "softmax" in entry.read_text()
    monkeypatch.setattr(compile_module, "_compiled", never)
    assert compiled_quietly() == first


def test_what_the_key_depends_on(cache_dir: Path) -> None:
    key = functools.partial(compile_module._key, lines=False)
    keys = {
        key(SOFTMAX, SM_90),
        key(SOFTMAX, SM_90, lines=True),
        key(SOFTMAX, TARGETS["sm_80"]),
        key(add_kernel(64), SM_90),
        key(add_kernel(128), SM_90),
        key(add_kernel(64, "other"), SM_90),
    }
    assert len(keys) == 6
    assert key(SOFTMAX, SM_90) in keys


PASSES = ["parted.py", "join.py", "waits.py", "alone.py", "compile.py", "triton_compiler.py"]


@pytest.mark.parametrize("changed", PASSES)
def test_a_pass_that_is_changed_makes_other_binaries(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes over Triton's code, and how Triton is asked, is a part of what a binary comes from."""
    before = compile_module._key(SOFTMAX, SM_90, False)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"\n" * (path.name == changed))
    compile_module.makers.cache_clear()
    try:
        assert compile_module._key(SOFTMAX, SM_90, False) != before
    finally:
        compile_module.makers.cache_clear()


def test_every_pass_lies_in_the_folder_that_is_a_part_of_the_key() -> None:
    """Whatever compiles is imported from there, but for what says what is compiled, and for whom."""
    folder = Path(compile_module.__file__).parent
    named = {path.stem for path in folder.glob("*.py")}
    told = {"errors", "hardware", "kernel", "knobs", "elements", "policy", "progress"}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("jaxpr2triton"):
                assert str(node.module).split(".")[-1] in named | told, f"{path.name} imports {node.module}"


def test_programs_that_are_alone_are_other_binaries() -> None:
    """Of kernels with the same text the one whose loop carries something may have all registers."""
    alone: Any = dataclasses.replace(SOFTMAX, choice=object())  # type: ignore[arg-type]  # that there is one is asked
    assert compile_module._key(alone, SM_90, False) != compile_module._key(SOFTMAX, SM_90, False)
    other = dataclasses.replace(SM_90, processors=0)
    assert compile_module._key(alone, other, False) == compile_module._key(SOFTMAX, other, False)


def test_no_cache_at_all(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    compiled_quietly()
    assert not cache_dir.exists()


@pytest.mark.parametrize("damage", ["", "not json", "{}", "cut", "changed"])
def test_a_damaged_entry_is_written_again(cache_dir: Path, damage: str) -> None:
    first = compiled_quietly()
    (entry,) = cache_dir.rglob("*.json")
    whole = entry.read_text()
    match damage:
        case "cut":
            entry.write_text(whole[: len(whole) // 2])
        case "changed":
            entry.write_text(whole.replace("sm_90", "sm_80"))
        case _:
            entry.write_text(damage)
    forget()
    (message,) = warnings_of(SOFTMAX)
    assert message == (
        f"the folder of compiled kernels {cache_dir} cannot be read ({entry.name} is damaged); "
        "kernels are compiled again"
    )
    assert entry.read_text() == whole
    assert compiled_quietly() == first


def test_an_entry_that_is_not_text(cache_dir: Path) -> None:
    compiled_quietly()
    (entry,) = cache_dir.rglob("*.json")
    entry.write_bytes(b"\xff\xfe\x00")
    forget()
    (message,) = warnings_of(SOFTMAX)
    assert "cannot be read ('utf-8' codec can't decode" in message


def test_a_folder_under_a_file_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("J2T_CACHE_DIR", str(folder))
    (message,) = warnings_of(SOFTMAX, add_kernel(), add_kernel(128))
    assert message.startswith(f"the folder of compiled kernels {folder} cannot be read ([Errno 20] Not a directory")
    monkeypatch.setenv("J2T_CACHE_DIR", str(tmp_path / "file" / "another"))
    assert len(warnings_of(add_kernel(256))) == 1


def test_a_read_only_folder_warns_once(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not stop the superuser, so the last step of writing an entry is refused by hand."""
    replace = os.replace

    def refuse(source: Any, target: Any) -> None:
        if cache_dir in Path(target).parents:
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    (message,) = warnings_of(SOFTMAX, add_kernel())
    assert message == (
        f"the folder of compiled kernels {cache_dir} cannot be written ([Errno 13] Permission denied); "
        "kernels are compiled again"
    )
    assert [path for path in cache_dir.rglob("*") if path.is_file()] == []


def test_threads_warn_once_together(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir.write_text("a file where the folder should be")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=compile_kernel, args=(add_kernel(32, f"k{i}"), SM_90)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [warning.category for warning in caught] == [CacheWarning]


# ---------------------------------------------------------------------------------------------- how much there is
def entry_of(folder: Path, number: int, size: int, age: float) -> Path:
    """A file as if it had been used so many seconds ago."""
    path = cache._path(folder, f"{number:02x}" * 32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def once() -> Iterator[None]:
    cache.tidied.cache_clear()
    yield
    cache.tidied.cache_clear()


def test_what_was_used_least_recently_goes(cache_dir: Path, monkeypatch: pytest.MonkeyPatch, once: None) -> None:
    monkeypatch.setenv("J2T_CACHE_SIZE", "1")
    old, used, new = (entry_of(cache_dir, n, 300_000, age) for n, age in enumerate([300_000, 200_000, 100]))
    users = cache_dir / "00" / "notes.json"
    users.write_bytes(bytes(2_000_000))
    cache.used(used)
    cache.write_entry(cache_dir, "ab" * 32, {"code": "x" * 300_000})
    assert not old.exists() and used.exists() and new.exists() and users.exists()
    assert cache.read_entry(cache_dir, "ab" * 32) == {"code": "x" * 300_000}
    cache.write_entry(cache_dir, "cd" * 32, {"code": "x" * 900_000})  # once in a process is enough
    assert used.exists() and new.exists()


def test_what_killed_processes_left_goes(cache_dir: Path, once: None) -> None:
    (cache_dir / "machine").mkdir(parents=True)
    old, new, users = (cache_dir / "machine" / name for name in ("j2t-a1_x.tmp", "j2t-b.tmp", "users.tmp"))
    for path, age in ((old, 2 * cache.ABANDONED), (new, 10), (users, 2 * cache.ABANDONED)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    cache.write_entry(cache_dir, "ab" * 32, {})
    assert not old.exists() and new.exists() and users.exists()


def test_a_process_that_is_killed_while_it_writes(cache_dir: Path) -> None:
    """What it leaves has a name that others know it by."""
    cache_dir.mkdir()
    with pytest.raises(ZeroDivisionError), cache.unfinished(cache_dir / "ab.json") as file:
        assert re.fullmatch(r"j2t-\w+\.tmp", file.name) and file.parent == cache_dir
        raise ZeroDivisionError
    assert list(cache_dir.iterdir()) == []
