"""Long work is seen: on a terminal one line while it lasts, and for `logging` how long each stage took.

    jaxpr2triton: planning loss_bwd: emit, kernel 12 of 40, 3 s

The line comes after two seconds, on stderr where that is a terminal, and is gone when all is done. Whoever works says
where it is, and need not know whether anybody looks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

LOGGER = logging.getLogger("jaxpr2triton")
PATIENCE = 2.0  # seconds until a line appears
PERIOD = 0.2  # seconds between two looks at it
CLEAR = "\r\x1b[K"

Item = TypeVar("Item")


@dataclass
class Work:
    """What is being done, and where it is."""

    title: str = ""
    stage: str = ""
    place: str = ""  # within the stage: kernel 3 of 7
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.stage, self.place, f"{self.elapsed:.0f} s")))
        return f"jaxpr2triton: {self.title}: {where}"


_CURRENT: ContextVar[Work | None] = ContextVar("jaxpr2triton_work", default=None)
_SCREEN = threading.Lock()  # whoever holds it has the terminal's line


@contextlib.contextmanager
def working(title: str) -> Iterator[Work]:
    """Something that may take long; within other such work it is a part of that on the terminal."""
    work = Work(title)
    token = _CURRENT.set(work)
    done = threading.Event()
    stream = _terminal()
    shows = stream is not None and _SCREEN.acquire(blocking=False)
    thread = threading.Thread(target=_show, args=(work, stream, done), name="jaxpr2triton progress", daemon=True)
    try:
        if shows:
            thread.start()
        yield work
    except KeyboardInterrupt as interrupt:  # who sees it is told what it was that took so long
        raise interrupt if interrupt.args else KeyboardInterrupt(str(work)) from None
    finally:
        _CURRENT.reset(token)
        done.set()
        if thread.is_alive():
            thread.join()  # the line is gone before anything else is written
        if shows:
            _SCREEN.release()


@contextlib.contextmanager
def during(stage: str) -> Iterator[None]:
    """One stage of the work at hand; several times the same one count together."""
    work = _CURRENT.get() or Work()
    work.stage, work.place, before = stage, "", time.perf_counter()
    try:
        yield
    finally:
        work.seconds[stage] = work.seconds.get(stage, 0.0) + time.perf_counter() - before


def counted(noun: str, items: Collection[Item]) -> Iterator[Item]:
    """The items, one after the other, while the work at hand says which one it is at."""
    work = _CURRENT.get() or Work()
    for number, item in enumerate(items, 1):
        work.place = f"{noun} {number} of {len(items)}"
        yield item


def _terminal() -> TextIO | None:
    """Standard error, if somebody looks at it who can have a line cleared."""
    stream = sys.stderr
    try:
        return stream if stream.isatty() and os.environ.get("TERM") != "dumb" else None
    except (AttributeError, ValueError):  # there is none, or it has been closed
        return None


def _show(work: Work, stream: TextIO, done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    with contextlib.suppress(OSError, ValueError):  # the terminal has gone
        while not done.wait(PERIOD):
            stream.write(CLEAR + str(work)[: shutil.get_terminal_size().columns - 1])
            stream.flush()
        stream.write(CLEAR)
        stream.flush()
