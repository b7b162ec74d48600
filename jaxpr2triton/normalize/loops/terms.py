"""What equations compute, as terms in which equal values are one, and what is left of a term where flags are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var, frozen
from jaxpr2triton.ir.walks import in_order, reached
from jaxpr2triton.rules.dims import is_elementwise

Term = int
Facts = Mapping[Term, bool]
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Terms:
    """Terms of several programs; two that are equal are the same number.

    A fact says of a term that each of its elements that is looked at is True, or False. It holds where elements are
    combined with those at their own place, and says nothing of what is summed, moved or looked up.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, Term] = {}
        self._parts: list[tuple[Any, ...]] = []
        self._values: dict[Term, Any] = {}

    def made(self, name: str, params: Hashable, *operands: Term) -> Term:
        """What a primitive makes of terms; comparisons of known numbers are known."""
        if name in COMPARED and all(each in self._values for each in operands):
            return self.known(COMPARED[name](*(self._values[each] for each in operands)))
        return self._number((name, params, operands))

    def known(self, value: Any) -> Term:
        """One number, in every element."""
        number = np.asarray(value)
        term = self._number(("known", (str(number.dtype), number.tobytes()), ()))
        self._values[term] = number
        return term

    def opaque(self, thing: Hashable) -> Term:
        return self._number(("opaque", thing, ()))

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
        for each in in_order([term], lambda each: self._operands(each, facts), found):
            found[each] = self._said(self._look(each, facts, found), facts)
        return found[term]

    def _operands(self, term: Term, facts: Facts) -> Sequence[Term]:
        name, _, operands = self._parts[term]
        return operands if term not in facts and is_elementwise(name) else ()

    def _look(self, term: Term, facts: Facts, found: Mapping[Term, Term]) -> Term:
        now = tuple(found[operand] for operand in self._operands(term, facts))
        if not now:
            return term
        name, params, _ = self._parts[term]
        if name == "select_n" and len(now) == 3:
            which, off, on = now
            if which in (self.true, self.false):
                return on if which == self.true else off
            return off if off == on else self.made(name, params, which, off, on)
        return self._logical(name, now) or self.made(name, params, *now)

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
            name, _, operands = self._parts[fact[0]]
            if name == "not":
                return [(operands[0], not fact[1])]
            return [(each, fact[1]) for each in operands] if name == ("and" if fact[1] else "or") else []

        found.update(fact for fact in reached([(term, value)], follows) if fact[0] not in (self.true, self.false))


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
        stack = [atom]
        while stack:  # no recursion: programs are deep
            var = stack[-1]
            eqn = None if var in self._found else self._makers(var)
            missing = [] if eqn is None else [v for v in _variables(eqn) if v not in self._found]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if var not in self._found:
                self._found[var] = self._terms.opaque(var) if eqn is None else self._made(eqn, var)
        return self._found[atom]

    def _made(self, eqn: Eqn, var: Var) -> Term:
        operands = [self.of(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        if name == "broadcast_in_dim" and len(operands) == 1 and not eqn.invars[0].aval.shape:
            return operands[0]  # of a number: what every element is
        if eqn.effects:
            return self._terms.opaque(var)
        # what is not computed element by element is no number, whatever it is computed from
        return self._terms.made(name, (frozen(eqn.params), eqn.outvars.index(var)), *operands)


def _variables(eqn: Eqn) -> list[Var]:
    return [atom for atom in eqn.invars if not isinstance(atom, Literal)]
