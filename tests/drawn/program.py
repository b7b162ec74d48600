"""A drawn program: lines of Python that print, run, and can be pasted."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.drawn import helpers

NAMESPACE = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "helpers": helpers}
DTYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64", "bool")}
DTYPES |= {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
DTYPES["bfloat16"] = np.dtype(jnp.bfloat16)

HEADER = """import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tests.drawn import helpers
"""


@dataclass(frozen=True)
class Input:
    name: str
    shape: tuple[int, ...]
    dtype: str
    values: str  # normal, whole, special, positive; see `fill`

    def __str__(self) -> str:
        return f"Input({self.name!r}, {self.shape}, {self.dtype!r}, {self.values!r})"


class Statement(Protocol):
    """A line, or several that belong together; see also tests/drawn/loops.py. Its `str` is Python, its `repr` too."""

    @property
    def results(self) -> tuple[str, ...]:
        """The names that it gives to values."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of values from before it."""

    def needed(self, wanted: Collection[str]) -> Statement | None:
        """What of it the wanted names need."""


@dataclass(frozen=True, repr=False)
class Line:
    """`name = text`, which reads the values `reads`."""

    name: str
    text: str
    reads: tuple[str, ...]

    @property
    def results(self) -> tuple[str, ...]:
        return (self.name,)

    def needed(self, wanted: Collection[str]) -> Line | None:
        return self if self.name in wanted else None

    def __str__(self) -> str:
        return f"{self.name} = {self.text}"

    def __repr__(self) -> str:
        return f"Line({self.name!r}, {self.text!r}, {self.reads})"


@dataclass(frozen=True)
class Program:
    """`f(inputs) → outputs`, how it is transformed, and on which numbers it runs."""

    inputs: tuple[Input, ...]
    lines: tuple[Statement, ...]
    outputs: tuple[str, ...]  # names of values, or literals such as 2.5
    transform: str = "plain"  # a name in tests.drawn.transforms.TRANSFORMS
    batched: tuple[int | None, ...] = ()  # for vmap: the axis of each input
    outside: bool = False  # fuse(transform(f)) instead of transform(fuse(f))
    x64: bool = False
    small: bool = False  # little room in a tile, so that short rows are streamed and short reductions split
    spread: bool = False  # so little room in a program that loops are spread over several, which meet in each step
    in_order: bool = False  # loops as they stand: nothing side by side or ahead, and long sums by one program
    seed: int = 0

    def function_text(self) -> str:
        body = indented(self.lines)
        results = "".join(f"{name}, " for name in self.outputs)
        return f"def f({', '.join(each.name for each in self.inputs)}):\n{body}    return ({results})\n"

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        return self.function_in({})

    def function_in(self, names: Mapping[str, Any]) -> Callable[..., Any]:
        """The function, for lines that read more than what is usual."""
        scope: dict[str, Any] = {**NAMESPACE, **names}
        exec(compile(self.function_text(), "<drawn>", "exec"), scope)
        return scope["f"]

    def arrays(self, seed: int) -> list[np.ndarray]:
        """Fresh inputs, without their batch axes."""
        rng = np.random.default_rng([self.seed, seed])
        return [fill(rng, each.shape, DTYPES[each.dtype], each.values) for each in self.inputs]

    def __str__(self) -> str:
        """The program as Python that checks itself."""
        inputs = "".join(f"        {each},\n" for each in self.inputs)
        lines = "".join(f"        {line!r},\n" for line in self.lines)
        settings = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in ("transform", "batched", "outside", "x64", "small", "spread", "in_order", "seed")
            if getattr(self, name) != getattr(type(self), name)
        )
        commented = "".join(f"# {line}\n" for line in self.function_text().splitlines())
        return (
            f"{commented}PROGRAM = Program(\n    inputs=(\n{inputs}    ),\n    lines=(\n{lines}    ),\n"
            f"    outputs={self.outputs},\n    {settings}\n)\n"
        )

    def without_dead_lines(self) -> Program:
        """The same outputs, from fewer lines and inputs."""
        lines = needed_lines(self.lines, self.outputs)
        wanted = {*self.outputs, *(name for line in lines for name in line.reads)}
        kept = [n for n, each in enumerate(self.inputs) if each.name in wanted] or [0]
        batched = [self.batched[n] for n in kept] if self.batched else []
        if batched and all(axis is None for axis in batched):
            batched[0] = 0
        inputs = tuple(self.inputs[n] for n in kept)
        return self.replace(lines=lines, inputs=inputs, batched=tuple(batched))

    def replace(self, **changes: Any) -> Program:
        return Program(**{**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changes})


def indented(lines: Iterable[Statement]) -> str:
    return "".join(textwrap.indent(f"{line}\n", "    ") for line in lines)


def needed_lines(lines: Sequence[Statement], wanted: Iterable[str]) -> tuple[Statement, ...]:
    """What of the lines these names need."""
    names, found = set(wanted), []
    for line in reversed(lines):
        kept = line.needed(names)
        if kept is not None:
            found.append(kept)
            names.update(kept.reads)
    return tuple(reversed(found))


def fill(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, values: str) -> np.ndarray:
    """Random numbers of a sort."""
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return _integers(rng, shape, dtype, values)
    normal = rng.standard_normal(shape)
    match values:
        case "whole":
            found = rng.integers(-3, 4, shape).astype(np.float64)
        case "positive":
            found = np.abs(normal) + 0.25
        case "special":
            some = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e4, 1e-4], shape)
            found = np.where(rng.random(shape) < 0.2, some, normal)
        case _:
            found = normal
    return np.asarray(found).astype(dtype)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, values: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    if values == "special":
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    lowest = 0 if values == "positive" or limits.min == 0 else -9
    return rng.integers(lowest, 10, shape, dtype=dtype)
