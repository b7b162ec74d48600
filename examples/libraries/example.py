"""What an example of a library is: a function, how its arguments are drawn, and whether it has gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax


@dataclass(frozen=True)
class Example:
    """An ordinary function that calls a library; nothing in it knows of us."""

    function: Callable[..., Any]
    arguments: Callable[[jax.Array], Sequence[Any]]  # of a random key
    gradient: bool = False  # of the sum of its floating-point results, for the floating-point arguments
    batched: tuple[int, ...] = ()  # the arguments of which each row is computed by itself
    allowed: float | None = None  # the largest error, where JAX's own is larger than usual

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def says(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
