"""Contractions over joined values → sums over the parts; contractions that are turned round → their other order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite


def split_contractions(closed: Closed) -> Closed:
    """Let a contraction meet each part of a concatenation by itself.

        z = concatenate[dimension=1] i f g o;  y = dot_general z w      (summed along the joined dimension)
            →    y = dot_general i w[0:8] + dot_general f w[8:16] + ...

    For bodies of loops, where a program would compute every part for each index of the whole: gates have lanes of their
    own then.
    """
    if not {"concatenate", "dot_general"} <= primitive_names(closed):
        return closed
    return rewrite(closed, _split, named({"dot_general"}))


def turn_contractions(closed: Closed) -> Closed:
    """Let a contraction have its operands in the order in which its result is read.

        c = dot_general a b;  d = transpose[permutation=(1, 0)] c   →   d = dot_general b a

    Or in that of its sides, where the batch comes between or behind them, and what is left is transposed.

    Left alone: contractions whose results are read in their own order as well.
    """
    if not {"transpose", "dot_general"} <= primitive_names(closed):
        return closed
    reads = Counter(var for eqn in closed.jaxpr.eqns for var in variables(eqn.invars))
    reads.update(variables(closed.jaxpr.outvars))
    turns = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "transpose"]
    once = iter([any(reads[var] == 1 for var in variables(eqn.invars)) for eqn in turns])

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        made = rewriter.maker(node.args[0]) if next(once) else None
        if made is None or made.name != "dot_general":
            return None
        turned = _turned(made, rewriter, node.params["permutation"])
        return None if turned is None else [turned]

    return rewrite(closed, rule, named({"transpose"}))


def _turned(made: Node, rewriter: Rewriter, order: Sequence[int]) -> Value | None:
    """A contraction with its operands the other way round, transposed, if what the second one has comes first there."""
    sums, batch = made.params["dimension_numbers"]
    left, right = (jax.typeof(arg).ndim - len(sums[k]) - len(batch[k]) for k, arg in enumerate(made.args))
    first, middle = len(batch[0]), len(batch[0]) + left
    turned = (*range(first), *range(middle, middle + right), *range(first, middle))
    sides = [dim >= middle for dim in order if dim >= first]
    if not (left and right) or sides != sorted(sides, reverse=True):
        return None
    precision = made.params["precision"]  # of each operand, or of both
    value = rewriter.write(
        made,
        *made.args[::-1],
        dimension_numbers=(sums[::-1], batch[::-1]),
        precision=precision[::-1] if isinstance(precision, tuple) else precision,
    )
    again = [turned.index(dim) for dim in order]
    return value if again == sorted(again) else lax.transpose(value, again)


def _split(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    sums, _ = node.params["dimension_numbers"]
    for side, dims in enumerate(sums):
        joined = rewriter.maker(node.args[side])
        if joined is not None and joined.name == "concatenate" and joined.params["dimension"] in dims:
            other = sums[1 - side][dims.index(joined.params["dimension"])]
            return [_sum_of_parts(node, rewriter, joined, side, other)]
    return None


def _sum_of_parts(node: Node, rewriter: Rewriter, joined: Node, side: int, other: int) -> Value:
    """The contraction with each of the joined values in turn; `other` is the dimension that meets the joined one."""
    whole = node.args[1 - side]
    total: Any = None
    start = 0
    for part in joined.args:
        end = start + part.aval.shape[joined.params["dimension"]]
        piece = lax.slice_in_dim(whole, start, end, axis=other)
        operands = (part, piece) if side == 0 else (piece, part)
        product = rewriter.write(node, *operands)
        total = product if total is None else lax.add(total, product)
        start = end
    return total
