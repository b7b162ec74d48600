"""What one program at a size people run is made of, and how its arguments are told by their sizes before they are made.

`Drawn` and `Host` are called for arguments; their `sizes` are those of the same arguments, for tracing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.programs import Arguments, Rng
from tests.works import both

Function = Callable[..., Any]
FORWARD, WITH_GRADIENTS = "forward", "with gradients"
REAL, PUBLISHED = "real", "published"


@dataclass(frozen=True)
class Large:
    group: str  # "real" or "published"
    name: str  # unique with kind
    kind: str  # "forward" or "with gradients"
    function: Function
    arguments: Callable[[], tuple[Any, ...]]
    sizes: str = ""
    published: float | None = None  # µs
    source: str = ""  # where that is from and on which device, or why there is none
    others: Mapping[str, Function] = field(default_factory=dict)  # alternatives, given the same arguments
    jit_seconds: float = 0.0  # about how long `jax.jit` takes on an H100, where that is more than 0.2 s

    @property
    def title(self) -> str:
        return f"{self.name}: {self.kind}"


# arguments


@dataclass(frozen=True)
class Array:
    size: jax.ShapeDtypeStruct
    draw: Callable[[Rng], np.ndarray]


def normal(*shape: int, scale: float = 1.0, dtype: Any = jnp.float32) -> Array:
    size = jax.ShapeDtypeStruct(shape, dtype)
    return Array(size, lambda rng: rng.standard_normal(shape, np.float32) * np.float32(scale))


def uniform(low: float, high: float, *shape: int, dtype: Any = jnp.float32) -> Array:
    size = jax.ShapeDtypeStruct(shape, dtype)
    return Array(size, lambda rng: rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low))


def integers(low: int, high: int, *shape: int) -> Array:
    return Array(jax.ShapeDtypeStruct(shape, jnp.int32), lambda rng: rng.integers(low, high, shape, dtype=np.int32))


@dataclass(frozen=True)
class Drawn:
    """Trees of arrays that are drawn one after the other when they are asked for."""

    parts: tuple[Any, ...]

    def __call__(self) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        made: tuple[Any, ...] = jax.tree.map(lambda array: jnp.asarray(array.draw(rng), array.size.dtype), self.parts)
        return made

    def sizes(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = jax.tree.map(lambda array: array.size, self.parts)
        return found


@dataclass(frozen=True)
class Host:
    """What a function of the tests makes; small enough that sizes are those of what it makes."""

    make: Arguments

    def __call__(self) -> tuple[Any, ...]:
        made: tuple[Any, ...] = jax.tree.map(jnp.asarray, self.make(np.random.default_rng(0)))
        return made

    def sizes(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), self.make(np.random.default_rng(0))
        )
        return found


def shapes(entry: Large) -> tuple[Any, ...]:
    """The sizes of an entry's arguments, with nothing made on a device."""
    assert isinstance(entry.arguments, Drawn | Host)
    return entry.arguments.sizes()


# gradients


def pulled(function: Function, argnums: tuple[int, ...]) -> Function:
    """The result, and the gradients that a given one of it, the last argument, becomes.

    Where all of a result's gradient is the same number, compilers take products with it apart, as nobody's are.
    """

    def forward_and_backward(*args: Any) -> tuple[Any, Any]:
        *given, of_result = args

        def of_some(*some: Any) -> Any:
            by_place = dict(zip(argnums, some))
            return function(*(by_place.get(n, arg) for n, arg in enumerate(given)))

        result, pull = jax.vjp(of_some, *(given[n] for n in argnums))
        return result, pull(of_result)

    return forward_and_backward


@dataclass(frozen=True)
class Work:
    """A program and its arguments; `grad` are the arguments that it is differentiated by, `of_result` the gradient."""

    name: str
    function: Function
    arguments: Drawn | Host
    grad: tuple[int, ...] = ()
    of_result: Array | None = None
    sizes: str = ""
    others: Mapping[str, Function] = field(default_factory=dict)

    def forward(
        self, group: str = REAL, published: float | None = None, source: str = "", seconds: float = 0.0
    ) -> Large:
        rest = (self.sizes, published, source, dict(self.others), seconds)
        return Large(group, self.name, FORWARD, self.function, self.arguments, *rest)

    def gradients(self, group: str = REAL, published: float | None = None, source: str = "") -> Large:
        differentiated = both if self.of_result is None else pulled
        arguments = self.arguments
        if self.of_result is not None:
            assert isinstance(arguments, Drawn)
            arguments = Drawn((*arguments.parts, self.of_result))
        others = {name: differentiated(other, self.grad) for name, other in self.others.items()}
        rest = (self.sizes, published, source, others)
        return Large(group, self.name, WITH_GRADIENTS, differentiated(self.function, self.grad), arguments, *rest)

    def both_ways(self) -> Iterator[Large]:
        yield self.forward()
        yield self.gradients()


@dataclass(frozen=True)
class Row:
    """A function of sizes that makes entries: at the sizes that are measured, and at little ones that a CPU can run."""

    make: Callable[..., Iterator[Large]]
    full: tuple[Any, ...]
    small: tuple[Any, ...]


def entries(rows: tuple[Row, ...], small: bool = False) -> tuple[Large, ...]:
    return tuple(entry for row in rows for entry in row.make(*(row.small if small else row.full)))
