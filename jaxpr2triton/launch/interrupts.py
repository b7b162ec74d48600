"""Ctrl-C while XLA waits for a kernel that runs in Triton's interpreter.

A `KeyboardInterrupt` does not get through XLA, which makes an error of its own out of every exception. So the kernel
that is interrupted gives results that mean nothing, those after it in the same call do not run, and the interrupt is
delivered once more when the call is over, within about a millisecond.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeVar

SKIPPED_AT_MOST = 1000  # kernels; more of them are a loop of XLA's that may never end with such results

T = TypeVar("T")


@dataclass
class _Postponed:
    """An interrupt on its way out of XLA."""

    callbacks: frozenset[CodeType]  # what XLA calls
    handler: Any  # of SIGINT, from before
    skipped: int = 0
    delivered: bool = False


_postponed: list[_Postponed] = []  # one at most


def interruptible(run: Callable[[], T], meaningless: Callable[[], T]) -> T:
    """`run()`, called by XLA; if that is interrupted, results that mean nothing, and the interrupt later."""
    if threading.current_thread() is not threading.main_thread():  # no other is ever interrupted
        return run()
    for interrupt in _postponed:
        interrupt.skipped += 1
        if interrupt.skipped > SKIPPED_AT_MOST:
            raise KeyboardInterrupt
        return meaningless()
    try:
        return run()
    except KeyboardInterrupt:
        callback = sys._getframe(1)
        outer = callback.f_back
        _postpone(_Postponed(frozenset({callback.f_code, *([outer.f_code] if outer else [])}), None))
        return meaningless()


def _postpone(interrupt: _Postponed) -> None:
    interrupt.handler = signal.getsignal(signal.SIGINT)
    patience, trying = sys.getswitchinterval(), threading.Lock()

    def handle(number: int, frame: FrameType | None) -> None:
        # it is called again at any call in here, as long as `deliver` goes on
        if interrupt.delivered or _runs(interrupt.callbacks, frame):
            return  # not yet: XLA would swallow it
        interrupt.delivered = True
        with trying:  # the last try is over
            _postponed.remove(interrupt)
        sys.setswitchinterval(patience)
        signal.signal(signal.SIGINT, interrupt.handler)
        if callable(interrupt.handler):
            interrupt.handler(number, frame)
        raise KeyboardInterrupt

    def deliver() -> None:
        while True:
            with trying:
                if interrupt.delivered:
                    return
                _thread.interrupt_main()
            time.sleep(0)  # the other thread's turn

    _postponed.append(interrupt)
    signal.signal(signal.SIGINT, handle)
    sys.setswitchinterval(1e-6)  # or what reads the results has 5 ms to do so
    threading.Thread(target=deliver, daemon=True).start()


def _runs(callbacks: frozenset[CodeType], frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False
