"""What equations compute, as terms in which equal values are one, and what is left of a term where flags are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var, frozen
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.normalize.loops.windows_at import READS, Windows, is_moved, windows_of
from jaxpr2triton.rules.dims import is_elementwise

Term = int
Facts = Mapping[Term, bool]
# What terms are made of besides primitives: windows, read of an array and written to it, the end of what a loop
# carries, and elements that are repeated, or that have other dimensions of one element beside them.
READ, WRITTEN, CARRIED, SPREAD, MOVED = "read", "written", "carried", "spread", "moved"
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Terms:
    """Terms of several programs; two that are equal are the same number.

    A fact says of a term that each of its elements that is looked at is True, or False. It holds where elements are
    combined with those at their own place, as those of a lane are if nothing moves from lane to lane: what is spread
    along more dimensions, and a place that is looked up, belong to the lane; what is found there, or summed, does not.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, Term] = {}
        self._parts: list[tuple[Any, ...]] = []
        self._values: dict[Term, Any] = {}

    def made(self, name: str, params: Hashable, *operands: Term, first: int = 0) -> Term:
        """What a primitive makes of terms, which stand at their own places from the `first` one on; comparisons of
        known numbers are known, and so is what is spread of them.
        """
        if name in COMPARED and all(each in self._values for each in operands):
            return self.known(COMPARED[name](*(self._values[each] for each in operands)))
        if name in (SPREAD, MOVED) and operands[0] in self._values:
            return operands[0]
        return self._number((name, params, operands, first))

    def known(self, value: Any) -> Term:
        """One number, in every element."""
        number = np.asarray(value)
        term = self._number(("known", (str(number.dtype), number.tobytes()), (), 0))
        self._values[term] = number
        return term

    def opaque(self, thing: Hashable) -> Term:
        return self._number(("opaque", thing, (), 0))

    def _number(self, parts: tuple[Any, ...]) -> Term:
        if parts not in self._numbers:
            self._numbers[parts] = len(self._parts)
            self._parts.append(parts)
        return self._numbers[parts]

    @cached_property
    def true(self) -> Term:
        return self.known(np.True_)

    @cached_property
    def false(self) -> Term:
        return self.known(np.False_)

    def where(self, term: Term, facts: Facts) -> Term:
        """The term where the facts hold: choices are made, and what is known of `and`, `or` and `not` is.

        select_n p old new, where p is False   →   old
        """
        found: dict[Term, Term] = {}
        for each in postorder([term], lambda each: self._operands(each, facts), found):
            found[each] = self._said(self._look(each, facts, found), facts)
        return found[term]

    def _operands(self, term: Term, facts: Facts) -> Sequence[Term]:
        """The terms that have to be known where the facts hold before this one is."""
        if term in facts:
            return ()
        name, _, operands, first = self._parts[term]
        if name == CARRIED:
            start, _, after = operands
            return start, after
        if name == WRITTEN:
            what, _, read, _ = self._parts[self._unmoved(operands[1])]
            return (*operands, *(read[1:] if what == READ else ()))
        return operands[first:]

    def _look(self, term: Term, facts: Facts, found: Mapping[Term, Term]) -> Term:
        if term in facts:
            return term
        name, params, operands, first = self._parts[term]
        if first >= len(operands):
            return self._left(name, params, operands, found) or term
        now = (*operands[:first], *(found[each] for each in operands[first:]))
        if name == "select_n" and len(now) == 3:
            which, off, on = now
            if which in (self.true, self.false):
                return on if which == self.true else off
            return off if off == on else self.made(name, params, which, off, on)
        return self._logical(name, now) or self.made(name, params, *now, first=first)

    def _left(
        self, name: str, params: Hashable, operands: Sequence[Term], found: Mapping[Term, Term]
    ) -> Term | None:
        """What an array was before it was written to, or went through a loop, if neither changes it.

        scatter x i (gather x i)   →   x
        """
        if name == CARRIED:
            start, before, after = operands
            return found[start] if found[after] == before else None
        if name != WRITTEN:
            return None
        array, new, *places = operands
        what, windows, read, _ = self._parts[self._unmoved(found[new])]
        if what != READ:
            return None
        if [read[0], *(found.get(each, each) for each in read[1:])] != [array, *(found[each] for each in places)]:
            return None
        assert isinstance(params, Windows) and isinstance(windows, Windows)
        return found[array] if params.is_of(windows) else None

    def _unmoved(self, term: Term) -> Term:
        """What other dimensions of one element stand beside."""
        while self._parts[term][0] == MOVED:
            (term,) = self._parts[term][2]
        return term

    def _said(self, term: Term, facts: Facts) -> Term:
        return self.known(np.bool_(facts[term])) if term in facts else term

    def _logical(self, name: str, operands: Sequence[Term]) -> Term | None:
        if name == "not":
            return {self.true: self.false, self.false: self.true}.get(operands[0])
        if name not in ("and", "or"):
            return None
        deciding, other = (self.false, self.true) if name == "and" else (self.true, self.false)
        if deciding in operands:
            return deciding
        left = [each for each in operands if each != other]
        return other if not left else left[0] if len(set(left)) == 1 else None

    def facts(self, term: Term, value: bool) -> dict[Term, bool]:
        """All that follows of terms if this one has the value: both sides of an `and` that is True are."""
        found: dict[Term, bool] = {}
        self._assume(term, value, found)
        for each, known in list(found.items()):  # the same once more, each in the light of the others
            del found[each]
            now = self.where(each, found)
            found[each] = known
            self._assume(now, known, found)
        return found

    def _assume(self, term: Term, value: bool, found: dict[Term, bool]) -> None:
        def follows(fact: tuple[Term, bool]) -> Sequence[tuple[Term, bool]]:
            name, _, operands, _ = self._parts[fact[0]]
            if name == "not":
                return [(operands[0], not fact[1])]
            return [(each, fact[1]) for each in operands] if name == ("and" if fact[1] else "or") else []

        found.update(fact for fact in reachable([(term, value)], follows) if fact[0] not in (self.true, self.false))


