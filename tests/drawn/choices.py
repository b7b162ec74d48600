"""Where a generator's choices come from: hypothesis, which makes failures small, or a seed, which is fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hypothesis import strategies as st


class Choices(Protocol):
    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options; the first is the simplest."""

    def number(self, low: int, high: int) -> int:
        """A number, `high` included."""

    def step(self, run: Callable[[], None]) -> None:
        """Do something that can be left out when the program is made smaller."""


class Random:
    def __init__(self, *seed: int) -> None:
        self._random = random.Random(repr(seed))

    def pick(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def step(self, run: Callable[[], None]) -> None:
        run()


class Hypothesis:
    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def step(self, run: Callable[[], None]) -> None:
        outer = self._draw

        @st.composite
        def step(draw: Any) -> None:
            self._draw = draw
            run()

        try:
            outer(step())
        finally:
            self._draw = outer
