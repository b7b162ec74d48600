"""Compiled kernels on disk: one small file each, written whole or not at all.

A folder that cannot be used, and an entry that cannot be read, cost one warning for each folder and process, and the
kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

from jaxpr2triton.errors import CacheWarning

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
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
            unfinished = file.name
            file.write(f"{_digest(body)}\n{body}")
        os.replace(unfinished, path)
        unfinished = None
    except OSError as problem:
        _warn(folder, "written", problem)
    finally:
        if unfinished is not None:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _warn(folder: Path, verb: str, problem: Exception) -> None:
    with _lock:
        if folder in _warned:
            return
        _warned.add(folder)
    message = f"the folder of compiled kernels {folder} cannot be {verb} ({problem}); kernels are compiled again"
    warnings.warn(message, CacheWarning, stacklevel=4)
