"""What all programs with loops are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.programs import Arguments, Program, Rng


@dataclass(frozen=True)
class LoopProgram(Program):
    """Tags as those of `Program`, and: `random` (draws random numbers inside), `while` (steps are counted on the
    device), `chaotic` (errors grow from step to step)."""

    full: Callable[..., Any] | None = None

    @property
    def bench_fn(self) -> Callable[..., Any]:
        return self.full or self.fn


def scaled(scale: float, arguments: Arguments) -> Arguments:
    return lambda rng: tuple(arg * arg.dtype.type(scale) for arg in arguments(rng))


def uniform(low: float, high: float, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Arguments:
    return lambda rng: tuple(rng.uniform(low, high, shape).astype(dtype) for shape in shapes)


def one_key(rng: Rng) -> tuple[Any]:
    return (jax.random.key(int(rng.integers(2**31))),)


def keys(count: int) -> Arguments:
    return lambda rng: (jax.random.split(one_key(rng)[0], count),)


def together(**parts: Arguments) -> Arguments:
    """One dictionary, with one array from each part."""
    return lambda rng: ({name: part(rng)[0] for name, part in parts.items()},)


BF16 = jnp.bfloat16
F64 = np.float64
ONE = frozenset({"one kernel"})
RANDOM = ONE | {"random"}
WHILE = ONE | {"while"}
LOW = ONE | {"low"}
X64 = ONE | {"x64"}
CHAOTIC = ONE | {"chaotic"}
