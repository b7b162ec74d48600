"""Names for the variables of a kernel: the user's own where a line assigns one, else what the value is."""

from __future__ import annotations

import builtins
import keyword
import linecache
import re
from collections.abc import Iterable
from typing import Any

from jaxpr2triton._compat import Frame, user_frame
from jaxpr2triton.ir.evaluate import variables

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

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = [set(taken) | RESERVED]
        self._below: list[set[str]] = [set()]  # names of the loops that have ended in each open scope
        self._copies: list[dict[str, int]] = [{}]  # in each open scope: up to which copy a name is taken

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
        return name

    def enter(self) -> None:
        self._taken.append(set())
        self._below.append(set())
        self._copies.append({})

    def leave(self) -> None:
        ended = self._taken.pop() | self._below.pop()
        self._below[-1] |= ended
        self._copies.pop()


def wishes(eqns: Iterable[Any]) -> dict[int, str]:
    """For each equation (by its number) what its result would best be called.

    The last equation of a line such as `mean = x.mean(-1)` computes `mean`; the others are called after what they do.
    """
    by_line: dict[tuple[str, int], int] = {}
    found: dict[int, str] = {}
    makers: dict[Any, str] = {}
    for number, eqn in enumerate(eqns):
        name = eqn.primitive.name
        if name == "settled":  # it is the same value
            name = next((makers.get(var, name) for var in variables(eqn.invars)), name)
        makers.update(dict.fromkeys(eqn.outvars, name))
        found[number] = _WORDS.get(name, re.sub(r"\W", "_", name))
        frame = user_frame(eqn)
        if frame is not None:
            by_line[frame.file, frame.line] = number
    for (file, line), number in by_line.items():
        target = _assigned(file, line)
        if target:
            found[number] = target
    return found


def _assigned(file: str, line: int) -> str | None:
    match = re.match(r"\s*([A-Za-z_]\w*)\s*=[^=]", linecache.getline(file, line))
    return match.group(1).strip("_") or None if match and match.group(1).isascii() else None


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
