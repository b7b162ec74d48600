"""Factors that are alike all along a sum → factors of the sum.

    y = (x[m,k] * r[m]) @ w[k,n]   →   y = (x @ w) * r[m]                 x: f32[4096,1024] w: f32[1024,512]

One product for each result instead of one for each term of it, and what is multiplied as matrices is read as it is. Nor
does a kernel wait for `r`: a norm of the rows of x is summed beside the products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton import policy
from jaxpr2triton._compat import source_of
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.jaxprs import Atom, Aval, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import maker_of, readers_of
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.numbers.algebra import holds, simplify_algebra
from jaxpr2triton.rules.rows import ADDED

Env = dict[Var, Any]
EXTREMES = ("reduce_max", "reduce_min")
PRODUCTS = ("convert_element_type", "mul", "div")  # of which factors may be taken


@dataclass(frozen=True)
class Factor:
    """What one side of a contraction is multiplied with, or divided by."""

    atom: Atom
    dims: tuple[int, ...] = ()  # of the side, for each dimension of the atom
    divides: bool = False


@dataclass(frozen=True, eq=False)
class Rest:
    """What is left of a value without factors: the value itself, or what a function makes of others that are left."""

    atom: Atom | None = None
    function: Callable[..., Any] = tuple
    parts: tuple[Rest, ...] = ()

    def of(self, env: Env) -> jax.Array:
        found: dict[Rest, jax.Array] = {}
        for each in postorder([self], lambda rest: rest.parts, found):
            parts = [found[part] for part in each.parts]
            found[each] = each.function(*parts) if each.atom is None else read(env, each.atom)
        return found[self]


@dataclass(frozen=True)
class Side:
    """One side of a contraction without its factors; None of `rest` is 1."""

    rest: Rest | None
    factors: tuple[Factor, ...] = ()
    source: Any = None  # the dtype of what was there, if the rest is nothing but that


def take_out_factors(closed: Closed) -> Closed:
    """Let contractions that kernels make be multiplied when they are summed, with what is the same for all terms.

        b = broadcast_in_dim[broadcast_dimensions=(0,)] r;  c = mul a b;  d = dot_general c w
            →    e = dot_general a w;  b = broadcast_in_dim[broadcast_dimensions=(0,)] r;  d = mul e b

    Left alone: products that something else reads as well, whole numbers, and what has no room without its factor: a
    number of 16 bits or less that is not of that many bits already, and what a library makes of two f16. So are factors
    that are there to make room, a largest element by which all are divided, and constants that are tiny or huge; but
    whole numbers of few bits are small without them. Not kept is a number that is finite because any other factor is
    tiny where the sum of f32 without it is not.
    """
    sides = {eqn: found for eqn, found in Factors(closed.jaxpr).found() if any(side.factors for side in found)}
    if not sides:
        return closed
    jaxpr = closed.jaxpr

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(jaxpr.invars, args))
        run(jaxpr.eqns, env, lambda eqn, _: [_contracted(eqn, sides[eqn], env)] if eqn in sides else None)
        return [read(env, atom) for atom in jaxpr.outvars]

    return remove_dead(simplify_algebra(again(closed, rewritten)))


class Factors:
    """The contractions of a program, and what their sides are made of."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr, self.eqns = jaxpr, jaxpr.eqns
        self.readers = readers_of(jaxpr)

    def found(self) -> Iterator[tuple[Eqn, tuple[Side, Side]]]:
        for eqn in self.eqns:
            if _contracts(eqn):
                left, right = map(self._of_contraction, eqn.invars, eqn.params["dimension_numbers"][0])
                yield eqn, (left, right)

    def _of_contraction(self, atom: Atom, sums: Sequence[int]) -> Side:
        whole = _left(atom)
        if isinstance(atom, Literal) or not all(map(_contracts, self.readers[atom])):
            return whole
        found = self._side(atom, frozenset(sums))
        if found.rest is None or not _has_room(atom.aval.dtype, found.source):
            return whole
        makes_room = not _is_small(found.source) and any(map(self._makes_room, found.factors))
        return whole if makes_room else found

    def _makes_room(self, factor: Factor) -> bool:
        """Whether terms may be too large for a float without it, or too small: it is made of the largest of them."""
        if isinstance(factor.atom, Literal):
            size, most = abs(float(factor.atom.val)), policy.COMMON.factor_taken_out
            return not 1 <= size * most <= most**2

        def operands(var: Var) -> list[Var]:
            eqn = maker_of(self.jaxpr, var)
            return [] if eqn is None or eqn.primitive.name in ADDED else variables(eqn.invars)

        made_by = map(partial(maker_of, self.jaxpr), reachable([factor.atom], operands))
        return any(eqn is not None and eqn.primitive.name in EXTREMES for eqn in made_by)

    def _side(self, atom: Var, sums: frozenset[int]) -> Side:
        found: dict[Atom, Side] = {}
        for each in postorder([atom], lambda each: self._parts(each, sums), found):
            found[each] = self._made(each, sums, found)
        return found[atom]

    def _parts(self, atom: Atom, sums: frozenset[int]) -> Sequence[Var]:
        """What a side is made of that may have factors."""
        eqn = maker_of(self.jaxpr, atom)
        if eqn is None or eqn.primitive.name not in PRODUCTS or self._factor(atom, sums) is not None:
            return ()
        return variables(eqn.invars)

    def _made(self, atom: Atom, sums: frozenset[int], known: Mapping[Atom, Side]) -> Side:
        if (factor := self._factor(atom, sums)) is not None:
            return Side(None, (factor,))
        eqn = maker_of(self.jaxpr, atom)
        if eqn is None or not is_float(atom.aval.dtype):
            return _left(atom)
        match eqn.primitive.name:
            case "convert_element_type":
                inner = self._operand(eqn.invars[0], sums, known)
                made = _made_of(atom, partial(_converted, atom.aval.dtype), inner)
                return replace(made, source=inner.source) if _holds(atom.aval.dtype, inner.source) else made
            case "mul":
                again = partial(eqn.primitive.bind, **eqn.params)
                return _made_of(atom, again, *(self._operand(each, sums, known) for each in eqn.invars))
            case "div" if (divisor := self._factor(eqn.invars[1], sums)) is not None:
                inner = self._operand(eqn.invars[0], sums, known)
                by = Factor(divisor.atom, divisor.dims, divides=True)
                return Side(inner.rest, (*inner.factors, by), inner.source)
        return _left(atom)

    def _operand(self, atom: Atom, sums: frozenset[int], known: Mapping[Atom, Side]) -> Side:
        """Of a value in between, which nothing else may read but where it is one factor."""
        if isinstance(atom, Literal):
            factor = self._factor(atom, sums)
            return _left(atom) if factor is None else Side(None, (factor,))
        found, alone = known[atom], len(self.readers[atom]) == 1
        return found if alone or (found.rest is None and len(found.factors) == 1) else _left(atom)

    def _factor(self, atom: Atom, sums: frozenset[int]) -> Factor | None:
        """What is alike along the sum: a number, what has one element there, or nothing there until it is spread."""
        shape = atom.aval.shape
        if not is_float(atom.aval.dtype):
            return None
        if all(shape[dim] == 1 for dim in sums if shape):
            return Factor(atom, tuple(range(len(shape))))
        eqn = maker_of(self.jaxpr, atom)
        if eqn is None or eqn.primitive.name != "broadcast_in_dim" or len(eqn.invars) > 1:
            return None
        small, dims = eqn.invars[0], eqn.params["broadcast_dimensions"]
        varies = {dim for dim, size in zip(dims, small.aval.shape) if size > 1}
        return Factor(small, tuple(dims)) if sums.isdisjoint(varies) else None


