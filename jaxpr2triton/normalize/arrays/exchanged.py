"""Sums of what a contraction makes, times what another one sums → sums of what that one has made.

    p[i,d] = Σ_j e[i,j] v[j,d]                              p[i,d] = Σ_j e[i,j] v[j,d]
    u[i]   = Σ_j (Σ_d g[i,d] v[j,d]) e[i,j]         →       u[i]   = Σ_d g[i,d] p[i,d]

The gradient of a softmax has such sums, whatever is multiplied with it: instead of all pairs i, j they then read as
many numbers as there are results, if these are fewer. What all terms of a sum have alike may be beside e on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from jax import lax

from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import is_zero, maker_of, readers_of
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.calls.dead import remove_dead

Labels = tuple[Hashable, ...]  # what each dimension of an array counts; None for one of size 1


@dataclass(frozen=True)
class Seen:
    """An array, and what its dimensions count."""

    atom: Atom
    labels: Labels

    @property
    def has(self) -> frozenset[Hashable]:
        return frozenset(self.labels) - {None}


@dataclass
class Terms:
    """What the terms of a sum are products of."""

    varying: list[Hashable] = field(default_factory=list)  # along the sum; but for its arrays, masks among them
    arrays: list[Seen] = field(default_factory=list)  # … these
    alike: list[tuple[Seen, bool]] = field(default_factory=list)  # for all terms; and whether they divide
    negative: bool = False


@dataclass(frozen=True)
class Exchange:
    """How a sum is made of the results of a contraction."""

    made: Seen  # those results
    other: Seen  # what they are multiplied with
    sums: Hashable  # what is summed then
    alike: tuple[tuple[Seen, bool], ...]
    negative: bool
    labels: Labels  # of the sum


def exchange_sums(closed: Closed) -> Closed:
    """Let sums along what a contraction has summed read its results; see above."""
    found = dict(_Sums(closed.jaxpr).found())
    if not found:
        return closed
    jaxpr = closed.jaxpr

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(jaxpr.invars, args)) | dict(zip(jaxpr.constvars, closed.consts))
        run(jaxpr.eqns, env, lambda eqn, _: [_exchanged(eqn, found[eqn], env)] if eqn in found else None)
        return [read(env, atom) for atom in jaxpr.outvars]

    return remove_dead(again(closed, rewritten))


class _Sums:
    """The sums of a program, and its contractions."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr, self.eqns, self.readers = jaxpr, jaxpr.eqns, readers_of(jaxpr)
        self.outputs = frozenset(variables(jaxpr.outvars))
        self.factors: dict[Var, list[tuple[int, int, Labels]]] = {}  # by what they are: of which contractions
        for number, eqn in enumerate(self.eqns):
            if eqn.primitive.name == "dot_general" and len(eqn.params["dimension_numbers"][0][0]) == 1:
                for place, atom in enumerate(eqn.invars):
                    base = self._base(Seen(atom, tuple(range(len(atom.aval.shape)))))
                    if isinstance(base.atom, Var):
                        self.factors.setdefault(base.atom, []).append((number, place, base.labels))

    def found(self) -> Iterator[tuple[Eqn, Exchange]]:
        for number, eqn in enumerate(self.eqns):
            is_sum = eqn.primitive.name == "reduce_sum" and len(eqn.params["axes"]) == 1
            if not is_sum or not self.factors or not is_float(eqn.outvars[0].aval.dtype):
                continue
            if (exchange := self._exchange(number, eqn)) is not None:
                yield eqn, exchange

    def _exchange(self, number: int, eqn: Eqn) -> Exchange | None:
        (atom,), along = eqn.invars, int(eqn.params["axes"][0])  # numpy compares with tuples element by element
        whole = Seen(atom, tuple(d if size > 1 else None for d, size in enumerate(atom.aval.shape)))
        terms = self._terms(whole, along)
        if terms is None:
            return None
        for place, array in enumerate(terms.arrays):
            rest = Counter([*terms.varying, *(each for n, each in enumerate(terms.arrays) if n != place)])
            for other, shared, summed in self._factors(array, along):
                for made, same in self._made_of(rest, shared, along, number):
                    if 2 * made.atom.aval.size > array.atom.aval.size:
                        continue
                    labels = tuple(each for d, each in enumerate(whole.labels) if d != along)
                    if (alike := _quotient(terms.alike, same.alike)) is not None:
                        negative = terms.negative != same.negative
                        return Exchange(self._as_written(made), other, summed, alike, negative, labels)
        return None

    def _factors(self, array: Seen, along: Hashable) -> Iterator[tuple[Seen, Seen, Hashable]]:
        """What a contraction makes an array of: what does not vary along the sum, what does, and what it sums."""
        eqn = maker_of(self.jaxpr, array.atom)
        if eqn is None or eqn.primitive.name != "dot_general" or len(eqn.params["dimension_numbers"][0][0]) != 1:
            return
        left, right = _sides(eqn, array.labels, ("summed", array.atom))
        for one, other in ((left, right), (right, left)):
            if along in one.has and along not in other.has:
                yield other, one, ("summed", array.atom)

    def _made_of(
        self, rest: Counter[Hashable], shared: Seen, along: Hashable, before: int
    ) -> Iterator[tuple[Seen, Terms]]:
        """The contractions that have summed these terms times what is shared, and what else is in their terms."""
        own = self._base(shared)
        for number, place, labels in self.factors.get(own.atom, ()) if isinstance(own.atom, Var) else ():
            seen = self._seen_in(number, place, dict(zip(labels, own.labels)), along, rest) if number < before else None
            terms = None if seen is None else self._terms(seen[0], along)
            if seen is not None and terms is not None and Counter([*terms.varying, *terms.arrays]) == rest:
                yield seen[1], terms

    def _seen_in(
        self, number: int, place: int, labels_of: Mapping[Hashable, Hashable], along: Hashable, rest: Counter[Hashable]
    ) -> tuple[Seen, Seen] | None:
        """The other factor of a contraction with what is shared, and its results, as the sum counts dimensions."""
        eqn = self.eqns[number]
        (contracted, batch) = eqn.params["dimension_numbers"]
        if labels_of[contracted[place][0]] != along:
            return None
        other = eqn.invars[1 - place]
        labels: list[Hashable] = [None] * len(other.aval.shape)
        labels[contracted[1 - place][0]] = along
        for one, another in zip(batch[place], batch[1 - place]):
            labels[another] = labels_of[one]
        taken = {*contracted[1 - place], *batch[1 - place]}
        free = [d for d, size in enumerate(other.aval.shape) if d not in taken and size > 1]
        sizes = {label: size for each in rest if isinstance(each, Seen) for label, size in _sizes(each)}
        left = [label for label in sizes if label not in labels]
        if len(free) != len(left) or any(sizes[label] != other.aval.shape[d] for d, label in zip(free, left)):
            return None
        for d, label in zip(free, left):
            labels[d] = label
        whole = tuple(labels_of[d] for d in range(len(eqn.invars[place].aval.shape)))
        return Seen(other, tuple(labels)), _result(eqn, place, whole, labels)

    def _terms(self, whole: Seen, along: Hashable) -> Terms | None:
        """What a value is a product of; None where a divisor varies along the sum."""
        terms, pending = Terms(), [whole]
        while pending:
            seen = pending.pop()
            if along not in seen.has:
                terms.alike.append((seen, False))
                continue
            eqn = maker_of(self.jaxpr, seen.atom)
            name = eqn.primitive.name if eqn is not None else ""
            if eqn is None or not all(is_float(atom.aval.dtype) for atom in (*eqn.outvars, *eqn.invars[-1:])):
                terms.arrays.append(seen)
            elif name in ("mul", "div"):
                one, other = (Seen(atom, _of_operand(atom, seen.labels)) for atom in eqn.invars)
                if name == "div" and along in other.has:
                    return None
                pending.append(one)
                if name == "div":
                    terms.alike.append((other, True))
                else:
                    pending.append(other)
            elif name in ("neg", "convert_element_type", "copy", "rounded"):
                terms.negative ^= name == "neg"
                pending.append(Seen(eqn.invars[0], seen.labels))
            elif name == "transpose":
                pending.append(Seen(eqn.invars[0], _before_transpose(eqn, seen.labels)))
            elif name == "select_n" and (case := self._or_zero(eqn)) is not None:
                terms.varying.append((Seen(eqn.invars[0], _of_operand(eqn.invars[0], seen.labels)), case))
                pending.append(Seen(eqn.invars[case], _of_operand(eqn.invars[case], seen.labels)))
            else:
                terms.arrays.append(seen)
        return terms

    def _or_zero(self, eqn: Eqn) -> int | None:
        """Which operand is chosen, if the other choice is zero."""
        zero = [is_zero(self.jaxpr, atom) for atom in eqn.invars[1:]]
        return 1 + zero.index(False) if sorted(zero) == [False, True] else None

    def _as_written(self, made: Seen) -> Seen:
        """A result of the program that is nothing but these results, if there is one: that is in memory."""
        seen = made
        while isinstance(seen.atom, Var) and seen.atom not in self.outputs:
            readers = [eqn for eqn in self.readers[seen.atom] if eqn is not None]
            views = [(eqn.outvars[0], labels) for eqn in readers if (labels := _seen_by(eqn, seen.labels)) is not None]
            if len(views) != 1:
                return made
            seen = Seen(*views[0])
        return seen

    def _base(self, seen: Seen) -> Seen:
        """The array that another one is a cast or a transpose of."""
        while (eqn := maker_of(self.jaxpr, seen.atom)) is not None:
            if eqn.primitive.name == "transpose":
                seen = Seen(eqn.invars[0], _before_transpose(eqn, seen.labels))
            elif eqn.primitive.name == "convert_element_type" and is_float(eqn.invars[0].aval.dtype):
                seen = Seen(eqn.invars[0], seen.labels)
            else:
                break
        return seen


