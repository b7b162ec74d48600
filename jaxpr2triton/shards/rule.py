"""How a program may be split, in the notation of `custom_partitioning`.

    y:f32[512] = reshape x; s:f32[16,8] = cumsum[axis=0] z       x:f32[16,32], z:f32[16,8]
        →   s0 w0, s1 s2 -> (s0 w1), s1 s2      with w1 = 32; w0, w1 and s1 have to be whole

What is a class lies alike before and after, even where it has to be whole in between, if it comes out as often as it
goes in: whoever reads such a result may have to gather it again, and a gradient would hand on many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Jaxpr, Var
from jaxpr2triton.shards.flow import Classes
from jaxpr2triton.shards.walks import Dim, shape_of


@dataclass(frozen=True)
class Rule:
    text: str
    whole: tuple[str, ...]  # factors, in the order of the text
    sizes: dict[str, int]  # of factors that never are a dimension by themselves


def rule_of(jaxpr: Jaxpr, classes: Classes, good: Collection[Dim]) -> Rule:
    """For the partitioner, if only the classes in `good` can be computed in parts. Keys are their words."""
    names = _Names(classes, {*good, *handed_on(jaxpr, classes)})
    text = " -> ".join(", ".join(map(names.dims, atoms)) for atoms in (jaxpr.invars, jaxpr.outvars))
    factors = dict.fromkeys(re.findall(r"\w+", text))
    splits = {name for kind, name in names.classes_seen.items() if kind in good}
    sizes = {name: size for name, size in names.sizes.items() if name not in names.alone}
    return Rule(text, tuple(name for name in factors if name not in splits), sizes)


def handed_on(jaxpr: Jaxpr, classes: Classes) -> set[Dim]:
    """The classes of dimensions of one size that come out as often as they go in."""
    before, after = (Counter(_dims(classes, atoms)) for atoms in (jaxpr.invars, jaxpr.outvars))
    uneven = {kind for kind, size in (*before, *after) if size != classes.granule[kind] or size == 1}
    return {kind for kind, size in after if kind not in uneven and after[kind, size] == before[kind, size]}


def _dims(classes: Classes, atoms: Sequence[Atom]) -> Iterator[tuple[Dim, int]]:
    for var in variables(atoms):
        yield from zip(classes.all_of(var), shape_of(var))


@dataclass
class _Names:
    classes: Classes
    named: Collection[Dim]
    classes_seen: dict[Dim, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)
    others: int = 0

    def dims(self, atom: Atom) -> str:
        shape: Sequence[int] = atom.aval.shape
        kinds = self.classes.all_of(atom) if isinstance(atom, Var) else ()
        told = [self._factor(kind, shape[d], kind in kinds[:d]) for d, kind in enumerate(kinds)]
        told += [self._other() for _ in range(len(shape) - len(kinds) + is_key(atom.aval))]
        return " ".join(told)

    def _factor(self, kind: Dim, size: int, again: bool) -> str:
        granule = self.classes.granule[kind]
        if again or kind not in self.named:
            return self._other()
        name = self.classes_seen.setdefault(kind, f"s{len(self.classes_seen)}")
        if size == granule:
            self.alone.add(name)
            return name
        rows = self._other()
        self.sizes.update({name: granule, rows: size // granule})
        return f"({name} {rows})"

    def _other(self) -> str:
        self.others += 1
        return f"w{self.others - 1}"


def is_key(aval: object) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key))  # type: ignore[attr-defined]