def _contracts(eqn: Eqn | None) -> bool:
    """Whether it is a sum of products of floats that a kernel makes."""
    if eqn is None or eqn.primitive is not primitives.dot_general_p or is_short_contraction(eqn):
        return False
    return all(is_float(atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars))


def _has_room(dtype: Any, source: Any) -> bool:
    """Whether a side of this dtype can hold what is left of it: anything, as f32 can, or what it came from."""
    return bool(jnp.finfo(dtype).maxexp >= jnp.finfo(jnp.float32).maxexp) or _holds(dtype, source)


def _is_small(source: Any) -> bool:
    """Whether it is of whole numbers of few bits."""
    return source is not None and not is_float(source) and jnp.dtype(source).itemsize <= 2


def _holds(dtype: Any, source: Any) -> bool:
    return source is not None and holds(dtype, source)


def _left(atom: Atom) -> Side:
    return Side(Rest(atom), source=atom.aval.dtype)


def _made_of(atom: Atom, function: Callable[..., jax.Array], *parts: Side) -> Side:
    """What a function makes of these, if there are factors among them; of one that is 1 nothing is made."""
    factors = tuple(factor for part in parts for factor in part.factors)
    rests = [part.rest for part in parts if part.rest is not None]
    if not factors:
        return _left(atom)
    if len(rests) == len(parts):
        source = parts[0].source if len(parts) == 1 else None
        return Side(Rest(None, function, tuple(rests)), factors, source)
    alone = next((part for part in parts if part.rest is not None), Side(None))
    return Side(alone.rest, factors, alone.source)


def _converted(dtype: Any, x: jax.Array) -> jax.Array:
    return lax.convert_element_type(x, dtype)


def _as(aval: Aval, x: jax.Array) -> jax.Array:
    """A factor may have been what had all the lanes of a side."""
    x = _converted(aval.dtype, x)
    return x if x.shape == aval.shape else lax.broadcast_in_dim(x, aval.shape, range(x.ndim))


def _contracted(eqn: Eqn, sides: tuple[Side, Side], env: Env) -> jax.Array:
    """The contraction of what is left of both sides, and then their factors."""
    out = eqn.outvars[0].aval
    dtype = working_dtype(out.dtype)
    with source_of(eqn):
        rests = [_as(atom.aval, side.rest.of(env)) for atom, side in zip(eqn.invars, sides) if side.rest is not None]
        result = eqn.primitive.bind(*rests, **{**eqn.params, "preferred_element_type": dtype})
        for number, side in enumerate(sides):
            places = places_of(eqn, number)
            for factor in side.factors:
                spread = _spread(_converted(dtype, read(env, factor.atom)), factor, places, out.shape)
                result = lax.div(result, spread) if factor.divides else lax.mul(result, spread)
        return _converted(out.dtype, result)


def places_of(eqn: Eqn, side: int) -> dict[int, int]:
    """The dimension of the result for each one of a side that is not summed."""
    sums, batch = eqn.params["dimension_numbers"]
    free = [
        [dim for dim in range(len(atom.aval.shape)) if dim not in (*sums[n], *batch[n])]
        for n, atom in enumerate(eqn.invars)
    ]
    first = len(batch[side]) + (len(free[0]) if side else 0)
    return {dim: place for place, dim in enumerate(batch[side])} | {dim: first + n for n, dim in enumerate(free[side])}


def _spread(x: jax.Array, factor: Factor, places: dict[int, int], shape: Sequence[int]) -> jax.Array:
    """A factor in all places of the result; along the sum it has one element."""
    kept = [n for n, dim in enumerate(factor.dims) if dim in places]
    small = lax.reshape(x, [x.shape[n] for n in kept])
    return lax.broadcast_in_dim(small, shape, [places[factor.dims[n]] for n in kept])
