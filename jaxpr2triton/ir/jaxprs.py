"""JAX's programs, for annotations: what an `Eqn`, an `Atom` or a `Jaxpr` has.

They are JAX's own classes, as a type checker should see them. JAX's annotations say of `aval` that it is an
`AbstractValue`, which has neither shape nor dtype, and leave much of a jaxpr untyped; versions differ besides.

    atom: Atom
    if not isinstance(atom, Literal):
        atom            # a Var from here on
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import jax.extend.core as jex
import numpy as np


class Aval(Protocol):
    """The type of an array; programs may hold values of others, which no kernel has."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def size(self) -> int: ...
    @property
    def weak_type(self) -> bool: ...


if TYPE_CHECKING:

    class Var(Hashable):
        aval: Aval

    class Literal:
        aval: Aval
        val: Any  # a number of Python's, or an array
        __hash__: None  # type: ignore[assignment]

    class Primitive(Hashable):
        name: str
        multiple_results: bool

        def bind(self, *operands: Any, **params: Any) -> Any: ...

    class Eqn(Hashable):
        primitive: Primitive
        invars: list[Var | Literal]
        outvars: list[Var]
        params: dict[str, Any]  # what is in it, only the rules of the primitive know
        effects: frozenset[object]

        def replace(self, **changes: object) -> Eqn: ...

    class Jaxpr(Hashable):
        constvars: list[Var]
        invars: list[Var]
        outvars: list[Var | Literal]
        eqns: list[Eqn]
        effects: frozenset[object]

    class Closed(Hashable):
        jaxpr: Jaxpr
        consts: Sequence[Any]
        in_avals: Sequence[Aval]
        out_avals: Sequence[Aval]
        effects: frozenset[object]

        def replace(self, **changes: object) -> Closed: ...

else:
    Var, Literal, Primitive, Eqn, Jaxpr = jex.Var, jex.Literal, jex.Primitive, jex.JaxprEqn, jex.Jaxpr
    Closed = jex.ClosedJaxpr

Atom = Var | Literal
Params = Mapping[str, Any]  # of an equation


def made(closed: object) -> Closed:
    """What JAX has made, such as `jax.make_jaxpr(f)(x)`, as this package sees it."""
    return cast(Closed, closed)


def jaxprs_in(eqn: Eqn) -> Iterable[Jaxpr]:
    """What an equation runs: the bodies of loops, branches, what is called."""
    return cast(Iterable[Jaxpr], jex.jaxprs_in_params(eqn.params))


def elements(atom: Atom) -> int:
    return atom.aval.size


def nbytes(*atoms: Atom) -> int:
    """What they take in memory."""
    return nbytes_of(*(atom.aval for atom in atoms))


def nbytes_of(*avals: Aval) -> int:
    """The same of types; what is no array takes nothing."""
    return sum(aval.size * aval.dtype.itemsize for aval in avals if hasattr(aval, "dtype"))


def equations(jaxpr: Jaxpr) -> Iterator[Eqn]:
    """The equations of a jaxpr, each followed by those of what it runs."""
    waiting = list(reversed(jaxpr.eqns))
    while waiting:
        eqn = waiting.pop()
        yield eqn
        for inner in reversed(list(jaxprs_in(eqn))):
            waiting += reversed(inner.eqns)


def calls_python(eqn: Eqn) -> bool:
    return "callback" in eqn.primitive.name


def frozen(value: Any) -> Hashable:
    """A hashable copy of a parameter, in which 1, 1.0 and True differ."""
    if value is None or isinstance(value, int | str):
        return type(value), value
    match value:
        case tuple() | list():
            return type(value), tuple([frozen(item) for item in value])
        case np.ndarray():
            return value.shape, str(value.dtype), value.tobytes()
        case np.integer():
            return int, int(value)
        case Mapping():
            return tuple([(key, frozen(value[key])) for key in sorted(value)])
        case _:
            return type(value), value
