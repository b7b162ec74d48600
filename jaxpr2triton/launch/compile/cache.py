"""What is compiled, on disk: kernels, one small file each, and the machine's libraries, written whole or not at all.

A folder that cannot be used, and an entry that cannot be read, cost one warning for each folder and process, and what
is missing is compiled again. Once in each process that writes, what was used least recently goes until all is no more
than J2T_CACHE_SIZE, and so does what processes that were killed have left behind.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxpr2triton.errors import CacheWarning, warn
from jaxpr2triton.knobs import read_knobs

LIBRARIES = "machine"  # the folder of the machine's
OURS = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}\.json|machine/[0-9a-f]{32}\.so")  # and nobody else's
UNFINISHED = re.compile(r"([0-9a-f]{2}|machine)/j2t-\w+\.tmp")
ABANDONED = 3600  # seconds: nobody writes for so long
USED_AGAIN = 86_400  # seconds from which on it is noted that a file was used
_warned: set[Path] = set()
_lock = threading.Lock()


def read_entry(folder: Path, key: str) -> dict[str, Any] | None:
    """The entry `key`, or None if there is none that can be trusted."""
    path = _path(folder, key)
    try:
        text = path.read_text("utf-8")
        digest, _, body = text.partition("\n")
        if digest != _digest(body):
            raise ValueError(f"{path.name} is damaged")
        used(path)
        return json.loads(body)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        _warn(folder, "read", problem)
        return None


def write_entry(folder: Path, key: str, entry: dict[str, Any]) -> None:
    """Many processes may write the same entry at once: the last one to finish wins."""
    path = _path(folder, key)
    body = json.dumps(entry)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(path) as file:
            file.write_text(f"{_digest(body)}\n{body}", "utf-8")
        tidied(folder)
    except OSError as problem:
        _warn(folder, "written", problem)


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A file beside that one, which takes its place when all went well, and is gone in any case."""
    handle, name = tempfile.mkstemp(".tmp", "j2t-", path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    finally:
        with contextlib.suppress(OSError):  # it is there no more, or what went wrong is told already
            os.unlink(name)


def used(path: Path) -> None:
    """So that it is not taken for old."""
    with contextlib.suppress(OSError):  # it belongs to somebody else, or cannot be written
        if time.time() - path.stat().st_mtime > USED_AGAIN:
            os.utime(path)


@functools.lru_cache(maxsize=64)
def tidied(folder: Path) -> None:
    """Once in a process."""
    now, most = time.time(), read_knobs().cache_size * 1_000_000
    for path, found in _files(folder, UNFINISHED):
        if now - found.st_mtime > ABANDONED:
            _remove(path)
    files = sorted(_files(folder, OURS), key=lambda each: each[1].st_mtime, reverse=True)
    size = 0
    for path, found in files:
        size += found.st_size
        if size > most:
            _remove(path)


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.glob("*/*"):
        if names.fullmatch(f"{path.parent.name}/{path.name}"):
            with contextlib.suppress(OSError):  # another process was faster
                yield path, path.stat()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or owns it
        path.unlink()


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _warn(folder: Path, verb: str, problem: Exception) -> None:
    with _lock:
        if folder in _warned:
            return
        _warned.add(folder)
    text = f"the folder of compiled kernels {folder} cannot be {verb} ({problem}); kernels are compiled again"
    warn(text, CacheWarning)