def _before_transpose(eqn: Eqn, labels: Labels) -> Labels:
    found = dict(zip(map(int, eqn.params["permutation"]), labels))
    return tuple(found[d] for d in range(len(labels)))


def _seen_by(eqn: Eqn, labels: Labels) -> Labels | None:
    """What the dimensions count of a result that is nothing but its operand, cast or turned."""
    shape = eqn.outvars[0].aval.shape
    match eqn.primitive.name:
        case "transpose":
            return tuple(labels[d] for d in eqn.params["permutation"])
        case "convert_element_type" if is_float(eqn.outvars[0].aval.dtype):
            return labels
        case "reshape" if [size for size in shape if size > 1] == [s for s in eqn.invars[0].aval.shape if s > 1]:
            known = iter([label for label in labels if label is not None])
            return tuple(next(known) if size > 1 else None for size in shape)
    return None


def _quotient(
    terms: Sequence[tuple[Seen, bool]], others: Sequence[tuple[Seen, bool]]
) -> tuple[tuple[Seen, bool], ...] | None:
    """Factors without those of others: what these are divided by is multiplied with; None if it would be divided by."""
    left = [*terms]
    for seen, divides in others:
        if (seen, divides) in left:
            left.remove((seen, divides))
        elif divides or _is_number(seen):
            left.append((seen, not divides))
        else:
            return None
    return tuple(left)


