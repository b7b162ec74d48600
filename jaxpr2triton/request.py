"""What a command line asks for: a function of arrays that JAX can trace, and arguments that fit it."""

from __future__ import annotations

import argparse
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxpr2triton.errors import UserError
from jaxpr2triton.loading import describe, load_function
from jaxpr2triton.specs import parse_spec, random_arguments


@dataclass(frozen=True)
class Request:
    """A function, and one set of arguments for each seed."""

    function: Callable[..., Any]
    name: str
    shapes: tuple[Any, ...]  # ShapeDtypeStructs
    parameters: tuple[str, ...]  # a name for each argument
    grad: tuple[int, ...] | None  # the arguments whose gradients are wanted
    draw: Callable[[int], tuple[Any, ...]]  # seed → arrays
    seeds: int  # how many different draws there can be; 0: any number


def specs_of(options: argparse.Namespace) -> tuple[Any, ...]:
    """The SPECs of the command line as trees of ShapeDtypeStructs."""
    if options.args and options.spec:
        raise UserError("give SPECs or --args, not both")
    return tuple(parse_spec(spec) for spec in options.spec)


def make_request(options: argparse.Namespace, specs: tuple[Any, ...]) -> Request:
    """Loads the function and tries it; whatever is wrong with it or its arguments is a `UserError` in one line."""
    file, _, name = options.function.rpartition(":")
    function = load_function(options.function)
    draw, seeds = _example(options.args) if options.args else (functools.partial(random_arguments, specs), 0)
    shapes = _shapes(draw(0)) if options.args else specs
    static = dict(options.static)
    parameters = _parameters(function, name, file, shapes, static)
    grad = _argnums(options.grad, name, shapes)
    function = _bound(function, static)
    if options.vmap:
        function = jax.vmap(function)
        if options.args:
            draw = functools.partial(_broadcast, draw, options.vmap)
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((options.vmap, *leaf.shape), leaf.dtype), shapes)
        if not options.args:
            draw = functools.partial(random_arguments, shapes)
    try:
        jax.eval_shape(function, *shapes)
    except Exception as problem:  # JAX itself cannot trace it: whatever it is, it is not ours
        raise UserError(f"{name} cannot be traced: {describe(problem, Path(file))}") from problem
    return Request(function, name, shapes, parameters, grad, draw, seeds)


def _example(reference: str) -> tuple[Callable[[int], tuple[Any, ...]], int]:
    """The user's function that returns example arguments, as a function of the seed."""
    file, _, name = reference.rpartition(":")
    example = load_function(reference)
    takes_seed = "seed" in inspect.signature(example).parameters

    def draw(seed: int) -> tuple[Any, ...]:
        try:
            found = example(seed=seed) if takes_seed else example()
            found = found if isinstance(found, tuple) else (found,)
            return jax.tree.map(jnp.asarray, found)
        except Exception as problem:
            raise UserError(f"{name} failed: {describe(problem, Path(file))}") from problem

    return draw, 0 if takes_seed else 1


def _parameters(
    function: Callable[..., Any], name: str, file: str, args: tuple[Any, ...], static: dict[str, Any]
) -> tuple[str, ...]:
    """The names of the positional arguments, once it is known that they fit."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return tuple(f"argument {position}" for position in range(len(args)))
    try:
        signature.bind(*args, **static)
    except TypeError as problem:
        given = f"{len(args)} argument{'' if len(args) == 1 else 's'}"
        raise UserError(f"{name}{signature} in {file} does not fit {given}: {problem}") from None
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return tuple(names[place] if place < len(names) else f"argument {place}" for place in range(len(args)))


def _argnums(grad: bool | tuple[int, ...], name: str, shapes: tuple[Any, ...]) -> tuple[int, ...] | None:
    """`--grad` alone means every argument that is made of floats."""
    if grad is False:
        return None
    if isinstance(grad, tuple):
        for position in grad:
            if not 0 <= position < len(shapes):
                raise UserError(f"--grad={position}: the arguments of {name} are numbered from 0 to {len(shapes) - 1}")
        return grad
    found = tuple(place for place, tree in enumerate(shapes) if jax.tree.leaves(tree) and _is_float(tree))
    if not found:
        raise UserError(f"--grad: no argument of {name} is made of floats")
    return found


def _is_float(tree: Any) -> bool:
    return all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(tree))


def _bound(function: Callable[..., Any], static: dict[str, Any]) -> Callable[..., Any]:
    """The function with its static arguments given; it keeps its name, which names the kernels."""
    if not static:
        return function

    def bound(*args: Any) -> Any:
        return function(*args, **static)

    bound.__name__ = getattr(function, "__name__", bound.__name__)
    return bound


def _broadcast(draw: Callable[[int], tuple[Any, ...]], size: int, seed: int) -> tuple[Any, ...]:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), draw(seed))


def _shapes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
