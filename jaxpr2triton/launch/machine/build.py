"""C into a shared library: found on disk, or made by this computer's compiler.

    built("int one(void) { return 1; }")   →   ~/.cache/jaxpr2triton/machine/3f….so

A library is known by its text, the flags, the compiler and the processor that it is made for, and is written whole or
not at all: of processes that make the same one at once, the last to finish wins. Where the folder cannot be written, or
J2T_CACHE=0, libraries are in a temporary folder of this process.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

from jaxpr2triton.errors import BackendError, CacheWarning, CompilerBug
from jaxpr2triton.knobs import read_knobs

HERE = Path(__file__).parent
# No product is contracted into a sum, integers wrap, and rows are read as what they are; see `arithmetic.h`.
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
    *("-fno-trapping-math", "-fno-strict-aliasing", "-w", "-shared", "-fPIC"),
)
_HINT = "install gcc, or set CC to a compiler of C that is like it"
_folder_lock = threading.Lock()


def built(text: str, defines: Sequence[str] = ()) -> Path:
    """The shared library of a text, which may include what lies in this folder."""
    compiler = _compiler()
    flags = [*FLAGS, *(f"-D{each}" for each in defines), f"-I{HERE}"]
    headers = [path.read_text("utf-8") for path in sorted(HERE.glob("*.h"))]
    parts = [text, *headers, *FLAGS, *defines, _identity(compiler)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = _folder() / f"{key[:32]}.so"
    if not path.exists():
        _compile(compiler, flags, text, path)
    return path


def opened(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as problem:
        hint = f"delete {path}, or set J2T_CACHE_DIR to a folder that libraries may be loaded from"
        raise BackendError(f"the machine's library cannot be loaded: {problem}", hint=hint) from problem


def _compile(compiler: tuple[str, ...], flags: Sequence[str], text: str, path: Path) -> None:
    handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    try:
        command = [*compiler, *flags, "-x", "c", "-", "-o", unfinished, "-lm"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            raise CompilerBug(f"{compiler[0]} refuses the machine's own C: {done.stderr[:2000]}")
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


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
            message = f"the machine needs a compiler of C, and {compiler[0]} cannot be run ({problem.strerror})"
            raise BackendError(message, hint=_HINT) from problem
    return "\n".join(said)


def _folder() -> Path:
    knobs = read_knobs()
    if not knobs.cache:
        return _temporary()
    folder = knobs.cache_dir / "machine"
    return folder if _is_writable(folder) else _temporary()


@functools.cache
def _is_writable(folder: Path) -> bool:
    """One warning for each folder that is not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as problem:
        message = (
            f"the folder of the machine's libraries {folder} cannot be written ({problem}); they are compiled again"
        )
        warnings.warn(message, CacheWarning, stacklevel=2)
        return False


def _temporary() -> Path:
    with _folder_lock:  # halves of a library are built at the same time
        return Path(_temporary_folder().name)


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="jaxpr2triton-")