def _of_operand(atom: Atom, labels: Labels) -> Labels:
    """What the dimensions of an operand count, of whose results the labels are: one of size 1 counts nothing."""
    shape = atom.aval.shape
    return tuple(label if size > 1 else None for size, label in zip(shape, labels)) if shape else ()


def _is_number(seen: Seen) -> bool:
    return isinstance(seen.atom, Literal) and seen.atom.val != 0


def _sizes(seen: Seen) -> Iterator[tuple[Hashable, int]]:
    return ((label, size) for label, size in zip(seen.labels, seen.atom.aval.shape) if label is not None)


def _sides(eqn: Eqn, labels: Labels, summed: Hashable) -> list[Seen]:
    """The factors of a contraction, of whose results these are the labels."""
    contracted, batch = eqn.params["dimension_numbers"]
    found, place = [], len(batch[0])
    for atom, over, shared in zip(eqn.invars, contracted, batch):
        own: list[Hashable] = [None] * len(atom.aval.shape)
        for n, d in enumerate(shared):
            own[d] = labels[n]
        for d in range(len(own)):
            if d in over:
                own[d] = summed
            elif d not in shared:
                own[d], place = labels[place], place + 1
        found.append(Seen(atom, tuple(own)))
    return found


def _result(eqn: Eqn, place: int, shared: Labels, other: Sequence[Hashable]) -> Seen:
    contracted, batch = eqn.params["dimension_numbers"]
    labels: list[Hashable] = [shared[d] for d in batch[place]]
    sides = [shared, other] if place == 0 else [other, shared]
    for side, over, both in zip(sides, contracted, batch):
        labels += [label for d, label in enumerate(side) if d not in (*over, *both)]
    return Seen(eqn.outvars[0], tuple(labels))


def _exchanged(eqn: Eqn, how: Exchange, env: dict[Var, jax.Array]) -> jax.Array:
    made = eqn.outvars[0].aval
    shape = (*made.shape, dict(_sizes(how.other))[how.sums])
    both = (_laid_out(each, (*how.labels, how.sums), shape, env, made.dtype) for each in (how.made, how.other))
    total = lax.reduce_sum(lax.mul(*both), (len(shape) - 1,))
    for each, divides in how.alike:
        factor = _laid_out(each, how.labels, made.shape, env, made.dtype)
        total = lax.div(total, factor) if divides else lax.mul(total, factor)
    return lax.neg(total) if how.negative else total


def _laid_out(
    seen: Seen, order: Sequence[Hashable], shape: Sequence[int], env: dict[Var, jax.Array], dtype: np.dtype
) -> jax.Array:
    """An array with its dimensions where an order has them."""
    value = lax.convert_element_type(read(env, seen.atom), dtype)
    labels = [label for label in seen.labels if label is not None]
    value = lax.reshape(value, [size for _, size in _sizes(seen)])
    places = [order.index(label) for label in labels]
    turned = lax.transpose(value, sorted(range(len(places)), key=places.__getitem__))
    return lax.broadcast_in_dim(turned, shape, sorted(places))
