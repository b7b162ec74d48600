"""What an entry of this folder is: a function, its arguments of two sizes, and what is asked of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arguments = tuple[Any, ...]
KEY = jax.eval_shape(lambda: jax.random.key(0))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)


@dataclass(frozen=True)
class Algorithm:
    """An ordinary function; nothing in it knows of us."""

    function: Callable[..., Any]
    small: Callable[[np.random.Generator], Arguments]  # drawn anew
    realistic: Arguments  # shapes
    few: Mapping[str, int] = field(default_factory=dict)  # what is known before tracing, as a number of steps: small
    many: Mapping[str, int] = field(default_factory=dict)  # … and realistic
    by: tuple[int, ...] = ()  # the arguments that it is differentiated by
    why_no_gradient: str = ""  # if there are none
    along: tuple[int | None, ...] | None = None  # in_axes of a `vmap` around it
    lanes: int = 0  # of that `vmap`, at the realistic size; 0: none

    def __post_init__(self) -> None:
        assert bool(self.by) != bool(self.why_no_gradient), f"{self.name}: arguments, or a reason"
        assert self.along is not None or not self.lanes, f"{self.name}: lanes of which arguments?"

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def says(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0].rstrip(".")

    @property
    def lines(self) -> int:
        """Of the function, and of those of its file that it calls."""
        return sum(len(inspect.getsource(each).splitlines()) for each in _with_helpers(self.function, {}))

    @property
    def of_few(self) -> Callable[..., Any]:
        """The function of arguments that are small."""
        return named(partial(self.function, **self.few), self.name)

    def large(self) -> tuple[Callable[..., Any], Arguments]:
        """The function of arguments that are realistic, and these."""
        function = named(partial(self.function, **self.many), self.name)
        if not self.lanes:
            return function, self.realistic
        assert self.along is not None
        args = [
            each if axis is None else jax.ShapeDtypeStruct((self.lanes, *each.shape), each.dtype)
            for each, axis in zip(self.realistic, self.along, strict=True)
        ]
        return named(jax.vmap(function, self.along), self.name), tuple(args)

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Of all floating-point results, weighed differently."""

        def loss(*args: Any) -> Any:
            results = [out for out in jax.tree.leaves(function(*args)) if jnp.issubdtype(out.dtype, jnp.floating)]
            return sum((out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum() for out in results)

        return named(jax.grad(loss, self.by), self.name)


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of that name, by which kernels are called."""

    def call(*args: Any) -> Any:
        return function(*args)

    call.__name__ = name
    return call


def _with_helpers(function: Callable[..., Any], found: dict[str, Callable[..., Any]]) -> Iterator[Callable[..., Any]]:
    found[function.__name__] = function
    yield function
    for name in _names(function.__code__):
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == function.__module__ and name not in found:
            yield from _with_helpers(called, found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
