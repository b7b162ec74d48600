"""What takes too long is given up."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class TooLong(BaseException):
    """Nothing on the way catches this."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `TooLong` when it takes longer."""

    def too_long(number: int, frame: object) -> None:
        raise TooLong(f"took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again where an exception is ignored
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
