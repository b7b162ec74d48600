"""Hypothesis strategies that draw whole programs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.drawn.choices import Choices, Hypothesis
from tests.drawn.program import DTYPES, NAMESPACE, Input, Line, Program, Statement

STEPS_AT_MOST = 12
UNKNOWN_STEPS = re.compile(r"while_loop\(|helpers\.saved\(|fori_loop\(\S+, [a-z]")  # these loops have no reverse mode
NOT_BATCHED = re.compile(r"ordered=True|called_with_effect(?s:.*)lax\.(cond|switch|while_loop|fori_loop)\(")  # by JAX
OUTPUTS_AT_MOST = 6
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "uint8", "int8", "int16", "uint16", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Scale:
    """How large a program's arrays are."""

    sizes: tuple[int, ...]  # of an axis
    long: tuple[int, ...]  # … of one more axis, now and then
    elements: int  # of an array, at most
    carried: int = 0  # … that a loop carries


SMALL = Scale(
    sizes=(1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 0),
    long=(127, 129, 500, 1000, 1023, 1025, 2049),
    elements=2100,
)
# Several programs, of several warps.
LARGE = Scale(sizes=(64, 2, 100, 256, 300, 512, 1000), long=(4096, 5000, 30000), elements=1 << 15)


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return bool(jnp.issubdtype(self.dtype, jnp.floating))

    @property
    def is_bool(self) -> bool:
        return self.dtype == np.bool_

    @property
    def is_integer(self) -> bool:
        return self.dtype.kind in "iu"

    @property
    def struct(self) -> Any:
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)


@dataclass
class Draft:
    """A program in the making, or the body of a loop in one."""

    choices: Choices
    dims: Sequence[int]
    x64: bool
    most: int = SMALL.elements
    sorts: tuple[str, ...] = ("normal", "whole", "positive", "special")
    inputs: list[Input] = field(default_factory=list)
    lines: list[Statement] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    names: Iterator[int] = field(default_factory=itertools.count)
    known: dict[str, Value] = field(default_factory=dict)  # every value, those of other bodies too
    depth: int = 0  # how many loops it is in
    carried: int = 0  # elements of what a loop carries, at most

    def inside(self, values: Sequence[Value]) -> Draft:
        """A body that sees these values."""
        shared = (self.choices, self.dims, self.x64, self.most, self.sorts, self.inputs)
        inside = Draft(*shared, values=list(values), names=self.names, known=self.known, depth=self.depth + 1)
        return replace(inside, carried=self.carried)

    # choices

    def pick(self, options: Sequence[Any]) -> Any:
        return self.choices.pick(options)

    def number(self, low: int, high: int) -> int:
        return self.choices.number(low, high)

    def chance(self) -> bool:
        return bool(self.choices.pick((False, True)))

    # values

    def new_input(self, shape: tuple[int, ...], dtype: str) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs.append(Input(name, shape, dtype, self.pick(self.sorts if dtype != "bool" else self.sorts[:1])))
        return self.new_value(Value(name, shape, DTYPES[dtype]))

    def new_value(self, value: Value) -> Value:
        self.values.append(value)
        self.known[value.name] = value
        return value

    def drawn_shape(self, most_rank: int = 4) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(self.number(0, most_rank)):
            size = self.pick(self.dims)
            shape.append(size if math.prod(shape) * size <= self.most else 1)
        return tuple(shape)

    def add(self, text: str, *reads: Value) -> Value:
        """A new line; what it gives is asked from JAX."""
        self.add_statement(Line(f"v{next(self.names)}", text, tuple(dict.fromkeys(value.name for value in reads))))
        return self.values[-1]

    def add_statement(self, statement: Statement) -> list[Value]:
        """Something that gives names to values; what they are is asked from JAX."""

        def evaluate(*args: Any) -> list[Any]:
            scope = {**NAMESPACE, **dict(zip(statement.reads, args))}
            exec(str(statement), scope)
            return [scope[name] for name in statement.results]

        found = jax.eval_shape(evaluate, *(self.known[name].struct for name in statement.reads))
        self.lines.append(statement)
        self.read.update(statement.reads)
        return [
            self.new_value(Value(name, each.shape, np.dtype(each.dtype), getattr(each, "weak_type", False)))
            for name, each in zip(statement.results, found)
        ]

    def any_value(self, wanted: Any = lambda value: True) -> Value | None:
        """A value, mostly one of the last."""
        found = [value for value in self.values if wanted(value)]
        if not found:
            return None
        place = self.number(0, len(found) - 1)
        return found[max(place, self.number(0, len(found) - 1))]

    def float_value(self, wanted: Any = lambda value: True) -> Value:
        found = self.any_value(lambda value: value.is_float and wanted(value))
        if found is not None:
            return found
        source = self.any_value(wanted)
        if source is None:
            return self.new_input(self.drawn_shape(), "float32")
        return self.add(f"{source.name}.astype(jnp.float32)", source)

    def integer_value(self) -> Value:
        found = self.any_value(lambda value: value.is_integer)
        if found is not None:
            return found
        source = self.any_value()
        assert source is not None
        return self.add(f"{source.name}.astype(jnp.{self.pick(self.integer_dtypes)})", source)

    def bool_value(self) -> Value:
        found = self.any_value(lambda value: value.is_bool)
        if found is not None:
            return found
        source = self.any_value(lambda value: not value.is_bool)
        assert source is not None
        return self.add(f"{source.name} > {'0.25' if source.is_float else '1'}", source)

    @property
    def integer_dtypes(self) -> list[str]:
        return [name for name in INTEGERS if self.x64 or "64" not in name]

    @property
    def float_dtypes(self) -> list[str]:
        return [name for name in FLOATS if self.x64 or "64" not in name]

    def palette(self) -> list[str]:
        """The dtypes of inputs."""
        match self.pick(("float32", "mixed", "low", "integers")):
            case "mixed":
                return ["float32", "int32", "bool", *self.float_dtypes]
            case "low":
                return ["bfloat16", "float16"]
            case "integers":
                return [*self.integer_dtypes, "bool", "float32"]
            case _:
                return ["float32"]

    def partner(self, value: Value) -> Value:
        """A value of the same dtype that broadcasts with it, without making the result large."""

        def fits(other: Value) -> bool:
            try:
                shape = np.broadcast_shapes(value.shape, other.shape)
            except ValueError:
                return False
            return other.dtype == value.dtype and math.prod(shape) <= self.most and other is not value

        found = self.any_value(fits) if self.chance() else None
        if found is not None:
            return found
        same = self.any_value(lambda other: other.shape == value.shape and other.dtype != value.dtype)
        if same is not None and self.chance():
            return self.add(f"{same.name}.astype(jnp.{value.dtype.name})", same)
        if self.chance():
            return value
        shape = [size if self.chance() else 1 for size in value.shape]
        return self.new_input(tuple(shape[self.number(0, value.rank) :]), value.dtype.name)

    def equal_partner(self, value: Value) -> Value:
        """A value of the same shape and dtype."""
        found = self.partner(value)
        if found.shape == value.shape:
            return found
        if np.broadcast_shapes(found.shape, value.shape) == value.shape:
            return self.add(f"jnp.broadcast_to({found.name}, {value.shape})", found)
        return value

    def axis(self, value: Value) -> int:
        return self.number(0, value.rank - 1)


