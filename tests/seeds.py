"""What `default_rng()` draws without a seed can be drawn again: `--seed N` gives the numbers of a failure once more.

Each test has numbers of its own, whichever ran before it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import numpy as np

_default_rng = np.random.default_rng


class Seeds:
    """In place of `np.random.default_rng`, for whoever gives it no seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.test, self.drawn = seed, "", Counter[str]()

    def __call__(self, seed: Any = None) -> np.random.Generator:
        if seed is not None:
            return _default_rng(seed)
        self.drawn[self.test] += 1
        return _default_rng([self.seed, zlib.crc32(self.test.encode()), self.drawn[self.test]])

    def begin(self, test: str) -> None:
        self.test = test
        self.drawn[test] = 0


def fresh_seed() -> int:
    return int(_default_rng().integers(1 << 31))
