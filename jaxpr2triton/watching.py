"""Who watches what runs: `check` counts kernels, tests look at the programs that were planned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Watched(Generic[Thing]):
    """Things of one sort, told to everybody who watches at that time."""

    def __init__(self) -> None:
        self._watching: list[list[Thing]] = []

    def __bool__(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watching)

    def tell(self, thing: Thing) -> None:
        for seen in self._watching:
            seen.append(thing)

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[Thing]]:
        """What is told inside of the `with`, in order."""
        seen: list[Thing] = []
        self._watching.append(seen)
        try:
            yield seen
        finally:
            self._watching[:] = [each for each in self._watching if each is not seen]
