"""Which contractions XLA's library computes, and which a kernel does, with what is around them.

    y = dot_general x w       x, w: bf16[4096,4096]        185 µs by a library, 232 µs in a kernel, nothing saved
    z = tanh (add y b)        x: f32[64,32] w: f32[32,10]    3 µs either way, and a launch saved: a kernel's

    u = dot_general (dot_general x a) b    f32[64,32] each   3 µs either way, and a launch saved: both are one kernel's

Multiplying is what libraries do best. A kernel saves that a factor is written which is only read here, or the products,
where something is computed of them right away: each is a launch, and a pass through memory and back. So it does where
rows of products are multiplied right away, and are so short that one program has whole ones: half of that is saved by
each of the two contractions. A chain that walks along what lies between (`graph/chains.py`) is weighed as a whole:

    softmax (q @ k.T) @ v         q, k, v: bf16[64,2048,64]: 2 products, and what is as large as 64 * 2048**2 twice over
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

from jaxpr2triton import policy as numbers
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.chains import chain_of
from jaxpr2triton.graph.classes import classes_of
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.dynamic import TABLE as DYNAMIC
from jaxpr2triton.graph.same_places import EXTREMES, dims_along, is_at, reduced_of, reduces_alike
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.hardware import ALIGNED
from jaxpr2triton.ir import build
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Aval, Closed, Eqn, Jaxpr, Literal, Var, nbytes_of
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.ir.once import Without, makers_of
from jaxpr2triton.ir.region import library_p
from jaxpr2triton.ir.windows import windowed_p
from jaxpr2triton.plan.rounds import named
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.products import EXACT, TF32, factor_dtype, input_precision
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.rows import TABLE

ASKED_FOR = WhyNot('contractions="xla" leaves them to a library', 'contractions="triton" makes kernels of them')
TAKES = 'contractions="triton" makes a kernel of it'
FREE = frozenset({"convert_element_type", "copy", "copy_p", "neg"})  # what libraries do on the way


@dataclass(frozen=True)
class Estimate:
    """Microseconds, the launch that both have apart."""

    library: float
    kernel: float
    saved: float  # by a kernel, of what is around
    launch: float

    @property
    def is_ours(self) -> bool:
        return self.saved > max(0.0, self.kernel - self.library)

    def __str__(self) -> str:
        saved = f"{shown(self.saved)} µs" if self.saved else "nothing"
        library, kernel = (shown(time + self.launch) for time in (self.library, self.kernel))
        times = f"with its launch a library takes about {library} µs, and a kernel {kernel} µs"
        return f"{times}, and fusing its neighbours would save {saved}"


def shown(time: float) -> str:
    """In two digits."""
    rounded = float(f"{time:.2g}")
    return f"{rounded:,.0f}" if rounded.is_integer() else f"{rounded:,g}"


def left_to_library(closed: Closed, contractions: str, policy: Policy) -> Closed:
    """The program with its contractions marked that no kernel is to hold; `contractions` is what the user asked for."""
    if contractions == "triton":
        return closed
    estimates = {} if contractions == "xla" else estimates_of(closed.jaxpr, policy)
    around = Around(closed.jaxpr, policy)

    def marked(eqn: Eqn) -> Eqn:
        if not _may_be_ours(eqn) or around.has_windows(eqn):
            return eqn
        found = estimates.get(eqn.outvars[0])
        if found is not None and found.is_ours:
            return eqn
        why = ASKED_FOR if found is None else WhyNot(str(found), TAKES)
        plain = _as_they_are(eqn, around)
        return plain.replace(primitive=library_p, params={**plain.params, "why": why})

    eqns = [marked(eqn) for eqn in closed.jaxpr.eqns]
    return closed if eqns == closed.jaxpr.eqns else build.with_equations(closed, eqns)


def _as_they_are(eqn: Eqn, around: Around) -> Eqn:
    """A contraction of factors as they are before they are turned: a library takes what it sums, and batches, anywhere.

    b = transpose[permutation=(1, 0)] a;  c = dot_general[(((0,), (0,)), ((), ()))] b w
        →    c = dot_general[(((1,), (0,)), ((), ()))] a w

    Else a kernel would have to write them in that order, which need not be that of its rows.
    """
    operands, sides = [*eqn.invars], [[list(dims) for dims in each] for each in eqn.params["dimension_numbers"]]
    for side, atom in enumerate(eqn.invars):
        turn = around.maker_of(atom)
        if turn is None or turn.primitive.name != "transpose":
            continue
        order = turn.params["permutation"]
        free = [order[d] for d in range(len(order)) if not any(d in each[side] for each in sides)]
        if free == sorted(free):
            operands[side] = turn.invars[0]
            for each in sides:
                each[side] = [order[d] for d in each[side]]
    sums, batch = (tuple(map(tuple, each)) for each in sides)
    return eqn.replace(invars=operands, params={**eqn.params, "dimension_numbers": (sums, batch)})


def estimates_of(jaxpr: Jaxpr, policy: Policy) -> Mapping[Var, Estimate]:
    """By the results of the contractions that a kernel could compute."""
    around = Around(jaxpr, policy)
    products = around.products
    found = {eqn.outvars[0]: _estimate(eqn, around, policy) for eqn in products}
    for chains in _together(_chains(around, products)):
        estimate = _estimate_of_chains(chains, policy)
        found |= {eqn.outvars[0]: estimate for chain in chains for eqn in chain.products}
    return found


def walked_along(jaxpr: Jaxpr, policy: Policy) -> set[Var]:
    """The results of products that kernels walk along, and so never store."""
    around = Around(jaxpr, policy)
    every = (eqn for chain in _chains(around, around.products) for eqn in chain.between)
    return {eqn.outvars[0] for eqn in every if eqn.primitive is not library_p}


def ends_of_walks(jaxpr: Jaxpr, policy: Policy) -> list[Var]:
    """The results of the last products of kernels that walk along what others make, where there are several."""
    around = Around(jaxpr, policy)
    products = around.products
    return [eqn.outvars[0] for eqn in products if len(products) > 2 and _chain_to(around, eqn) is not None]


@dataclass(frozen=True)
class Chained:
    """Contractions that one kernel may walk along, with what is between them, up to a last one or to a sum."""

    products: Sequence[Eqn]
    last: Eqn

    @property
    def between(self) -> list[Eqn]:
        return [eqn for eqn in self.products if eqn is not self.last]


def _chains(around: Around, products: Sequence[Eqn]) -> Iterator[Chained]:
    """The chains that end with a contraction, and those of other contractions that end with sums, or the like."""
    found: set[Var] = set()
    for last in products:
        if (chain := _chain_to(around, last)) is not None:
            found.update(eqn.outvars[0] for eqn in chain.products)
            yield chain
    reduced: dict[Var, Chained] = {}
    for last in (eqn for eqn in around.jaxpr.eqns if eqn.primitive.name in REDUCTIONS and products):
        if (chain := _chain_to(around, last, found)) is not None:
            reduced |= {eqn.outvars[0]: chain for eqn in chain.products}  # the last of them goes through all others
    yield from dict.fromkeys(reduced.values())


def _chain_to(around: Around, last: Eqn, others: Set[Var] = frozenset()) -> Chained | None:
    """The one that ends there, of what leads to all of its operands, or to one, and begins with nothing `others` have.

    The other factor may be made of a product that is in memory, as where a projection makes queries, keys and values.
    """
    each = [(atom,) for atom in last.invars] if len(last.invars) > 1 else []
    for operands in (tuple(last.invars), *each):
        inside, before = around.leading_to(operands)
        first = [eqn for eqn in before if eqn.outvars[0].aval.size > last.outvars[0].aval.size]
        is_free = bool(first) and others.isdisjoint(eqn.outvars[0] for eqn in first)
        if is_free and _is_walked(around, [*first, last], inside):
            return Chained(tuple(first if last.primitive.name in REDUCTIONS else (*first, last)), last)
    return None


def _together(chains: Iterable[Chained]) -> list[list[Chained]]:
    """The chains that begin with the same contractions, as a softmax and its gradients do: all of them, or none."""
    groups: list[list[Chained]] = []
    for chain in chains:
        mine = {eqn.outvars[0] for eqn in chain.products}
        shared = [g for g in groups if any(eqn.outvars[0] in mine for each in g for eqn in each.products)]
        groups = [group for group in groups if group not in shared] + [[*itertools.chain.from_iterable(shared), chain]]
    return groups


def _is_walked(around: Around, chain: Sequence[Eqn], inside: Sequence[Eqn]) -> bool:
    """Whether one kernel makes these with what is between them, if all else is in memory; or the sums there as well.

    Of one row, or in chunks, only if nobody else reads what is between them.
    """
    others = [eqn for eqn in inside if eqn.primitive.name not in REDUCTIONS]
    return any(_is_chain(around, chain, each) for each in ([inside, others] if len(others) < len(inside) else [inside]))


def _is_chain(around: Around, chain: Sequence[Eqn], inside: Sequence[Eqn]) -> bool:
    memory = Without(around.numbers, [var for eqn in (*chain, *inside) for var in eqn.outvars])
    try:
        space = space_of(around.jaxpr, [chain[-1].outvars[0]], classes_of(around.jaxpr), memory, may_repeat=False)
    except TooManyPlaces:
        return False
    found = None if space is None else chain_of(space, around.policy.axes.unrolled_sum)
    if found is None:
        return False
    if found.rows and found.fits(around.policy):
        return True
    return found.fits_in_chunks(around.policy) and _is_of_one_extreme(around, chain, inside)


def _is_of_one_extreme(around: Around, chain: Sequence[Eqn], inside: Sequence[Eqn]) -> bool:
    """Whether a product is of what is reduced along the way, element by element, and nobody else reads any of that."""
    made = {id(eqn): eqn for eqn in (*chain, *inside)}
    readers = [each for eqn in (*chain[:-1], *inside) for var in eqn.outvars for each in around.readers.get(var, ())]
    others = [each for each in readers if id(each) not in made]
    met = {id(each): each for each in (*made.values(), *others) if each is not None}
    extremes = [eqn for eqn in met.values() if eqn.primitive.name in EXTREMES]
    if len(extremes) != 1 or chain[-1].primitive.name != "dot_general":
        return False
    alone = all(each is not None and reduces_alike(each, extremes[0]) for each in others)
    return alone and _is_multiplied(around.jaxpr, extremes[0], chain[-1])


def _is_multiplied(jaxpr: Jaxpr, extreme: Eqn, product: Eqn) -> bool:
    """Whether one factor is made of what is reduced, element by element, and is summed along the same dimension."""
    (reduced,), (sums, _) = variables(extreme.invars), product.params["dimension_numbers"]
    along = dims_along([eqn for eqn in jaxpr.eqns if eqn.primitive.name not in REDUCTIONS], reduced)
    factors = [(atom, dims) for atom, dims in zip(product.invars, sums) if isinstance(atom, Var) and atom in along]
    if len(factors) != 1:
        return False
    ((factor, dims),) = factors
    is_here = is_at(along[factor], factor, range(len(factor.aval.shape)))
    return is_here and (factor.aval.shape, tuple(dims)) == reduced_of(extreme)


def _estimate_of_chains(chains: Sequence[Chained], policy: Policy) -> Estimate:
    """Of a library, with what is computed between its products: that is read, and written, as large as they are.

    Each chain makes again what it begins with.
    """
    products, target = policy.products, policy.target
    once = {eqn.outvars[0]: eqn for chain in chains for eqn in chain.products}
    between = {eqn.outvars[0]: eqn for chain in chains for eqn in chain.between}
    kernel = sum(_time_of_chain(chain, policy) for chain in chains)
    library = sum(library_time(eqn, policy) for eqn in once.values())
    passes = target.moving(2 * nbytes_of(*(var.aval for var in between)))
    launches = products.launch_after_gap_us * max(len(once) + len(between) - len(chains), 0)
    return Estimate(library, kernel, passes + launches, products.launch_after_gap_us)


def _time_of_chain(chain: Chained, policy: Policy) -> float:
    products = policy.products
    moved, multiplied, exact = zip(*(_least(eqn, policy) for eqn in chain.products))
    between = nbytes_of(*(eqn.outvars[0].aval for eqn in chain.between))
    own = products.library if all(exact) else products.own_made
    return max(sum(moved) - policy.target.moving(2 * between), sum(multiplied) / own)


def multiplied(closed: Closed, policy: Policy) -> Iterator[str]:
    """What is multiplied in kernels, each with what it would take otherwise."""
    makers = {eqn.outvars[0]: eqn for eqn in closed.jaxpr.eqns if _may_be_ours(eqn)}
    for var, estimate in estimates_of(closed.jaxpr, policy).items():
        if makers[var].primitive is not library_p:
            yield f"{named(var, makers[var])} is multiplied in a kernel: {estimate}"


def _estimate(eqn: Eqn, around: Around, policy: Policy) -> Estimate:
    products, target = policy.products, policy.target
    factors = [atom.aval for atom in eqn.invars]
    moved, least, is_exact = _least(eqn, policy)
    is_made = any(map(around.is_made, eqn.invars))
    own = products.library if is_exact else products.own_made if is_made else products.own
    longer = products.odd if any(_is_odd(each, policy) for each in factors) else 1
    share = min(1.0, products.of_members * around.members(eqn))
    passes = [2 * nbytes_of(each.aval) * share for each, share in around.passes(eqn)]
    saved = target.moving(sum(passes)) + products.launch_after_gap_us * around.launches(eqn)
    kernel = max(moved, longer * share * least / own)
    return Estimate(max(moved, least / products.library), kernel, saved, products.launch_after_gap_us)


def library_time(eqn: Eqn, policy: Policy, times: int = 1, fixed: Collection[Atom] = ()) -> float:
    """Microseconds that a library takes for a contraction, without its launch.

    Or for so many of them, all at once, with the same `fixed` factors.
    """
    moved, least, _ = _least(eqn, policy, times, fixed)
    return max(moved, least / policy.products.library)


def _least(eqn: Eqn, policy: Policy, times: int = 1, fixed: Collection[Atom] = ()) -> tuple[float, float, bool]:
    """Microseconds to move what a contraction reads and writes, and to multiply; and whether all bits are."""
    target, made = policy.target, eqn.outvars[0].aval
    once = [atom.aval for atom in eqn.invars if atom in fixed]
    each = [atom.aval for atom in eqn.invars if atom not in fixed]
    moved = target.moving(nbytes_of(*once) + times * nbytes_of(*each, made))
    terms = times * made.size * terms_of(eqn)
    rate, is_exact = rate_of(eqn, policy)
    return moved, terms / (rate * target.processors * target.clock * 1000), is_exact


def multiplying_again(eqn: Eqn, policy: Policy) -> float:
    """Microseconds of a kernel for a contraction that it makes beside others."""
    rate, is_exact = rate_of(eqn, policy)
    own = policy.products.library if is_exact else policy.products.own_made
    terms = eqn.outvars[0].aval.size * terms_of(eqn)
    return terms / (rate * own * policy.target.processors * policy.target.clock * 1000)


def rate_of(eqn: Eqn, policy: Policy) -> tuple[float, bool]:
    """Products that a processor adds in a cycle, and whether that is by its multiply-and-add unit."""
    target, dtype = policy.target, factor_dtype(eqn)
    if dtype is None or dtype.itemsize == 8:
        return target.cores, True
    if dtype.itemsize == 4:
        precision = input_precision(eqn, target)
        if precision == EXACT:
            return target.cores, True
        return target.products / 2 / (1 if precision == TF32 else 3), False
    return target.products * 2 // dtype.itemsize, False


def _is_odd(factor: Aval, policy: Policy) -> bool:
    """Whether rows begin where nothing wide can be loaded."""
    *rows, row = factor.shape or (1,)
    return bool(rows) and bool(row * factor.dtype.itemsize % ALIGNED)


@dataclass
class Around:
    """What makes the factors of contractions, and what reads the results."""

    jaxpr: Jaxpr
    policy: Policy
    _made: dict[Var, bool] = field(default_factory=dict)

    @cached_property
    def products(self) -> list[Eqn]:
        """The contractions that a kernel could compute, and that are no convolutions."""
        return [eqn for eqn in self.jaxpr.eqns if _may_be_ours(eqn) and not self.has_windows(eqn)]

    @cached_property
    def makers(self) -> Mapping[Var, int]:
        return makers_of(self.jaxpr)

    @cached_property
    def numbers(self) -> Mapping[Var, int]:
        """Of all values, as if all of them were in memory."""
        return {var: number for number, var in enumerate((*self.jaxpr.invars, *self.jaxpr.constvars, *self.makers))}

    @cached_property
    def readers(self) -> Mapping[Var, list[Eqn | None]]:
        """None: what calls the program."""
        found: dict[Var, list[Eqn | None]] = {}
        for eqn in self.jaxpr.eqns:
            for atom in eqn.invars:
                if not isinstance(atom, Literal):
                    found.setdefault(atom, []).append(eqn)
        for atom in self.jaxpr.outvars:
            if not isinstance(atom, Literal):
                found.setdefault(atom, []).append(None)
        return found

    def passes(self, eqn: Eqn) -> Iterator[tuple[Var, float]]:
        """The arrays that need not be written and read for this contraction, each with its share of that."""
        for atom in dict.fromkeys(atom for atom in eqn.invars if not isinstance(atom, Literal)):
            readers = self.readers[atom]
            if all(map(_is_contraction, readers)) and self._is_computed(atom):
                yield atom, 1 / len(readers)
            elif self._is_handed_over(atom):
                yield atom, 0.5
        if self.goes_on(eqn):
            yield eqn.outvars[0], 1.0
        elif self._is_handed_over(eqn.outvars[0]):
            yield eqn.outvars[0], 0.5

    def launches(self, eqn: Eqn) -> float:
        return sum(share for _, share in self.passes(eqn))

    def _is_handed_over(self, atom: Var) -> bool:
        """Whether a contraction makes rows that another one multiplies, and one program has whole ones of both."""
        if not self._has_maker(atom) or len(self.readers.get(atom, [])) != 1:
            return False
        first, (second,) = self.jaxpr.eqns[self.makers[atom]], self.readers[atom]
        if second is None or not (_may_be_ours(first) and _may_be_ours(second)):
            return False
        place, made = second.invars.index(atom), atom.aval.shape
        summed, batch = (sides[place] for sides in second.params["dimension_numbers"])
        _, before = (sides[0] for sides in first.params["dimension_numbers"])
        if len(summed) != 1 or tuple(batch) != tuple(range(len(before))) or summed[0] < len(before):
            return False
        rows = math.prod(size for dim, size in enumerate(made) if dim not in (*batch, *summed))
        taken = [dim for sides in second.params["dimension_numbers"] for dim in sides[1 - place]]
        others = second.invars[1 - place].aval.shape
        columns = math.prod(size for dim, size in enumerate(others) if dim not in taken)
        most = numbers.COMMON.side_of_a_matrix // (2 if rate_of(second, self.policy)[1] else 1)
        return rows > 1 and max(columns, made[summed[0]]) <= most

    @cached_property
    def _made_on_the_way(self) -> Mapping[int, Sequence[int]]:
        """What is light or reduces, by place: the places of what it is made of."""
        eqns = enumerate(self.jaxpr.eqns)
        return {place: self._makers_of(each.invars) for place, each in eqns if _is_light_or_reduces(each)}

    def leading_to(self, operands: Sequence[Atom]) -> tuple[list[Eqn], list[Eqn]]:
        """What kernels compute on the way to the operands of a contraction, and the contractions it begins with."""
        made = self._made_on_the_way
        found = sorted(reachable(self._makers_of(operands), lambda place: made.get(place, ())))
        inside = [self.jaxpr.eqns[place] for place in found if place in made]
        others = (self.jaxpr.eqns[place] for place in found if place not in made)
        return inside, [each for each in others if _may_be_ours(each)]

    def has_windows(self, eqn: Eqn) -> bool:
        """Whether it was a convolution, which is weighed as such (`plan/convolved.py`): no library takes windows."""

        def before(place: int) -> list[int]:
            each = self.jaxpr.eqns[place]
            return self._makers_of(each.invars) if isinstance(TABLE.get(each.primitive.name), Indexing) else []

        found = reachable(self._makers_of(eqn.invars), before)
        return any(self.jaxpr.eqns[place].primitive is windowed_p for place in found)

    def _makers_of(self, operands: Iterable[Atom]) -> list[int]:
        """The equations that make them."""
        return [self.makers[atom] for atom in operands if self._has_maker(atom)]

    def members(self, eqn: Eqn) -> float:
        """The share of its terms that a kernel has to add, as rows are multiplied with those of one group only."""
        return min((self._members(atom) for atom in eqn.invars), default=1.0)

    def _members(self, atom: Atom) -> float:
        while self._has_maker(atom):
            eqn = self.jaxpr.eqns[self.makers[atom]]
            if eqn.primitive is member_p:
                return 1 / float(eqn.params["of"])
            if not isinstance(TABLE.get(eqn.primitive.name), Indexing):
                break
            atom = eqn.invars[0]
        return 1.0

    def is_made(self, atom: Atom) -> bool:
        """Whether a factor is computed where it is multiplied, of products too."""
        return any(map(_is_work, self._light(atom)))

    def _light(self, atom: Atom) -> Iterator[Eqn]:
        """What makes a value of what is in memory, as far as it is done on the way."""

        def before(place: int) -> list[int]:
            eqn = self.jaxpr.eqns[place]
            return self._makers_of(eqn.invars) if is_light(eqn) else []

        for place in reachable([self.makers[atom]] if self._has_maker(atom) else [], before):
            if is_light(self.jaxpr.eqns[place]):
                yield self.jaxpr.eqns[place]

    def maker_of(self, atom: Atom) -> Eqn | None:
        return self.jaxpr.eqns[self.makers[atom]] if self._has_maker(atom) else None

    def _has_maker(self, atom: Atom) -> TypeGuard[Var]:
        return not isinstance(atom, Literal) and atom in self.makers

    def _is_computed(self, atom: Atom) -> bool:
        """Whether a factor is made on the way, of what is in memory anyway.

        Of other products it is not: those save it, if anybody does.
        """
        if not self._has_maker(atom):
            return False
        for each in postorder([atom], self._handed_on, self._made):
            eqn = self.jaxpr.eqns[self.makers[each]]
            is_made = _is_work(eqn) or any(self._made[part] for part in self._handed_on(each))
            self._made[each] = is_made and self._is_on_the_way(each)
        return self._made[atom]

    def _handed_on(self, atom: Var) -> list[Var]:
        """What makes nothing of its operands makes these."""
        eqn = self.jaxpr.eqns[self.makers[atom]]
        return [] if _is_work(eqn) or not is_light(eqn) else [each for each in eqn.invars if self._has_maker(each)]

    def _is_on_the_way(self, atom: Var) -> bool:
        eqn = self.jaxpr.eqns[self.makers[atom]]
        return is_light(eqn) and not self._is_of_products(eqn, atom.aval.size)

    def _is_of_products(self, eqn: Eqn, size: int) -> bool:
        def makers(each: Eqn) -> list[Eqn]:
            large = (atom for atom in variables(each.invars) if atom in self.makers and atom.aval.size >= size)
            return [self.jaxpr.eqns[self.makers[atom]] for atom in large]

        return any(map(_is_contraction, reachable(makers(eqn), lambda each: makers(each) if is_light(each) else [])))

    def goes_on(self, eqn: Eqn) -> bool:
        """Whether all that reads the result computes something of it, wherever it is read."""
        is_work = False

        def handed(var: Var) -> list[Var]:
            readers = [reader for reader in self.readers.get(var, []) if reader is not None and not _is_work(reader)]
            return [out for reader in readers for out in reader.outvars]

        for var in reachable([eqn.outvars[0]], handed):
            for reader in self.readers.get(var, [None]):
                if reader is None or not is_light(reader):
                    return False
                is_work = is_work or _is_work(reader)
        return is_work


def _is_contraction(eqn: Eqn | None) -> bool:
    return eqn is not None and eqn.primitive.name == "dot_general"


def _may_be_ours(eqn: Eqn) -> bool:
    """Whether it is a contraction that a kernel could compute, whoever does."""
    return _is_contraction(eqn) and (eqn.primitive is library_p or why_not(eqn) is None)


def is_light(eqn: Eqn) -> bool:
    """Whether it is computed wherever it is read."""
    name = eqn.primitive.name
    return (name in DYNAMIC or isinstance(TABLE.get(name), Pointwise | Indexing)) and why_not(eqn) is None


def _is_light_or_reduces(eqn: Eqn) -> bool:
    return is_light(eqn) or (eqn.primitive.name in REDUCTIONS and why_not(eqn) is None)


def _is_work(eqn: Eqn) -> bool:
    """… and is not free otherwise."""
    name = eqn.primitive.name
    return name in DYNAMIC or (isinstance(TABLE.get(name), Pointwise) and name not in FREE)
