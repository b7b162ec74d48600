"""What a command line asks for: a function of arrays that JAX can trace, and arguments that fit it."""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxpr2triton.cli.loading import describe, load_function
from jaxpr2triton.cli.specs import parse_spec, random_arguments
from jaxpr2triton.errors import UserError


@dataclass(frozen=True)
class Request:
    """A function, and one set of arguments for each seed."""

    function: Callable[..., Any]
    name: str
    file: str
    shapes: tuple[Any, ...]  # ShapeDtypeStructs
    parameters: tuple[str, ...]  # a name for each argument
    grad: tuple[int, ...] | None  # the arguments whose gradients are wanted
    draw: Callable[[int], tuple[Any, ...]]  # seed → arrays
    seeds: int  # how many different draws there can be; 0: any number


def specs_of(options: argparse.Namespace) -> tuple[Any, ...]:
    """The SPECs of the command line as trees of ShapeDtypeStructs."""
    if options.args is not None and options.spec:
        raise UserError("give SPECs or --args, not both")
    return tuple(parse_spec(spec) for spec in options.spec)


def make_request(options: argparse.Namespace, specs: tuple[Any, ...]) -> Request:
    """Loads the function and tries it; whatever is wrong with it or its arguments is a `UserError` in one line."""
    file, _, name = options.function.rpartition(":")
    function = load_function(options.function)
    draw, seeds = (None, 0) if options.args is None else _example(options.args)
    shapes = specs if draw is None else _shapes(draw(0))
    static = dict(options.static)
    parameters = _parameters(function, name, file, shapes, static)
    grad = _argnums(options.grad, name, shapes)
    function = functools.partial(function, **static) if static else function
    if options.vmap:
        function = jax.vmap(function)
        draw = draw and functools.partial(_broadcast, draw, options.vmap)
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((options.vmap, *leaf.shape), leaf.dtype), shapes)
    with blaming(f"{name} cannot be traced", file):
        jax.eval_shape(function, *shapes)
    return Request(
        function, name, file, shapes, parameters, grad, draw or functools.partial(random_arguments, shapes), seeds
    )


@contextlib.contextmanager
def blaming(what: str, file: str) -> Iterator[None]:
    """Whatever fails inside, in plain JAX and the user's own code, is not ours; the last line of `file` is named."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as problem:
        raise UserError(f"{what}: {describe(problem, Path(file))}") from problem


def _example(reference: str) -> tuple[Callable[[int], tuple[Any, ...]], int]:
    """The user's function that returns example arguments, as a function of the seed."""
    file, _, name = reference.rpartition(":")
    example = load_function(reference)
    with blaming(f"{name} has no signature", file):
        takes_seed = "seed" in inspect.signature(example).parameters

    def draw(seed: int) -> tuple[Any, ...]:
        with blaming(f"{name} failed", file):
            found = example(seed=seed) if takes_seed else example()
            found = found if isinstance(found, tuple) else (found,)
            return jax.tree.map(jnp.asarray, found)

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


def _broadcast(draw: Callable[[int], tuple[Any, ...]], size: int, seed: int) -> tuple[Any, ...]:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), draw(seed))


def _shapes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
