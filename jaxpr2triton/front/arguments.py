"""Arguments of a user's function as flat lists of arrays, with the user's names for them."""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton._compat import captured_by
from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.tracing import identifiers
from jaxpr2triton.report.explain import short_type


def labels(function: Callable[..., Any], count: int, keywords: Sequence[str]) -> list[str]:
    """What the function calls so many positional arguments: `x`, `rest_0`; then the keywords."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins have no signature
        parameters = []
    names = []
    for position in range(count):
        parameter = parameters[min(position, len(parameters) - 1)] if parameters else None
        if parameter is None or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            names.append(f"arg{position}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"{parameter.name}_{position - parameters.index(parameter)}")
        elif position >= len(parameters):
            names.append(f"arg{position}")
        else:
            names.append(parameter.name)
    return identifiers([*names, *keywords])


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
class Trace:
    """A user's function as a jaxpr of flat arrays; what it closes over are leading operands."""

    jaxpr: Any
    captured: list[Any]
    out_tree: Any
    avals: tuple[Any, ...]  # of the arguments alone


def trace(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    static_argnums: int | Sequence[int] | None,
    static_argnames: str | Iterable[str] | None,
) -> Trace:
    """What `jax.jit` would trace, with what it would say: its messages name the user's function and arguments."""
    # jit remembers what it traced by the identity of the function, for longer than we may: globals change
    fresh = functools.partial(function)
    traced = jax.jit(fresh, static_argnums=static_argnums, static_argnames=static_argnames).trace(*args, **kwargs)
    captured = captured_by(traced)
    return Trace(traced.jaxpr, captured, traced.out_tree, tuple(traced.jaxpr.in_avals[len(captured) :]))


@dataclass(frozen=True)
class Signature:
    """How a transpiled program is called: with the arguments it was transpiled for, static ones left out."""

    function: str
    names: tuple[str, ...]
    tree: Any
    avals: tuple[Any, ...]
    title: str = ""  # of a function whose name says little

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
        for name, value, tree in zip(self.names, values, self.tree.children()):
            if jax.tree.structure(value) != tree:
                raise UserError(
                    f"`{name}` has the form {_form(jax.tree.structure(value))}, "
                    f"but {self.function} was transpiled for the form {_form(tree)}",
                    hint=_AGAIN,
                )
        named = zip(leaf_names(self.names, values), jax.tree.leaves(tuple(values)), self.avals)
        return [self._checked(name, leaf, aval) for name, leaf, aval in named]

    def _checked(self, name: str, leaf: Any, aval: Any) -> Any:
        """The array, if it has the very shape and dtype; numbers of Python's take any dtype that they go into."""
        try:
            given = jax.typeof(leaf)
        except (TypeError, OverflowError):  # no array at all, or an integer of more bits than JAX has
            raise UserError(
                f"`{name}` is {reprlib.repr(leaf)}, but {self.function} was transpiled for {short_type(aval)}"
            ) from None
        if not fits(leaf, given, aval):
            raise UserError(
                f"`{name}` is {short_type(given)}, but {self.function} was transpiled for {short_type(aval)}",
                hint=_AGAIN,
            )
        return leaf if jnp.issubdtype(aval.dtype, jax.dtypes.extended) else jnp.asarray(leaf, aval.dtype)


def fits(leaf: Any, given: Any, aval: Any) -> bool:
    """The shape is the same, and so is the dtype, unless it is that of a number of Python's."""
    if given.shape != aval.shape:
        return False
    weak = getattr(given, "weak_type", False)  # references have none
    return bool(given.dtype == aval.dtype or (weak and jnp.result_type(leaf, aval.dtype) == aval.dtype))


_AGAIN = "transpile it again for this argument, or use `fuse`, which does so by itself"


def _form(tree: Any) -> str:
    """[*, *] for a list of two arrays."""
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


_SPEC = re.compile(r"\w+\[[\d, ]*\]")  # f32[8,4], as the command line takes it


def check_arrays(function: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Every leaf is an array, an abstract array or a number."""
    for name, leaf in zip(leaf_names(names, values), jax.tree.leaves(list(values))):
        described = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        if not described and not isinstance(leaf, (bool, int, float, complex, np.generic)):
            hint = f"an argument that is not an array is static: static_argnames={name.split('[')[0]!r}"
            if isinstance(leaf, str) and _SPEC.fullmatch(leaf):
                hint = "a shape and a dtype are given as jax.ShapeDtypeStruct((8, 4), jnp.float32)"
            raise UserError(f"the argument `{name}` of {function} is {leaf!r}, which is not an array", hint=hint)


def static_positions(
    function: Callable[..., Any], count: int, static_argnums: Any, static_argnames: Any
) -> tuple[frozenset[int], frozenset[str]]:
    """Which positional arguments and which keywords are static, as `jax.jit` sees it, which has checked them before.

    Numbers alone imply names, and names alone imply numbers; who gives both says all.
    """
    numbers = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums or ())
    named = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames or ())
    positions = {number % count for number in numbers if -count <= number < count}
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins have no signature
        parameters = []
    plain = {place: each.name for place, each in enumerate(parameters) if each.kind is each.POSITIONAL_OR_KEYWORD}
    if static_argnums is None:
        positions |= {place for place, name in plain.items() if name in named and place < count}
    if static_argnames is None:
        named |= {plain[number] for number in numbers if number in plain}
    return frozenset(positions), frozenset(named)