class Reading:
    """The terms of the atoms of one program; `given` are those of its inputs."""

    def __init__(self, terms: Terms, makers: Callable[[Var], Eqn | None], given: Mapping[Var, Term]) -> None:
        self._terms = terms
        self._makers = makers
        self._found: dict[Var, Term] = dict(given)

    def of(self, atom: Atom) -> Term:
        if isinstance(atom, Literal):
            dtype = atom.aval.dtype
            plain = isinstance(dtype, np.dtype) and not np.ndim(atom.val)
            return self._terms.known(np.asarray(atom.val, dtype)) if plain else self._terms.opaque(id(atom))

        def operands(var: Var) -> Sequence[Var]:
            eqn = self._makers(var)
            return () if eqn is None else _variables(eqn)

        for var in postorder([atom], operands, self._found):
            eqn = self._makers(var)
            self._found[var] = self._terms.opaque(var) if eqn is None else self._made(eqn, var)
        return self._found[atom]

    def _made(self, eqn: Eqn, var: Var) -> Term:
        name = eqn.primitive.name
        if eqn.effects:
            return self._terms.opaque(var)
        if name in LOOPS:
            return self._given_out(scan_of(eqn), var)
        operands = [self.of(atom) for atom in eqn.invars]
        if name == "broadcast_in_dim" and not eqn.invars[0].aval.shape:
            return operands[0]  # of a number: what every element is
        if (windows := windows_of(eqn, self._makers)) is not None:
            where, starts = windows
            reads = name in READS
            array, *new = operands[:1] if reads else [operands[0], operands[1 if name == "dynamic_update_slice" else 2]]
            places = [self._component(*start) for start in starts]
            parts = (array, *new, *places)
            return self._terms.made(READ if reads else WRITTEN, where, *parts, first=1 if reads else len(parts))
        params = frozen(eqn.params), eqn.outvars.index(var)
        if is_moved(eqn):
            return self._terms.made(MOVED, params, *operands)
        if name == "broadcast_in_dim":
            return self._terms.made(SPREAD, params, *operands)
        # what is not computed element by element is no number, whatever it is computed from
        return self._terms.made(name, params, *operands, first=0 if is_elementwise(name) else len(operands))

    def _component(self, atom: Atom, column: int | None) -> Term:
        term = self.of(atom)
        return term if column is None else self._terms.made("column", column, term)

    def _given_out(self, scan: Scan, var: Var) -> Term:
        """What a loop carries to its end: its start, and what a step makes of it."""
        carried = next((each for each in scan.carries if each[3] is var), None)
        if carried is None:
            return self._terms.opaque(var)
        start, before, after, _ = carried
        given = {inside: self.of(operand) for operand, inside in scan.consts}
        for outside, leaf, end, _ in scan.carries:
            given[leaf] = self.of(outside) if end is leaf else self._terms.opaque(leaf)
        makers = makers_of(scan.body)
        inner = Reading(self._terms, lambda var: scan.body.eqns[makers[var]] if var in makers else None, given)
        parts = self.of(start), given[before], inner.of(after)
        return parts[0] if after is before else self._terms.made(CARRIED, id(scan.eqn), *parts, first=len(parts))


def _variables(eqn: Eqn) -> list[Var]:
    return [atom for atom in eqn.invars if not isinstance(atom, Literal)]
