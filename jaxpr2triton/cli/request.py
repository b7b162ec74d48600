"""What a command line asks for: a function of arrays that JAX can trace, and arguments that fit it."""

from __future__ import annotations

import argparse
import contextlib
import difflib
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
    draw: Callable[[int], tuple[Any, ...]] | None = None
    shapes, seeds = specs, 0
    if options.args is not None:
        example = _example(options.args)
        returned = example.returned(0)
        draw, shapes = example.draw, _shapes(returned)
        seeds = 0 if example.takes_seed or any(map(_is_shape, jax.tree.leaves(returned))) else 1
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
    draw = draw or functools.partial(random_arguments, shapes)
    return Request(function, name, file, shapes, parameters, grad, draw, seeds)


@contextlib.contextmanager
def blaming(what: str, file: str) -> Iterator[None]:
    """Whatever fails inside, in plain JAX and the user's own code, is not ours; the last line of `file` is named."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as problem:
        raise UserError(f"{what}: {describe(problem, Path(file))}") from problem


@dataclass(frozen=True)
class _Example:
    """The arguments that a function of the user's returns: arrays, and shapes that are filled at random."""

    function: Callable[..., Any]
    name: str
    file: str
    takes_seed: bool

    def returned(self, seed: int) -> tuple[Any, ...]:
        with blaming(f"{self.name} failed", self.file):
            found = self.function(seed=seed) if self.takes_seed else self.function()
            found = found if isinstance(found, tuple) else (found,)
            return jax.tree.map(lambda leaf: leaf if _is_shape(leaf) else jnp.asarray(leaf), found)

    def draw(self, seed: int) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(self.returned(seed))
        drawn = iter(random_arguments([leaf for leaf in leaves if _is_shape(leaf)], seed))
        return tuple(jax.tree.unflatten(tree, [next(drawn) if _is_shape(leaf) else leaf for leaf in leaves]))


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _example(reference: str) -> _Example:
    file, _, name = reference.rpartition(":")
    function = load_function(reference)
    with blaming(f"{name} has no signature", file):
        return _Example(function, name, file, "seed" in inspect.signature(function).parameters)


def _parameters(
    function: Callable[..., Any], name: str, file: str, args: tuple[Any, ...], static: dict[str, Any]
) -> tuple[str, ...]:
    """The names of the positional arguments, once it is known that they fit."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return tuple(f"argument {position}" for position in range(len(args)))
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    for key in [] if takes_any else static:
        if key not in signature.parameters:
            meant = _meant(key, signature)
            raise UserError(f"--static {key}: {name}{signature} in {file} has no argument {key}{meant}")
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


def _meant(word: str, signature: inspect.Signature) -> str:
    close = difflib.get_close_matches(word, list(signature.parameters), 1)
    return f"; is it {close[0]}?" if close else ""


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
