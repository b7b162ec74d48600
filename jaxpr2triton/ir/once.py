"""What is asked of a jaxpr again and again, found out once."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var

Found = TypeVar("Found")


def once(find: Callable[[Jaxpr], Found]) -> Callable[[Jaxpr], Found]:
    """The same function of a jaxpr, called once for each; what it found is forgotten with the jaxpr."""
    known: weakref.WeakKeyDictionary[Jaxpr, Found] = weakref.WeakKeyDictionary()

    @functools.wraps(find)
    def found(jaxpr: Jaxpr) -> Found:
        if jaxpr not in known:
            known[jaxpr] = find(jaxpr)
        return known[jaxpr]

    return found


@once
def makers_of(jaxpr: Jaxpr) -> Mapping[Var, int]:
    """The position of the equation that makes each variable."""
    return {var: number for number, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}


def maker_of(jaxpr: Jaxpr, atom: Atom) -> Eqn | None:
    """The equation that makes a value; None of what is given, and of a number."""
    place = None if isinstance(atom, Literal) else makers_of(jaxpr).get(atom)
    return None if place is None else jaxpr.eqns[place]


def is_zero(jaxpr: Jaxpr, atom: Atom) -> bool:
    """Whether a value is the number 0, or an array of nothing else."""
    eqn = maker_of(jaxpr, atom)
    small = eqn.invars[0] if eqn is not None and eqn.primitive.name == "broadcast_in_dim" else atom
    return isinstance(small, Literal) and bool(small.val == 0)


@once
def readers_of(jaxpr: Jaxpr) -> Mapping[Var, Sequence[Eqn | None]]:
    """The equations that read each value, each of them once; None for what calls the program."""
    found: dict[Var, list[Eqn | None]] = {}
    for eqn in (*jaxpr.eqns, None):
        atoms = eqn.invars if eqn is not None else jaxpr.outvars
        for var in dict.fromkeys(atom for atom in atoms if not isinstance(atom, Literal)):
            found.setdefault(var, []).append(eqn)
    return found


class Without(Mapping[Var, int]):
    """A mapping that lacks some of its keys; nothing is copied."""

    def __init__(self, whole: Mapping[Var, int], lacking: Iterable[Var]) -> None:
        self._whole, self._lacking = whole, frozenset(lacking)

    def __contains__(self, key: object) -> bool:
        return key in self._whole and key not in self._lacking

    def __getitem__(self, key: Var) -> int:
        if key in self._lacking:
            raise KeyError(key)
        return self._whole[key]

    def __iter__(self) -> Iterator[Var]:
        return (key for key in self._whole if key not in self._lacking)

    def __len__(self) -> int:
        return len(self._whole) - sum(key in self._whole for key in self._lacking)
