"""C into a shared library: found on disk, or made by this computer's compiler.

    built(["int one(void) { return 1; }"])   →   ~/.cache/jaxpr2triton/machine/3f….so

A library is known by its text, the flags, the compiler and the processor that it is made for, and is written whole or
not at all: of processes that make the same one at once, the last to finish wins. Behind its end is the digest of what
comes before, which nobody who loads it reads; where that is another one, the library is damaged, and is made again.
Where the folder cannot be written, or J2T_CACHE=0, libraries are in a temporary folder of this process.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jaxpr2triton.errors import BackendError, CacheWarning, CompilerBug, warn
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.launch.compile.cache import LIBRARIES, tidied, unfinished, used
from jaxpr2triton.progress import LOGGER

HERE = Path(__file__).parent
# No product is contracted into a sum, integers wrap, and rows are read as what they are; see `arithmetic.h`.
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
    *("-fno-trapping-math", "-fno-strict-aliasing", "-w", "-shared", "-fPIC"),
)
_FORMAT = "with a digest"  # of the files
_HINT = "install gcc, or set CC to a C compiler that is like it"
_OURS = re.compile(r"^<stdin>:\d+:\d+: error: |^\S*/machine/\w+\.h:\d+:\d+: error: ", re.MULTILINE)


def built(texts: Sequence[str], defines: Sequence[str] = ()) -> list[Path]:
    """The shared libraries of texts, which may include what lies in this folder, compiled at the same time.

    What there is to be said about files is said in the caller's thread, where warnings find the user's line.
    """
    compiler = _compiler()
    flags = [*FLAGS, *(f"-D{each}" for each in defines), f"-I{HERE}"]
    headers = [path.read_text("utf-8") for path in sorted(HERE.glob("*.h"))]
    folder = _folder()
    paths = {}
    for text in texts:
        parts = [_FORMAT, text, *headers, *FLAGS, *defines, _identity(compiler)]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        paths[text] = folder / f"{key[:32]}.so"
    missing = [text for text, path in paths.items() if not _is_whole(path)]
    if missing:
        with ThreadPoolExecutor(len(missing)) as pool:
            list(pool.map(lambda text: _compile(compiler, flags, text, paths[text]), missing))
    return [paths[text] for text in texts]


def opened(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as problem:
        hint = f"delete {path}, or set J2T_CACHE_DIR to a folder that libraries may be loaded from"
        raise BackendError(f"the library of the PTX simulator cannot be loaded: {problem}", hint=hint) from problem


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise BackendError(f"the library {path} of the PTX simulator cannot be read ({problem.strerror})") from problem
    code, digest = content[:-32], content[-32:]
    if hashlib.sha256(code).digest() != digest:
        warn(f"the library {path} of the PTX simulator is damaged; it is compiled again", CacheWarning)
        return False
    used(path)
    return True


def _compile(compiler: tuple[str, ...], flags: Sequence[str], text: str, path: Path) -> None:
    try:
        with unfinished(path) as file:
            command = [*compiler, *flags, "-x", "c", "-", "-o", str(file), "-lm"]
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            if done.returncode:
                raise _refused(compiler[0], done.stderr, path.parent)
            LOGGER.info("compiled a library of the PTX simulator, which is kept in %s", path.parent)
            code = file.read_bytes()
            with file.open("ab") as end:
                end.write(hashlib.sha256(code).digest())
        if path.parent == _shared():
            tidied(path.parent.parent)
    except OSError as problem:
        raise _cannot_be_written(path.parent, str(problem.strerror)) from problem


def _refused(compiler: str, said: str, folder: Path) -> BackendError | CompilerBug:
    """Of gcc a mistake of ours, if it is our C that it complains of; else this computer's trouble."""
    if _FULL in said:
        return _cannot_be_written(folder, _FULL)
    if _OURS.search(said) and "CC" not in os.environ:
        return CompilerBug(f"{compiler} refuses the C of the PTX simulator: {said[:2000]}")
    lines = [line for line in said.splitlines() if line.strip()]
    telling = [*(line for line in lines if "error" in line or "fatal" in line), *lines, "it does not say why"]
    return BackendError(f"{compiler} cannot compile the C of the PTX simulator: {telling[0][:300]}", hint=_HINT)


_FULL = os.strerror(28)  # ENOSPC, as compilers say it too


def _cannot_be_written(folder: Path, why: str) -> BackendError:
    hint = "make room, or set J2T_CACHE_DIR, and TMPDIR for the compiler, to folders that have some"
    return BackendError(f"the library of the PTX simulator cannot be written to {folder} ({why})", hint=hint)


def _compiler() -> tuple[str, ...]:
    return tuple(shlex.split(os.environ.get("CC", ""))) or ("gcc",)


@functools.cache
def _identity(compiler: tuple[str, ...]) -> str:
    """Which compiler it is, and what -march=native means here."""
    said = []
    for question in ("--version", "-Q"):
        more = ("--help=target", "-march=native") if question == "-Q" else ()
        try:
            said.append(subprocess.run([*compiler, question, *more], capture_output=True, text=True).stdout)
        except OSError as problem:
            message = f"the PTX simulator needs a C compiler, and {compiler[0]} cannot be run ({problem.strerror})"
            raise BackendError(message, hint=_HINT) from problem
    return "\n".join(said)


def _folder() -> Path:
    folder = _shared()
    return folder if folder is not None and _is_writable(folder) else Path(_temporary_folder().name)


def _shared() -> Path | None:
    """The folder of all processes."""
    knobs = read_knobs()
    return knobs.cache_dir / LIBRARIES if knobs.cache else None


@functools.cache
def _is_writable(folder: Path) -> bool:
    """One warning for each folder that is not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as problem:
        what = f"the folder of the PTX simulator's libraries {folder} cannot be written ({problem})"
        warn(f"{what}; they are compiled again", CacheWarning)
        return False


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="jaxpr2triton-")
