"""Associative scans that can be differentiated: all results of one are one equation, and so are their tangents.

    y[t]  = combine y[t-1] x[t]                        a, b = scanned_parts[axis=0 combine=C] x0 x1
    dy[t] = A[t] dy[t-1] + B[t] dx[t]                  d    = affine_scanned[axis=0] A u,     u = B dx

A and B are the slopes of C at y[t-1] and x[t]. Parts that do not depend on each other have equations of their own, so
that A is as small as can be. What is made of a cotangent is the same once more, from the other end:

    u'[t] = y'[t] + A[t+1]ᵀ u'[t+1]

Where C chooses, what is not chosen has the slope 0, and nothing of it goes on, not even what is no number: such scans
are `choosing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad, mlir

from jaxpr2triton.ir import batched, evaluate
from jaxpr2triton.ir.dataflow import made_of
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, made
from jaxpr2triton.ir.scanned import Combination, combination, combined, is_associative
from jaxpr2triton.ir.tracing import is_differentiable

Array = Any

scanned_parts_p = jex.Primitive("scanned_parts")
scanned_parts_p.multiple_results = True
affine_scanned_p = jex.Primitive("affine_scanned")  # of n parts: n * n slopes, row by row, and n terms
affine_scanned_p.multiple_results = True


@lru_cache(maxsize=256)
def affine(parts: int, dtype: Any, choosing: bool) -> Combination:
    """`y = A x + u` after `x = B w + v`; n * n slopes and n terms on either side."""

    def run(*args: Any) -> list[Any]:
        (first, v), (then, u) = (_matrix(side, parts) for side in (args[: len(args) // 2], args[len(args) // 2 :]))
        slopes = [_product(row, column, choosing) for row in then for column in zip(*first)]
        return [*slopes, *(lax.add(_product(row, v, choosing), term) for row, term in zip(then, u))]

    scalars = [jax.ShapeDtypeStruct((), dtype)] * (parts * parts + parts)
    return combination(made(jax.make_jaxpr(run)(*scalars, *scalars)))


def _matrix(operands: Sequence[Array], parts: int) -> tuple[list[Sequence[Array]], Sequence[Array]]:
    rows = [operands[n * parts : (n + 1) * parts] for n in range(parts)]
    return rows, operands[parts * parts :]


def _product(row: Sequence[Array], column: Sequence[Array], choosing: bool) -> Array:
    return _total([_times(one, other, choosing) for one, other in zip(row, column)])


def _times(slope: Array, value: Array, choosing: bool) -> Array:
    product = lax.mul(slope, value)
    if not choosing:
        return product
    nothing = lax.full_like(slope, 0)
    return lax.select(lax.eq(slope, nothing), nothing, product)


def _total(terms: Sequence[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = lax.add(total, term)
    return total


# ---------------------------------------------------------------------------------------------- slopes
@dataclass(frozen=True)
class Slopes:
    """How each part of what is combined follows each part on the left, and on the right; None where it does not."""

    entries: Combination  # all of them that are numbers to be computed or known
    left: tuple[tuple[int | None, ...], ...]  # which of these entries
    right: tuple[tuple[int | None, ...], ...]
    ones: frozenset[int]  # entries that are 1 everywhere
    blocks: tuple[tuple[int, ...], ...]  # parts that follow each other's left sides
    choosing: bool

    def is_kept(self, block: Sequence[int]) -> bool:
        """Whether nothing happens to what such parts are added to."""
        return len(block) == 1 and self.left[block[0]][block[0]] in self.ones


@lru_cache(maxsize=256)
def slopes_of(combine: Combination) -> Slopes:
    avals = combine.closed.out_avals
    parts = combine.parts
    moving = [n for n, aval in enumerate(avals) if is_differentiable(aval)]
    places = [*moving, *(parts + n for n in moving)]
    follows = {n: [place for place in places if n in _reached(combine, place)] for n in moving}
    which = [(n, place) for place in places for n in moving if place in follows[n]]  # result and operand

    def run(*args: Any) -> list[Any]:
        return [_slope(combine, args, n, follows[n], place) for n, place in which]

    scalars = [jax.ShapeDtypeStruct((), aval.dtype) for aval in avals]
    closed = _without_ones(made(jax.make_jaxpr(run)(*scalars, *scalars)))
    place = {pair: n for n, pair in enumerate(which)}
    ones = (n for n, atom in enumerate(closed.jaxpr.outvars) if _is_one(atom))
    left = tuple(tuple(place.get((n, m)) for m in range(parts)) for n in range(parts))
    right = tuple(tuple(place.get((n, parts + m)) for m in range(parts)) for n in range(parts))
    choosing = any(eqn.primitive.name == "select_n" for eqn in closed.jaxpr.eqns)
    return Slopes(combination(closed), left, right, frozenset(ones), _blocks(left, moving), choosing)


def _slope(combine: Combination, args: Sequence[Any], n: int, follows: Sequence[int], place: int) -> Any:
    """How a result follows one of the operands that it follows.

    Pulled back to all of them: a rule for tangents adds those of the others as 0 times their slopes, which may be
    infinite. For each one anew: what two slopes share would be a value of its own, and rather be kept than made again.
    """

    def result(*values: Any) -> Any:
        both = [*args]
        for operand, value in zip(follows, values):
            both[operand] = value
        return combined(combine, both[: combine.parts], both[combine.parts :])[n]

    value, pull = jax.vjp(result, *(args[operand] for operand in follows))
    return pull(np.ones((), value.dtype))[follows.index(place)]


def _without_ones(closed: Closed) -> Closed:
    """The slope of a product is one factor, not a product with 1."""

    def factor(eqn: Eqn, values: list[Any]) -> list[Any] | None:
        others = [value for atom, value in zip(eqn.invars, values) if not _is_one(atom)]
        return others if eqn.primitive.name == "mul" and len(others) == 1 else None

    run = jax.make_jaxpr(lambda *args: evaluate.outputs(closed.jaxpr, closed.consts, args, factor))
    return made(run(*closed.in_avals))


def _is_one(atom: Atom) -> bool:
    return isinstance(atom, Literal) and bool(atom.val == 1)


def _reached(combine: Combination, operand: int) -> set[int]:
    """The results that are made of an operand."""
    inner = combine.closed.jaxpr
    live = made_of(inner.eqns, [inner.invars[operand]])
    return {n for n, atom in enumerate(inner.outvars) if not isinstance(atom, Literal) and atom in live}


def _blocks(left: Sequence[Sequence[int | None]], moving: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    of = {n: {n} for n in moving}
    for n in moving:
        for m in moving:
            if left[n][m] is not None and of[n] is not of[m]:
                both = of[n] | of[m]
                of |= dict.fromkeys(sorted(both), both)
    return tuple(dict.fromkeys(tuple(sorted(of[n])) for n in moving))


def has_slopes(combine: Combination, most: int) -> bool:
    """Whether a derivative may be taken of the scan: it does not matter either in which order tangents are combined.

    That is not so of a maximum of numbers that are equal. At most `most` parts are to follow each other.
    """
    if all(not is_differentiable(aval) for aval in combine.closed.out_avals):
        return False
    return max(map(len, slopes_of(combine).blocks)) <= most and is_associative(_with_tangents(combine))


def _with_tangents(combine: Combination) -> Combination:
    """What combines elements and their tangents."""
    avals, parts = combine.closed.out_avals, combine.parts
    moving = [n for n, aval in enumerate(avals) if is_differentiable(aval)]

    def run(*args: Any) -> list[Any]:
        sides = args[: len(args) // 2], args[len(args) // 2 :]
        fixed = [value for side in sides for value in side[:parts]]
        tangents = [value for side in sides for value in side[parts:]]
        places = [n * parts + m for n in range(2) for m in moving]

        def values(*moved: Any) -> list[Any]:
            both = list(fixed)
            for place, value in zip(places, moved):
                both[place] = value
            made = combined(combine, both[:parts], both[parts:])
            return [made[n] for n in moving]

        results = combined(combine, fixed[:parts], fixed[parts:])
        _, slopes = jax.jvp(values, tuple(fixed[place] for place in places), tuple(tangents))
        return [*results, *slopes]

    scalars = [jax.ShapeDtypeStruct((), aval.dtype) for aval in (*avals, *(avals[n] for n in moving))]
    return combination(made(jax.make_jaxpr(run)(*scalars, *scalars)))


# ---------------------------------------------------------------------------------------------- the scan
def run_parts(*operands: Array, combine: Combination, axis: int, reverse: bool) -> list[Array]:
    def fn(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return combined(combine, left, right)

    return list(lax.associative_scan(fn, list(operands), axis=axis, reverse=reverse))


def _shifted(x: Array, axis: int, reverse: bool) -> Array:
    """What is one element before; zero at the first."""
    one = (-1, 1, 0) if reverse else (1, -1, 0)
    return lax.pad(x, jnp.zeros((), x.dtype), [one if d == axis else (0, 0, 0) for d in range(x.ndim)])


def _before(y: Array, axis: int, reverse: bool) -> Array:
    """What was combined so far; at the first element, where its slopes are not read, that element is harmless."""
    size = y.shape[axis]
    first = lax.slice_in_dim(y, size - 1, size, axis=axis) if reverse else lax.slice_in_dim(y, 0, 1, axis=axis)
    both = lax.concatenate([y, first] if reverse else [first, y], axis)
    return lax.slice_in_dim(both, int(reverse), size + int(reverse), axis=axis)


def _parts_jvp(
    primals: Sequence[Array], tangents: Sequence[Array], *, combine: Combination, axis: int, reverse: bool
) -> tuple[list[Array], list[Array]]:
    results = scanned_parts_p.bind(*primals, combine=combine, axis=axis, reverse=reverse)
    slopes, shape = slopes_of(combine), primals[0].shape
    place = lax.broadcasted_iota(np.int32, shape, axis)
    first = lax.eq(place, np.int32(shape[axis] - 1 if reverse else 0))
    before = [_before(y, axis, reverse) for y in results]
    entries = combined(slopes.entries, before, primals)
    found: list[Array] = [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in results]
    for block in slopes.blocks:
        terms = [_term(slopes.right[n], n, entries, tangents, first, slopes.choosing) for n in block]
        if all(each is None for each in terms):
            continue
        whole = [lax.full_like(results[n], 0) if each is None else each for n, each in zip(block, terms)]
        if slopes.is_kept(block):
            found[block[0]] = lax.cumsum(whole[0], axis, reverse)
            continue
        known = [slopes.left[n][m] for n in block for m in block]
        matrix = [lax.full_like(whole[0], 0) if k is None else entries[k] for k in known]
        how = {"axis": axis, "reverse": reverse, "choosing": slopes.choosing}
        for n, each in zip(block, affine_scanned_p.bind(*matrix, *whole, **how)):
            found[n] = each
    return results, found


def _term(
    row: Sequence[int | None],
    n: int,
    entries: Sequence[Array],
    tangents: Sequence[Array],
    first: Array,
    choosing: bool,
) -> Array | None:
    """What the tangents of an element add to that of result `n`; the first element is the result itself."""
    terms = []
    for m, (known, tangent) in enumerate(zip(row, tangents)):
        if isinstance(tangent, ad.Zero) or (known is None and n != m):
            continue
        entry = lax.full_like(tangent, 0) if known is None else entries[known]
        terms.append(_times(lax.select(first, lax.full_like(entry, int(n == m)), entry), tangent, choosing))
    return _total(terms) if terms else None


# ---------------------------------------------------------------------------------------------- its tangents
def parts_of(operands: Sequence[Array]) -> int:
    """n, of n * n + n operands."""
    return round((len(operands) + 0.25) ** 0.5 - 0.5)


def run_affine(*operands: Array, axis: int, reverse: bool, choosing: bool) -> list[Array]:
    parts = parts_of(operands)
    made = run_parts(*operands, combine=affine(parts, operands[0].dtype, choosing), axis=axis, reverse=reverse)
    return made[parts * parts :]


def _affine_jvp(primals: Sequence[Array], tangents: Sequence[Array], **how: Any) -> tuple[list[Array], list[Array]]:
    parts = parts_of(primals)
    results = affine_scanned_p.bind(*primals, **how)
    rows, of_terms = _matrix(tangents, parts)
    before = [_shifted(y, how["axis"], how["reverse"]) for y in results]
    whole = []
    for row, of_term in zip(rows, of_terms):
        terms = [lax.mul(each, y) for each, y in zip(row, before) if not isinstance(each, ad.Zero)]
        terms += [] if isinstance(of_term, ad.Zero) else [of_term]
        whole.append(_total(terms) if terms else lax.full_like(results[0], 0))
    return results, affine_scanned_p.bind(*primals[: parts * parts], *whole, **how)


def _affine_transpose(
    cotangents: Sequence[Array], *operands: Array, axis: int, reverse: bool, choosing: bool
) -> list[Array | None]:
    parts = parts_of(operands)
    rows, terms = _matrix(operands, parts)
    back = [_shifted(rows[m][n], axis, not reverse) for n in range(parts) for m in range(parts)]
    whole = [ad.instantiate_zeros(each) for each in cotangents]
    found = affine_scanned_p.bind(*back, *whole, axis=axis, reverse=not reverse, choosing=choosing)
    wanted = [each if ad.is_undefined_primal(term) else None for each, term in zip(found, terms)]
    return [*[None] * parts**2, *wanted]


# ---------------------------------------------------------------------------------------------- both
def _define(
    primitive: Any, run: Callable[..., list[Array]], jvp: Callable[..., Any], first: Callable[[Any], int]
) -> None:
    """The results have the types of the last operands, from the first of these on."""
    primitive.def_impl(lambda *args, **how: jax.jit(partial(run, **how))(*args))
    primitive.def_abstract_eval(lambda *args, **how: list(args[first(args) :]))
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))
    ad.primitive_jvps[primitive] = jvp
    batched.define(primitive, along="axis")


_define(scanned_parts_p, run_parts, _parts_jvp, lambda operands: 0)
_define(affine_scanned_p, run_affine, _affine_jvp, lambda operands: parts_of(operands) ** 2)
ad.primitive_transposes[affine_scanned_p] = _affine_transpose
