"""Arguments of a user's function as flat lists of arrays, with the user's names for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.tracing import identifiers
from jaxpr2triton.report.explain import short_type


def labels(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """What the function calls these arguments: `x`, `rest_0`; then the keywords."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins have no signature
        parameters = []
    names = []
    for position in range(len(args)):
        parameter = parameters[min(position, len(parameters) - 1)] if parameters else None
        if parameter is None or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            names.append(f"arg{position}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"{parameter.name}_{position - parameters.index(parameter)}")
        elif position >= len(parameters):
            names.append(f"arg{position}")
        else:
            names.append(parameter.name)
    return identifiers([*names, *kwargs])


def leaf_names(names: Sequence[str], values: Sequence[Any]) -> list[str]:
    """A name for each array: `x`, `params_w`."""
    return [
        name + jax.tree_util.keystr(path)
        for name, value in zip(names, values)
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]
    ]


def signature_of(names: Sequence[str]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


@dataclass(frozen=True)
class Call:
    """One call of a user's function; `dynamic` tells which of its arguments hold arrays to trace, keywords last."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dynamic: tuple[bool, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(value for value, moves in zip((*self.args, *self.kwargs.values()), self.dynamic) if moves)

    @property
    def names(self) -> tuple[str, ...]:
        every = labels(self.function, self.args, self.kwargs)
        return tuple(name for name, moves in zip(every, self.dynamic) if moves)

    @property
    def leaves(self) -> list[Any]:
        return jax.tree.leaves(self.values)

    def trace(self) -> tuple[Any, Any]:
        """The call as a jaxpr of flat arrays, and the form of its result."""
        leaves, tree = jax.tree.flatten(self.values)
        trees: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            given = iter(jax.tree.unflatten(tree, leaves))
            everything = zip((*self.args, *self.kwargs.values()), self.dynamic)
            full = [next(given) if moves else value for value, moves in everything]
            keywords = dict(zip(self.kwargs, full[len(self.args) :]))
            outputs, out_tree = jax.tree.flatten(self.function(*full[: len(self.args)], **keywords))
            trees.append(out_tree)
            return outputs

        names = identifiers(leaf_names(self.names, self.values))
        setattr(flat, "__signature__", signature_of(names))  # noqa: B010  # tells JAX what to call the arrays
        return jax.make_jaxpr(flat)(*leaves), trees[-1]


@dataclass(frozen=True)
class Signature:
    """How a transpiled program is called: with the arguments it was transpiled for, static ones left out."""

    function: str
    names: tuple[str, ...]
    tree: Any
    avals: tuple[Any, ...]

    @property
    def parameters(self) -> inspect.Signature:
        return signature_of(self.names)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments in the order of `names`."""
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as problem:
            raise UserError(
                f"{self.function} was transpiled for the arguments ({', '.join(self.names)}): {problem}"
            ) from None
        return tuple(bound.arguments[name] for name in self.names)

    def leaves(self, values: Sequence[Any]) -> list[Any]:
        """The arrays in the arguments, checked against what the program was transpiled for."""
        leaves, tree = jax.tree.flatten(tuple(values))
        if tree != self.tree:
            raise UserError(f"{self.function} was transpiled for arguments of the form {self.tree}, not {tree}")
        names = leaf_names(self.names, values)
        return [self._checked(name, leaf, aval) for name, leaf, aval in zip(names, leaves, self.avals)]

    def _checked(self, name: str, leaf: Any, aval: Any) -> Any:
        if not jnp.issubdtype(aval.dtype, jax.dtypes.extended) and jnp.result_type(leaf, aval.dtype) == aval.dtype:
            leaf = jnp.asarray(leaf, aval.dtype)
        if leaf.shape != aval.shape or leaf.dtype != aval.dtype:
            raise UserError(
                f"`{name}` is {short_type(leaf)}, but {self.function} was transpiled for {short_type(aval)}",
                hint="transpile it again for this shape and dtype, or use `fuse`, which does so by itself",
            )
        return leaf


def check_arrays(function: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Every leaf is an array, an abstract array or a number."""
    for name, leaf in zip(leaf_names(names, values), jax.tree.leaves(list(values))):
        described = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        if not described and not isinstance(leaf, (bool, int, float, complex, np.generic)):
            raise UserError(
                f"the argument `{name}` of {function} is {leaf!r}, which is not an array",
                hint=f"an argument that is not an array is static: static_argnames={name.split('[')[0]!r}",
            )


def static_positions(
    function: Callable[..., Any], count: int, static_argnums: Any, static_argnames: Any
) -> tuple[frozenset[int], frozenset[str]]:
    """Which positional arguments and which keywords are static; a name counts for its position too, as in `jax.jit`."""
    numbers = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums or ())
    named = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames or ())
    for number in numbers:
        if not -count <= number < count:
            raise UserError(f"static_argnums has {number}, but there are {count} positional arguments")
    positions = {number % count for number in numbers}
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # builtins have no signature
        parameters = []
    unknown = sorted(named - set(parameters)) if parameters else []
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
        raise UserError(f"static_argnames has {unknown[0]!r}, but the arguments are ({', '.join(parameters)})")
    positions |= {position for position, name in enumerate(parameters[:count]) if name in named}
    named |= {parameters[position] for position in positions if position < len(parameters)}
    return frozenset(positions), frozenset(named)