Family = Callable[[Draft], None]


def dtype_text(dtype: Any) -> str:
    return f"jnp.{np.dtype(dtype).name if np.dtype(dtype).name != 'bool' else 'bool_'}"


@st.composite
def programs(draw: Any, families: Sequence[Family], transforms: Sequence[str]) -> Program:
    """A whole program, drawn by hypothesis. `families` add lines to a draft; see tests/drawn/families.py."""
    return drawn_program(Hypothesis(draw), families, transforms)


def drawn_program(
    choices: Choices, families: Sequence[Family], transforms: Sequence[str], scale: Scale = SMALL
) -> Program:
    """A whole program."""
    x64 = choices.pick((False, True))
    dims = [choices.pick(scale.sizes) for _ in range(choices.number(1, 4))]
    if choices.number(0, 7) == 7:
        dims.append(choices.pick(scale.long))
    with jax.enable_x64(x64):
        draft = Draft(choices, dims, x64, scale.elements)
        palette = draft.palette()
        for _ in range(choices.number(1, 3)):
            draft.new_input(draft.drawn_shape(), draft.pick(palette))
        for _ in range(choices.number(1, STEPS_AT_MOST)):
            choices.step(lambda: choices.pick(families)(draft))
    program = Program(tuple(draft.inputs), tuple(draft.lines), drawn_outputs(draft))
    return with_transform(choices, program, transforms, x64).without_dead_lines()


def drawn_outputs(draft: Draft) -> tuple[str, ...]:
    """What nobody reads, and now and then a value that somebody reads, an input, or a literal."""
    outputs = [value.name for value in draft.values if value.name not in draft.read][-OUTPUTS_AT_MOST:]
    match draft.number(0, 5):
        case 1:
            outputs.append(draft.pick(draft.values).name)
        case 2:
            outputs.append(draft.pick(("2.5", "3", "True", "jnp.zeros((2, 3))")))
    return tuple(outputs or [draft.values[-1].name])


def with_transform(choices: Choices, program: Program, transforms: Sequence[str], x64: bool) -> Program:
    has_floats = any("float" in each.dtype for each in program.inputs)
    reverse_only = any(name in program.function_text() for name in ("straight_through", "nested_calls"))
    possible = [t for t in transforms if has_floats or t in ("plain", "vmap")]
    if UNKNOWN_STEPS.search(program.function_text()):
        possible = [t for t in possible if "grad" not in t] or ["plain"]
    if NOT_BATCHED.search(program.function_text()):
        possible = [t for t in possible if "vmap" not in t]
    transform = choices.pick([t for t in possible if t != "jvp" or not reverse_only])
    batched: list[int | None] = []
    if "vmap" in transform:
        batched = [choices.pick((None, *range(len(each.shape) + 1))) for each in program.inputs]
        if all(axis is None for axis in batched):
            batched[0] = 0
    return program.replace(
        transform=transform,
        batched=tuple(batched),
        outside=transform != "plain" and choices.pick((False, True)),
        x64=x64,
        small=choices.pick((False, True)),
        seed=choices.number(0, 999),
        in_order=choices.pick((False, False, False, True)),
    )
