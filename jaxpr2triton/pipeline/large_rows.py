"""What has to be made together for some rows at a time, so that a large array is never whole.

    z = dot_general h w;  p = exp z …;  dw, dh = dot_general h p, dot_general p w    z:f32[4096,50257]

It begins with a product whose result is large, and has all that reads or makes anything about as large with the same
rows, and all that lies between these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from jax import lax

from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir import build
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Aval, Closed, Eqn, Jaxpr, Var, nbytes
from jaxpr2triton.ir.once import makers_of, readers_of
from jaxpr2triton.normalize.rewrite import is_plain
from jaxpr2triton.plan.library import library_time
from jaxpr2triton.policy import Policy
from jaxpr2triton.shards.constraints import inputs_of
from jaxpr2triton.shards.flow import Classes, bodies_of
from jaxpr2triton.shards.walks import CUT, Dim, walk_of

ADDED = ("dot_general", "reduce_sum")  # what adds up rows
ALGORITHMS = (lax.DotAlgorithm, lax.DotAlgorithmPreset)  # which say what they add up in
SUM_BYTES = 4  # of an element of a sum, at least, until all parts are added


@dataclass(frozen=True)
class Rows:
    """Equations that may be run for some rows at a time, and the class of the rows: of a dimension of `made`."""

    eqns: Sequence[Eqn]
    operands: Sequence[Var]
    results: Sequence[Var]
    classes: Classes
    made: Var
    kind: Dim

    def dim_of(self, var: Var) -> int | None:
        """Along which dimension it has the rows."""
        kinds = self.classes.all_of(var)
        return kinds.index(self.kind) if self.kind in kinds else None

    def has_rows(self, var: Var) -> bool:
        return self.dim_of(var) is not None

    @cached_property
    def large(self) -> set[Var]:
        """What has these rows, and at least half as many elements as what it begins with."""
        every = {*self.operands, *(var for eqn in self.eqns for var in eqn.outvars)}
        return {var for var in every if 2 * var.aval.size >= self.made.aval.size and self.has_rows(var)}

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest array that is made here and that a product writes or reads."""
        return max(map(nbytes, self._stored))

    @property
    def _stored(self) -> set[Var]:
        stored = {var for eqn in self._products for var in (*variables(eqn.invars), *eqn.outvars)}
        return (stored & self.large).difference(self.operands)

    @property
    def can_be_cut(self) -> bool:
        """Whether rows meet in sums of results alone, products are of what is large, and little comes out."""
        is_little = self.large.isdisjoint(self.results) and 2 * self.puts_out <= self.saved
        puts_out = is_little and all(is_plain(var.aval.dtype) for var in self.results)
        return puts_out and any(map(self.has_rows, self.operands)) and all(map(self._can_be_cut, self.eqns))

    @property
    def saved(self) -> int:
        """Bytes of all that is made here, and that a product writes or reads, where rows are not cut."""
        return nbytes(*self._stored)

    @property
    def puts_out(self) -> int:
        """Bytes of all that comes out: of sums those of all chunks so far, and those of one more."""
        return sum(nbytes(var) if self.has_rows(var) else 2 * _bytes_of_sum(var.aval) for var in self.results)

    def _can_be_cut(self, eqn: Eqn) -> bool:
        if eqn.primitive.name == "dot_general" and self.large.isdisjoint([*variables(eqn.invars), *eqn.outvars]):
            return False
        if self.kind not in map(self.classes.find, walk_of(eqn).met):
            return all(map(self.has_rows, eqn.outvars))
        (made,) = eqn.outvars
        is_read = any(made in variables(other.invars) for other in self.eqns)
        return eqn.primitive.name in ADDED and _can_be_f32(eqn) and not is_read

    @property
    def count(self) -> int:
        """How many there are; what a reshape joins with others has a multiple of that."""
        return self.classes.granule[self.kind]

    @property
    def has_places(self) -> bool:
        """Whether rows are told from each other by their places."""
        made = (eqn.outvars[0] for eqn in self.eqns if eqn.primitive.name == "iota")
        return any(map(self.has_rows, made))

    def longer(self, chunks: int, policy: Policy) -> float:
        """Microseconds that so many chunks take longer: launches, what all of them read, and what is added up."""
        added = 2 * sum(_bytes_of_sum(var.aval) for var in self.results if not self.has_rows(var))
        launches = policy.loops.loop_overhead_launches + len(self._products)
        each = policy.target.moving(added) + launches * policy.products.launch_after_gap_us
        return (chunks - 1) * each + sum(self._reading_again(eqn, chunks, policy) for eqn in self._products)

    def _reading_again(self, eqn: Eqn, chunks: int, policy: Policy) -> float:
        """Of a product, where that takes longer than to multiply."""
        shared = nbytes(*(var for var in variables(eqn.invars) if not self.has_rows(var)))
        moved = policy.target.moving(nbytes(*eqn.invars, *eqn.outvars) + (chunks - 1) * shared)
        return max(moved - library_time(eqn, policy), 0.0)

    def multiplying(self, policy: Policy) -> float:
        """Microseconds of all products."""
        return sum(library_time(eqn, policy) for eqn in self._products)

    @property
    def _products(self) -> list[Eqn]:
        return [eqn for eqn in self.eqns if eqn.primitive.name == "dot_general"]


