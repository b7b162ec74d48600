"""Rows in chunks, where what lies between products of a library is too large to be stored at once.

    z = dot_general h w              h:bf16[4096,768]  w:bf16[768,50257]  z:bf16[4096,50257]
    p = exp (z - max z) / …          row by row
    dw, dh = dot_general h p, dot_general p w

        →   dw, dh = chunks[length=2 …] h w       2048 rows of z and p, then the others; both parts of dw are added

`pipeline/large_rows.py` finds what is made together. It is left as it is if its rows meet otherwise than in sums that
it puts out, if something large comes out of it, or if a product in it is of nothing large. Chunks are as many as keep
what is stored small, unless they would take too much longer. Sums of 16 bits are f32 until all parts are added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy as numbers
from jaxpr2triton._compat import bind_with, source_of
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.chunks import chunks_p
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import needed, read, run, variables
from jaxpr2triton.ir.jaxprs import Aval, Closed, Eqn, Jaxpr, Var, nbytes
from jaxpr2triton.ir.region import library_p
from jaxpr2triton.ir.tracing import again, argument_names, retrace
from jaxpr2triton.ir.value_names import memory_names
from jaxpr2triton.normalize.rewrite import typed_as
from jaxpr2triton.pipeline.large_rows import SUM_BYTES, Rows, rows_of
from jaxpr2triton.plan.library import shown, walked_along
from jaxpr2triton.policy import Policy
from jaxpr2triton.shards.flow import Classes, Flow
from jaxpr2triton.shards.local import Part, local_shape

ALL_AT_ONCE = "exact_order=True makes all rows at once"


@dataclass(frozen=True)
class Cut:
    """Rows that are made `each` at a time; the last ones may be fewer."""

    rows: Rows
    each: int
    longer: float  # microseconds

    @property
    def stored(self) -> float:
        """Bytes of the largest array of a chunk."""
        return self.rows.largest * self.each / self.rows.count

    @property
    def why(self) -> WhyNot:
        dim = self.rows.dim_of(self.rows.made)
        assert dim is not None
        size = self.rows.made.aval.shape[dim]
        text = f"{self.rows.largest / 1e6:,.0f} MB would be stored between its products, so"
        text += f" {size * self.each // self.rows.count:,} of {size:,} rows are made at a time, which takes"
        return WhyNot(f"{text} about {shown(self.longer)} µs longer", ALL_AT_ONCE)


def chunk_rows(closed: Closed, policy: Policy) -> Closed:
    """The program with what is too large made for some of its rows at a time."""
    while (cut := _first_cut(closed, policy)) is not None:
        closed = _in_chunks(closed, cut)
    return closed


def _first_cut(closed: Closed, policy: Policy) -> Cut | None:
    jaxpr = closed.jaxpr
    large = [eqn for eqn in jaxpr.eqns if _is_large(eqn)]
    walked = walked_along(jaxpr, policy) if any(eqn.primitive is not library_p for eqn in large) else set()
    for made in (eqn.outvars[0] for eqn in large if eqn.outvars[0] not in walked):
        cuts = list(_cuts_of(closed, made, policy))
        if cuts:
            return min(cuts, key=lambda cut: (max(cut.stored, numbers.COMMON.stored_between), cut.longer))
    return None


def _is_large(eqn: Eqn) -> bool:
    """Whether it multiplies, and what it makes is too large.

    Kernels may have whole rows of what is narrow, and make what is of few terms where they need it.
    """
    if eqn.primitive.name != "dot_general" or nbytes(eqn.outvars[0]) <= numbers.COMMON.stored_between:
        return False
    most = numbers.COMMON.side_of_a_matrix
    return eqn.primitive is library_p or min(eqn.outvars[0].aval.shape[-1], terms_of(eqn)) > most


def _cuts_of(closed: Closed, made: Var, policy: Policy) -> Iterator[Cut]:
    """The best along each dimension of the result of a product."""
    for dim in range(len(made.aval.shape)):
        rows = rows_of(closed, made, dim)
        if rows is not None and rows.can_be_cut and _keeps_effects(closed.jaxpr, rows):
            cut = _in_time(rows, policy)
            if cut is not None:
                yield cut


def _in_time(rows: Rows, policy: Policy) -> Cut | None:
    """Chunks that are small enough, or as small as about the time of all rows at once allows; best all alike."""
    most = (policy.loops.longer - 1) * rows.multiplying(policy)
    wanted = min(math.ceil(rows.largest / numbers.COMMON.stored_between), rows.count)
    chunks = next((n for n in range(wanted, 1, -1) if rows.longer(n, policy) <= most), None)
    if chunks is None:
        return None
    fewer = range(chunks - 1, chunks // 2, -1) if chunks < wanted or rows.has_places else ()
    alike = (n for n in (*range(chunks, 2 * chunks + 1), *fewer) if rows.count % n == 0)
    chunks_alike = next((n for n in alike if n > 1 and rows.longer(n, policy) <= most), None)
    if chunks_alike is None and rows.has_places:
        return None
    chunks = chunks_alike or chunks
    return Cut(rows, -(-rows.count // chunks), rows.longer(chunks, policy))


def _in_chunks(closed: Closed, cut: Cut) -> Closed:
    rows = cut.rows
    before, after = _around(closed.jaxpr, rows)
    whole = _with_exact_sums(closed, rows)
    chunks, rest = divmod(rows.count, cut.each)
    pieces = [_Piece(rows, whole, 0, chunks, cut.each), _Piece(rows, whole, chunks * cut.each, 1, rest)]
    pieces = pieces if rest else pieces[:1]

    def written(*args: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip(closed.jaxpr.invars, args))
        run(before, env)
        operands = [env[var] for var in rows.operands]
        with source_of(rows.eqns[0]):
            made = [piece.write(operands, cut.why) for piece in pieces]
            for var, *parts in zip(rows.results, *made):
                value = lax.convert_element_type(_joined(parts, rows.dim_of(var)), var.aval.dtype)
                env[var] = typed_as(value, var.aval)
        run(after, env)
        return [read(env, atom) for atom in closed.jaxpr.outvars]

    return again(closed, written)


def _joined(parts: Sequence[Any], dim: int | None) -> Any:
    if dim is None:
        return functools.reduce(lax.add, parts)
    return lax.concatenate(parts, dim) if len(parts) > 1 else parts[0]


def _around(jaxpr: Jaxpr, rows: Rows) -> tuple[list[Eqn], list[Eqn]]:
    """The other equations in their order: those before the first that reads a result, with all that rows need."""
    own, made = set(map(id, rows.eqns)), set(rows.results)
    needed_first = set(map(id, needed(jaxpr.eqns, rows.operands, ())))
    before: list[Eqn] = []
    after: list[Eqn] = []
    for eqn in (eqn for eqn in jaxpr.eqns if id(eqn) not in own):
        is_before = id(eqn) in needed_first or not after and made.isdisjoint(variables(eqn.invars))
        (before if is_before else after).append(eqn)
    return before, after


def _keeps_effects(jaxpr: Jaxpr, rows: Rows) -> bool:
    """Whether what has effects is in the order in which it was."""
    before, after = _around(jaxpr, rows)
    return [eqn for eqn in (*before, *after) if eqn.effects] == [eqn for eqn in jaxpr.eqns if eqn.effects]


@dataclass(frozen=True)
class _Piece:
    """Some of the rows, in chunks of one size."""

    rows: Rows
    whole: Closed  # the program of all rows
    first: int
    chunks: int
    each: int

    def write(self, operands: Sequence[Any], why: WhyNot) -> list[Any]:
        """Write the equation, and what takes its rows out of all."""
        in_dims, out_dims = (tuple(map(self.rows.dim_of, each)) for each in (self.rows.operands, self.rows.results))
        taken = [each if dim is None else self._taken(each, dim) for each, dim in zip(operands, in_dims)]
        params = {"length": self.chunks, "in_dims": in_dims, "out_dims": out_dims, "why": why}
        return chunks_p.bind(*taken, jaxpr=self._program(), **params)

    def _taken(self, value: Any, dim: int) -> Any:
        if self.chunks * self.each == self.rows.count:
            return value
        times = value.shape[dim] // self.rows.count
        first = self.first * times
        return lax.slice_in_dim(value, first, first + self.chunks * self.each * times, axis=dim)

    def _program(self) -> Closed:
        """That of one chunk, whose first operand is its number."""
        inner = self.whole.jaxpr
        classes = Classes(inner)
        place, dim = next((n, d) for n, d in enumerate(map(self.rows.dim_of, self.rows.operands)) if d is not None)
        kind = classes.find((inner.invars[place], dim))
        split = {kind: Fraction(self.rows.count, self.each)}
        flow = Flow(classes, frozenset(split))

        def chunk(number: Any, *operands: Any) -> list[Any]:
            env: dict[Var, Any] = dict(zip(inner.invars, operands))
            Part(flow, split, {kind: number}).run(list(enumerate(inner.eqns)), env, ())
            return [read(env, atom) for atom in inner.outvars]

        types = [_typed(local_shape(classes, split, var), var.aval) for var in inner.invars]
        number = jax.core.ShapedArray((), np.dtype(np.int32))
        return retrace(chunk, number, *types, names=["chunk", *argument_names(self.whole)])


def _typed(shape: tuple[int, ...], like: Aval) -> Any:
    return jax.core.ShapedArray(shape, like.dtype, weak_type=like.weak_type)


def _with_exact_sums(closed: Closed, rows: Rows) -> Closed:
    """The rows as a program of their own, with results of 16 bits that chunks are parts of as f32."""
    names = memory_names(closed, rows.operands)
    sums = {var for var in rows.results if rows.dim_of(var) is None and var.aval.dtype.itemsize < SUM_BYTES}

    def widened(eqn: Eqn, values: list[Any]) -> list[Any] | None:
        if eqn.outvars[0] not in sums:
            return None
        if eqn.primitive.name == "dot_general":
            return bind_with(eqn, {**eqn.params, "preferred_element_type": np.dtype(np.float32)}, values)
        return bind_with(eqn, eqn.params, [lax.convert_element_type(values[0], np.float32)])

    def written(*operands: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip(rows.operands, operands))
        run(rows.eqns, env, widened)
        return [env[var] for var in rows.results]

    return retrace(written, *(var.aval for var in rows.operands), names=[names[var] for var in rows.operands])
