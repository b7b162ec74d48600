"""What is known of a loop before a walk enters it: the kinds of what it carries, and which one program holds whole."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.ir.jaxprs import Var

Kind = tuple[Hashable, int]  # a class, and which of a variable's dimensions of that class


@dataclass(frozen=True)
class LoopFacts:
    """The kinds of everything a loop carries or puts out, in a stable order, and which of them are held."""

    classes: Classes
    sizes: dict[Kind, int]
    held: frozenset[Kind]
    carried: frozenset[Kind]  # the others are of what is put out only
    crowded: Mapping[Var, tuple[int, ...]]  # what a step wants at too many places → the dimensions that these differ in
    given: frozenset[Var] = frozenset()  # what a step makes of the loop's operands alone, the same in each step

    def of(self, var: Var) -> tuple[Kind, ...]:
        return kinds_of(self.classes, var)


def kinds_of(classes: Classes, var: Var) -> tuple[Kind, ...]:
    """The kind of each dimension: a matrix whose rows and columns are of one class has two kinds all the same."""
    found = classes.of(var)
    return tuple((kind, found[:place].count(kind)) for place, kind in enumerate(found))
