"""Which values a program measures the rounding of: those between what cancels in a difference.

    s = add a b;  c = sub s a;  e = sub b c        c would be b, and e nothing, if s had lost nothing

Numbers are followed as sums of products of what nothing is known of. Where nothing is left of an operand of a sum, or
nearly nothing, the program finds out what rounding has done to the values on the way: each of these is therefore one
number, rounded as the program rounds it, wherever it is read. A difference of two sums that have a term in common is
just a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxpr2triton._compat import called_jaxpr, operands_of_call, scan_counts_of
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var, frozen

TERMS = 16  # of a sum that is followed, and factors of each of them
SAME = {"convert_element_type", "copy", "rounded", "stop_gradient", "reduce_precision", "optimization_barrier", "name"}
SPREAD = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose"}

Product = tuple[int, ...]  # of unknown numbers, in order; of none, it is 1
Terms = Mapping[Product, float]


@dataclass(frozen=True, eq=False)
class Number:
    """What is known of a value, and what makes it."""

    terms: Terms
    eqn: Eqn | None = None
    operands: tuple[Number, ...] = ()  # that its terms are made of

    @property
    def key(self) -> Hashable:
        return frozenset(self.terms.items())


def measured(jaxpr: Jaxpr) -> frozenset[int]:
    """The identities of the equations whose rounding is measured, in loops, branches and calls as well."""
    following = _Following()
    following.results(jaxpr, [following.new() for _ in jaxpr.invars])
    return frozenset(following.measured)


class _Following:
    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.counter = itertools.count()
        self.measured: set[int] = set()
        self.seen: set[Number] = set()

    def new(self, eqn: Eqn | None = None, key: Hashable = None) -> Number:
        """One of which nothing is known; the same one for the same key."""
        number = next(self.counter) if key is None else self.numbers.setdefault(key, next(self.counter))
        return Number({(number,): 1.0}, eqn)

    def results(self, jaxpr: Jaxpr, operands: Sequence[Number]) -> list[Number]:
        known: dict[Var, Number] = dict(zip(jaxpr.invars, operands))
        known |= {var: self.new() for var in jaxpr.constvars}
        for eqn in jaxpr.eqns:
            known.update(zip(eqn.outvars, self._equation(eqn, [self._read(atom, known) for atom in eqn.invars])))
        return [self._read(atom, known) for atom in jaxpr.outvars]

    def _read(self, atom: Atom, known: Mapping[Var, Number]) -> Number:
        if not isinstance(atom, Literal):
            return known[atom]
        if is_float_array(atom) and not np.ndim(atom.val) and math.isfinite(atom.val):
            return Number({(): float(atom.val)} if atom.val else {})
        return self.new(key=("literal", str(atom.aval), np.asarray(atom.val).tobytes()))

    def _equation(self, eqn: Eqn, operands: list[Number]) -> list[Number]:
        name = eqn.primitive.name
        if name in ("scan", "while", "repeat"):
            return self._loop(eqn, operands)
        if name == "cond":
            for branch in eqn.params["branches"]:
                self.results(branch.jaxpr, operands[1:])
        elif (called := called_jaxpr(name, eqn.params)) is not None:
            inner, _ = called
            return self.results(inner, list(operands_of_call(name, eqn.params, operands)))
        elif name == "scanned":
            inner = eqn.params["combine"].closed.jaxpr
            self.results(inner, [self.new() for _ in inner.invars])
        elif len(eqn.outvars) == 1 and is_float_array(eqn.outvars[0]):
            terms = self._terms(eqn, operands)
            if terms is not None and len(terms) <= TERMS and all(len(each) <= TERMS for each in terms):
                return [Number(terms, eqn, tuple(operands))]
        return self._unknown(eqn, operands)

    def _unknown(self, eqn: Eqn, operands: Sequence[Number]) -> list[Number]:
        params: Hashable = id(eqn)
        if not eqn.effects and not any(isinstance(each, Mapping) for each in eqn.params.values()):
            params = _key_of(eqn)
        key = (params, *(operand.key for operand in operands))
        return [self.new(eqn, (key, place)) for place in range(len(eqn.outvars))]

    def _loop(self, eqn: Eqn, operands: Sequence[Number]) -> list[Number]:
        """Two steps, the second one of what the first one carries on."""
        for body, consts, carried, others in _bodies(eqn, operands):
            state = [self.new() for _ in range(carried)]
            for _ in range(2):
                state = self.results(body, [*consts, *state, *(self.new() for _ in range(others))])[:carried]
        return self._unknown(eqn, operands)

    def _terms(self, eqn: Eqn, operands: Sequence[Number]) -> Terms | None:
        """What is made of terms; None where the result is one more unknown number."""
        one = operands[0].terms if operands else {}
        match eqn.primitive.name:
            case "add" | "add_any":
                return self._sum(eqn, operands, 1)
            case "sub":
                return self._sum(eqn, operands, -1)
            case "neg":
                return {product: -factor for product, factor in one.items()}
            case "mul":
                return _product(one, operands[1].terms)
            case "square":
                return _product(one, one)
            case "integer_pow" if 0 < eqn.params["y"] <= TERMS:
                found: Terms | None = one
                for _ in range(eqn.params["y"] - 1):
                    found = None if found is None else _product(found, one)
                return found
            case "div":
                return self._quotient(one, operands[1])
            case "select_n" if len({case.key for case in operands[1:]}) == 1:
                return operands[1].terms
            case name if name in SPREAD and len(operands) == 1:
                how = _key_of(eqn)
                return {
                    tuple(sorted(self.numbers.setdefault((how, n), next(self.counter)) for n in product)): factor
                    for product, factor in one.items()
                }
            case name if name in SAME and is_float_array(eqn.invars[0]):
                return one
        return None

    def _sum(self, eqn: Eqn, operands: Sequence[Number], sign: int) -> Terms:
        one, other = (operand.terms for operand in operands)
        total = {product: one.get(product, 0.0) + sign * other.get(product, 0.0) for product in {**one, **other}}
        digits = jnp.finfo(eqn.outvars[0].aval.dtype).nmant
        if any(terms and all(_is_gone(total[each], terms[each], digits) for each in terms) for terms in (one, other)):
            self._measure(Number({}, eqn, tuple(operands)))
        return {product: factor for product, factor in total.items() if factor}

    def _quotient(self, one: Terms, divisor: Number) -> Terms | None:
        if set(divisor.terms) == {()}:
            return {product: factor / divisor.terms[()] for product, factor in one.items()}
        if not one or not divisor.terms:
            return None
        inverse = self.numbers.setdefault(("inverse", divisor.key), next(self.counter))
        return _product(one, {(inverse,): 1.0})

    def _measure(self, number: Number) -> None:
        def unseen(numbers: Iterable[Number]) -> Iterator[Number]:
            return (each for each in numbers if each not in self.seen)

        for each in reachable(unseen([number]), lambda each: unseen(each.operands)):
            self.seen.add(each)
            if each.eqn is not None:
                self.measured.add(id(each.eqn))


def is_float_array(atom: Atom) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    return isinstance(dtype, np.dtype) and is_float(dtype)


def _is_gone(left: float, before: float, digits: int) -> bool:
    """Whether so little is left that half of the digits are those of what is not there any more."""
    return abs(left) * 2 ** (digits / 2) < abs(before)


def _product(one: Terms, other: Terms) -> Terms | None:
    """Of two products, or of a sum and a constant; a product of two sums is computed for its own sake."""
    if max(len(one), len(other)) > 1 and {()} not in (one.keys(), other.keys()):
        return None
    return {tuple(sorted(a + b)): x * y for a, x in one.items() for b, y in other.items()}


def _bodies(eqn: Eqn, operands: Sequence[Number]) -> Iterator[tuple[Jaxpr, Sequence[Number], int, int]]:
    """What a loop runs: with which constants, how much it carries, and how much else it reads."""
    params = eqn.params
    match eqn.primitive.name:
        case "scan":
            consts, carried = scan_counts_of(params)
            yield params["jaxpr"].jaxpr, operands[:consts], carried, len(operands) - consts - carried
        case "repeat":
            consts = params["num_consts"]
            yield params["jaxpr"].jaxpr, operands[:consts], len(eqn.outvars), 0
        case _:
            first, consts = params["cond_nconsts"], params["body_nconsts"]
            yield params["body_jaxpr"].jaxpr, operands[first : first + consts], len(eqn.outvars), 0


def _key_of(eqn: Eqn) -> Hashable:
    """Equal for equations that make the same of the same operands."""
    try:
        key = eqn.primitive.name, frozen(eqn.params)
        hash(key)
    except TypeError:
        return id(eqn)
    return key
