"""Names for the variables of a kernel: the user's own where a line assigns one, else what the value is."""

from __future__ import annotations

import builtins
import keyword
import linecache
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxpr2triton._compat import Frame, is_differentiated
from jaxpr2triton.graph.nodes import Collected, Compute
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.operation_names import deed
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.ir.user_names import Part, parts_of, user_names

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


@dataclass
class Wishes:
    """What results would best be called: those of equations, by their identity, and parts of them."""

    of: dict[int, str] = field(default_factory=dict)
    parts: dict[int, list[Part]] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)  # the names that are the user's
    lines: set[int] = field(default_factory=set)  # equations whose results are just what a line of the user's assigns

    def __getitem__(self, node: Compute | Collected) -> str:
        place = getattr(node, "place", ())
        for part in self.parts.get(id(node.eqn), ()) if place else ():
            low, high = place[part.dim].bounds
            if part.start <= low and high < part.limit:
                return part.name
        return self.of[id(node.eqn)]

    def is_own(self, node: Compute | Collected) -> bool:
        """Whether a line of the user's assigns just this; of a line that is differentiated it may be a derivative."""
        return id(node.eqn) in self.lines or self[node] != self.of[id(node.eqn)]


def wishes(jaxpr: Any, loop: Any = None, found: Wishes | None = None) -> Wishes:
    """What the values of a kernel would best be called: as the user calls them, else after what the equation does."""
    found = Wishes() if found is None else found
    makers: dict[Any, str] = {}
    own = user_names(jaxpr, loop)
    found.own.update(own.values())
    parts, differentiated = parts_of(jaxpr, own), loop is not None and is_differentiated(loop)
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "rounded":  # it is the same value
            name = next((makers.get(var, name) for var in variables(eqn.invars)), name)
        makers.update(dict.fromkeys(eqn.outvars, name))
        wish = own.get(eqn.outvars[0]) if eqn.outvars else None
        found.of[id(eqn)] = wish or deed(name)
        if wish and (not differentiated and not is_differentiated(eqn) or wish[:2] == "d_"):
            found.lines.add(id(eqn))
        if eqn.outvars and eqn.outvars[0] in parts:
            found.parts[id(eqn)] = parts[eqn.outvars[0]]
        if eqn.primitive.name in LOOPS:
            wishes(eqn.params["jaxpr"].jaxpr, eqn, found)
    return found


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
