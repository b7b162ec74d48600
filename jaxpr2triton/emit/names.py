"""Names for the variables of a kernel: the user's own where a line assigns one, else what the value is."""

from __future__ import annotations

import builtins
import keyword
import linecache
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jaxpr2triton._compat import Frame
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.ir.user_names import user_names

_WORDS = {
    "reduce_sum": "total",
    "reduce_max": "peak",
    "reduce_min": "least",
    "reduce_prod": "product",
    "reduce_and": "every",
    "reduce_or": "some",
    "reduce_xor": "parity",
    "argmax": "best",
    "argmin": "best",
    "max": "larger",
    "min": "smaller",
    "abs": "magnitude",
    "pow": "power",
    "integer_pow": "power",
    "round": "rounded",
    "select_n": "chosen",
    "convert_element_type": "cast",
    "add_any": "add",
    "eq": "equal",
    "ne": "differs",
    "lt": "below",
    "le": "below",
    "gt": "above",
    "ge": "above",
    "and": "both",
    "or": "either",
    "not": "negated",
    "clamp": "clamped",
    "iota": "position",
    "threefry": "word",
    "div": "quotient",
    "rem": "remainder",
    "mul": "scaled",
    "sub": "diff",
    "neg": "minus",
}

RESERVED = {"tl", "triton", "libdevice", *keyword.kwlist, *dir(builtins)}


class Names:
    """Hands out each name once; the names of a loop's body are free again for the bodies of loops after it.

    They are not free for the scope around: what is written there last may stand before the loop, and be read after it.
    """

    def __init__(self, taken: Iterable[str], ranks: Mapping[str, int] | None = None) -> None:
        self._given = frozenset(taken) | RESERVED
        self._ranks = ranks or {}
        self._wishes: dict[str, str] = {}
        self._taken = [set(self._given)]
        self._below: list[set[str]] = [set()]  # names of the loops that have ended in each open scope
        self._copies: list[dict[str, int]] = [{}]  # in each open scope: up to which copy a name is taken

    def anew(self) -> Names:
        """Names for the same kernel, none of them handed out yet."""
        return Names(self._given, self._ranks)

    def new(self, wish: str, depth: int) -> str:
        """A name for the scope at that depth; it differs from all names of the scopes that are open, and below it."""
        copies = self._copies[depth]
        copy = copies.get(wish, 0) + 1
        name = wish if copy == 1 else f"{wish}_{copy}"
        unfree = [*self._taken, *self._below[depth:]]
        while any([name in taken for taken in unfree]):
            copy += 1
            name = f"{wish}_{copy}"
        copies[wish] = copy
        self._taken[depth].add(name)
        self._wishes[name] = wish
        return name

    def wish(self, name: str) -> str:
        """What a name was before it got a number."""
        return self._wishes.get(name, name)

    def rank(self, name: str) -> int:
        """How telling a name is: 3 if a line of the user's assigns it, 2 for a buffer, 1 for a role, 0 for a deed."""
        return self._ranks.get(self.wish(name), 0)

    def enter(self) -> None:
        self._taken.append(set())
        self._below.append(set())
        self._copies.append({})

    def leave(self) -> None:
        ended = self._taken.pop() | self._below.pop()
        self._below[-1] |= ended
        self._copies.pop()


def wishes(jaxpr: Any, loop: Any = None) -> tuple[dict[int, str], set[str]]:
    """For each equation, by its identity, what its result would best be called; and the names that are the user's.

    What no line of the user's assigns is called after what the equation does.
    """
    found: dict[int, str] = {}
    makers: dict[Any, str] = {}
    own = user_names(jaxpr, loop)
    named = set(own.values())
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "rounded":  # it is the same value
            name = next((makers.get(var, name) for var in variables(eqn.invars)), name)
        makers.update(dict.fromkeys(eqn.outvars, name))
        wish = own.get(eqn.outvars[0]) if eqn.outvars else None
        found[id(eqn)] = wish or _WORDS.get(name, re.sub(r"\W", "_", name))
        if name in LOOPS:
            inner, more = wishes(eqn.params["jaxpr"].jaxpr, eqn)
            found |= inner
            named |= more
    return found, named


def comment(frame: Frame | None) -> str | None:
    """`# model.py:12: mean = x.mean(-1)`."""
    if frame is None:
        return None
    text = linecache.getline(frame.file, frame.line).strip()
    file = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    where = f"# {file}:{frame.line}"
    if not text or not text.isprintable():
        return where
    full = f"{where}: {text}"
    return full if len(full) <= 108 else full[:105] + "..."
