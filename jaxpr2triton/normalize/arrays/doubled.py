"""Powers of two that all terms of a sum are multiplied with → factors of the sum.

    d = mul 2.0 c;  e = mul b d;  s = reduce_sum[axes=(0,)] e
        →    e = mul b c;  t = reduce_sum[axes=(0,)] e;  s = mul t 2.0

The gradient of a square has one. Nothing is rounded by it, so that no term needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jax import lax

from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal
from jaxpr2triton.ir.once import makers_of, readers_of
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.calls.sharing import share_equal
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite_planned, spread

Path = tuple[int, ...]  # of operands, from what is summed to the power of two


def double_sums(closed: Closed) -> Closed:
    """Let sums be doubled instead of their terms, if only sums read those.

    Left alone: numbers of 16 bits or less, and factors less than 1, without which a sum could be infinite. Not kept is
    an infinity among terms that are finite without their factor.
    """
    program = _Read(closed)
    taken = rewrite_planned(closed, {"reduce_sum"}, program.path, _rebuilt)
    return taken if taken is closed else remove_dead(share_equal(taken))  # of two sums the terms are written twice


class _Read:
    """A program, and who reads its values."""

    def __init__(self, closed: Closed) -> None:
        self.eqns, self.makers = closed.jaxpr.eqns, makers_of(closed.jaxpr)
        self.readers = readers_of(closed.jaxpr)

    def path(self, eqn: Eqn) -> Path | None:
        """Where a sum finds a power of two."""
        (terms,) = eqn.invars
        if isinstance(terms, Literal) or not is_float(terms.aval.dtype) or terms.aval.dtype.itemsize < 4:
            return None
        if any(reader is None or reader.primitive.name != "reduce_sum" for reader in self.readers[terms]):
            return None
        return self._below(terms) if self._products(terms) else None

    def _below(self, var: Atom) -> Path | None:
        above: dict[Atom, tuple[Atom, int]] = {}  # the product that a factor is of, and which it is
        for each in reachable([var], self._factors):
            (eqn,) = self._products(each)
            for position, atom in enumerate(eqn.invars):
                if _is_power(atom) and eqn.invars[1 - position].aval.shape == each.aval.shape:
                    return self._path(above, each, position)
            above |= {atom: (each, position) for position, atom in enumerate(eqn.invars) if self._is_alone(atom)}
        return None

    def _products(self, atom: Atom) -> list[Eqn]:
        """What makes a value, if it is a product."""
        place = None if isinstance(atom, Literal) else self.makers.get(atom)
        return [] if place is None or self.eqns[place].primitive.name != "mul" else [self.eqns[place]]

    def _factors(self, atom: Atom) -> list[Atom]:
        """The factors that are products themselves, and that nothing else reads."""
        return [each for eqn in self._products(atom) for each in eqn.invars if self._is_alone(each)]

    def _is_alone(self, atom: Atom) -> bool:
        return not isinstance(atom, Literal) and len(self.readers[atom]) == 1 and bool(self._products(atom))

    def _path(self, above: Mapping[Atom, tuple[Atom, int]], product: Atom, position: int) -> Path:
        path = [position]
        while product in above:
            product, position = above[product]
            path.append(position)
        return tuple(path[::-1])


def _is_power(atom: Atom) -> bool:
    return isinstance(atom, Literal) and float(atom.val) > 1 and math.frexp(float(atom.val))[0] == 0.5


def _rebuilt(node: Node, path: Path, rewriter: Rewriter) -> Sequence[Value]:
    rest, factor = _without(node.args[0], path, rewriter)
    total = rewriter.write(node, rest)
    number = np.asarray(factor, total.dtype)
    return [lax.mul(total, spread(number, total.shape, rewriter) if total.ndim else number)]


def _without(value: Value, path: Path, rewriter: Rewriter) -> tuple[Value, Value]:
    """The value without its factor, and that."""
    products: list[Node] = []
    for position in path:
        maker = rewriter.maker(value)
        assert maker is not None
        products.append(maker)
        value = maker.args[position]
    rest = products[-1].args[1 - path[-1]]
    for maker, position in zip(products[-2::-1], path[-2::-1]):
        rest = rewriter.write(maker, *(rest if n == position else arg for n, arg in enumerate(maker.args)))
    return rest, value
