"""Equal lines: what computes the same of the same values is written once.

    exp = tl.exp(x)                       exp = tl.exp(x)
    for t in range(9):             →      for t in range(9):
        exp_2 = tl.exp(x)                     tl.store(out_ptr + t, exp + exp)
        tl.store(out_ptr + t, exp + exp_2)

(Elsewhere: common subexpressions, by value numbers.)
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Set
from typing import Any

from jaxpr2triton.emit.variables import Variable, pairs
from jaxpr2triton.emit.walks import blocks_of, names_in
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import Barrier, Body, Store, buffer_of

Known = dict[str, tuple[list[Any], set[Any]]]  # text of a value → the targets that have it, and what it is made of


class Equal:
    """Drops lines whose values are there already; whoever reads them reads the first ones."""

    def __init__(self, of: dict[ast.Name, Variable], changing: Set[str]) -> None:
        self.of, self.changing = of, changing
        self.counts = Counter(
            self.of[name] for name in of if isinstance(name.ctx, ast.Store)
        )  # how often each variable is assigned

    def block(self, body: Body, known: Known) -> Body:
        """The rest of a block; `known` is what has been computed before it, and becomes what is known at its end."""
        kept = []
        for statement in body:
            match statement:
                case ast.Assign():
                    if self.is_known(statement, known):
                        continue
                case ast.For() | ast.While() | ast.If():
                    changed = {self.of[n] for n in names_in(statement) if self.changes(n)}
                    _forget(known, changed | self.changing)
                    for block in blocks_of(statement):
                        block[:] = self.block(block, dict(known))
                case Store():
                    _forget(known, {buffer_of(statement.value).parameter} & self.changing)
                case Barrier():
                    _forget(known, self.changing)
            kept.append(statement)
        return kept

    def changes(self, name: ast.Name) -> bool:
        return name in self.of and isinstance(name.ctx, ast.Store) and self.counts[self.of[name]] > 1

    def is_known(self, statement: ast.Assign, known: Known) -> bool:
        """Whether the same value is there; if not, it is from now on."""
        names = names_in(statement.value)
        for name in names:
            if name in self.of:
                self.of[name] = self.of[name].root
                name.id = self.of[name].name
        targets = [target for target, _ in pairs(statement)]
        changed = {self.of[target] for target in targets if target in self.of and self.changes(target)}
        _forget(known, changed)
        if changed or isinstance(statement.value, ast.Name):
            return False
        # variables instead of names: those of one loop are free again in the next
        text = printed(statement.value) + "".join(f" {self.of[n].number}" for n in names if n in self.of)
        if not any(target in self.of for target in targets):  # an axis, under its own name
            text += printed(statement.targets[0])
        if text not in known:
            known[text] = targets, {self.of.get(name, name.id) for name in names}
            return False
        for target, first in zip(targets, known[text][0]):
            if target in self.of:
                self.of[target].joined = self.of[first]
        return True


def _forget(known: Known, changed: Set[Any]) -> None:
    """Drop what is made of variables or pointers that change."""
    for text in [text for text, (_, parts) in known.items() if parts & changed] if changed else ():
        del known[text]
