"""Python's garbage collector, which looks through all of JAX's objects again and again while a program is planned.

Planning makes many objects and keeps most of them. Every few hundred start a collection, and whenever a quarter of all
that has lasted is new, it is a collection of everything, of which JAX's modules alone take 0.07 s. Those come to a
quarter of the time that planning takes, in steps. So the collector waits for many more new objects meanwhile. It is
not switched off: a large program makes a hundred MiB of cycles. Nor is it switched on where somebody switched it off.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass

NEW_OBJECTS = 100_000  # before the young ones among them are collected

Thresholds = tuple[int, int, int]


@dataclass
class _Waiting:
    """How many are planning, and which thresholds there were before the first of them began, if those were changed."""

    plans: int = 0
    before: Thresholds | None = None
    meanwhile: Thresholds | None = None


_LOCK = threading.Lock()
_WAITING = _Waiting()


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Fewer collections inside of the `with`; of several, in each other or in several threads, the last one ends it."""
    with _LOCK:
        if _WAITING.plans == 0:
            _wait()
        _WAITING.plans += 1
    try:
        yield
    finally:
        with _LOCK:
            _WAITING.plans -= 1
            if _WAITING.plans == 0:
                _as_before()


def _wait() -> None:
    before = gc.get_threshold()
    if 0 < before[0] < NEW_OBJECTS:  # 0 is how one switches collections off
        gc.set_threshold(NEW_OBJECTS, *before[1:])
        _WAITING.before, _WAITING.meanwhile = before, gc.get_threshold()


def _as_before() -> None:
    """What somebody else has set meanwhile stays."""
    before, _WAITING.before = _WAITING.before, None
    if before is not None and gc.get_threshold() == _WAITING.meanwhile:
        gc.set_threshold(*before)