def _bytes_of_sum(aval: Aval) -> int:
    return aval.size * max(aval.dtype.itemsize, SUM_BYTES)


def _can_be_f32(eqn: Eqn) -> bool:
    """Whether the sum of an equation is exact enough to be added to others, or may be made so."""
    dtype = eqn.outvars[0].aval.dtype
    if is_bool(dtype):
        return False
    precision = eqn.params.get("precision")
    return dtype.itemsize >= SUM_BYTES or is_float(dtype) and not isinstance(precision, ALGORITHMS)


def rows_of(closed: Closed, made: Var, dim: int) -> Rows | None:
    """What has to be made together with a product, for some rows of it; None if these rows are whole somewhere."""
    jaxpr = closed.jaxpr
    makers, readers = makers_of(jaxpr), readers_of(jaxpr)
    places = {id(eqn): place for place, eqn in enumerate(jaxpr.eqns)}
    inside = {makers[made]}
    while True:
        eqns = [jaxpr.eqns[place] for place in _between(jaxpr, inside)]
        if any(_is_beside(eqn, made) for eqn in eqns):
            return None
        found = _of_equations(closed, eqns, made, dim)
        if found.kind in found.classes.why:
            return None
        more = {places[id(eqn)] for var in found.large for eqn in readers.get(var, ()) if eqn is not None}
        more.update(makers[var] for var in found.large if var in makers)
        if more <= inside:
            return found
        inside |= more


def _is_beside(eqn: Eqn, made: Var) -> bool:
    """Whether it cannot be cut along any rows: effects, a body, keys, parts of a mesh, or products of what is small"""
    atoms = [*variables(eqn.invars), *eqn.outvars]
    if eqn.effects or bodies_of(eqn) or eqn.primitive.name in CUT or any(varies_over_mesh(atom.aval) for atom in atoms):
        return True
    return eqn.primitive.name == "dot_general" and all(2 * atom.aval.size < made.aval.size for atom in atoms)


def _between(jaxpr: Jaxpr, inside: Collection[int]) -> list[int]:
    """The places of these equations, and of all that lead from one of them to another one."""
    after: set[Var] = set()
    reached = []
    for place, eqn in enumerate(jaxpr.eqns):
        if place in inside or not after.isdisjoint(variables(eqn.invars)):
            after.update(eqn.outvars)
            reached.append(place)
    before: set[Var] = set()
    found = []
    for place in reversed(reached):
        eqn = jaxpr.eqns[place]
        if place in inside or not before.isdisjoint(eqn.outvars):
            before.update(variables(eqn.invars))
            found.append(place)
    return found[::-1]


def _of_equations(closed: Closed, eqns: Sequence[Eqn], made: Var, dim: int) -> Rows:
    own, readers, operands = set(map(id, eqns)), readers_of(closed.jaxpr), inputs_of(eqns)
    every = (var for eqn in eqns for var in eqn.outvars)
    results = [var for var in every if any(id(reader) not in own for reader in readers.get(var, ()))]
    names = [""] * (len(operands) + len(results))
    classes = Classes(build.excerpt(closed, eqns, operands, results, names).jaxpr)
    return Rows(eqns, operands, results, classes, made, classes.find((made, dim)))
