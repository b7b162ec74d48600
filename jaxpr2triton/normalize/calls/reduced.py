"""What a reduction makes for one branch only, of a `cond` that stays with XLA → the branch reduces it.

So the number that an error message tells is made if there is an error, and no kernel waits for it to be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.graph.needless import why_not_chosen
from jaxpr2triton.ir.evaluate import read_by
from jaxpr2triton.ir.jaxprs import Closed, Literal, made
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite
from jaxpr2triton.rules.reductions import TABLE


def reduce_in_branches(closed: Closed) -> Closed:
    """Let a branch that may not be computed unless it is taken reduce by itself what nobody else reads.

        m:f32[] = reduce_max[axes=(0,)] a;  b = cond[branches=(λ m. 0.0, λ m. callback m)] p m
            →    b = cond[branches=(λ a. 0.0, λ a. callback (reduce_max a))] p a

    Left alone: results of more than one element, and what several branches read.
    """
    jaxpr = closed.jaxpr
    if not any(eqn.primitive.name == "cond" for eqn in jaxpr.eqns):
        return closed
    reads = Counter(read_by(jaxpr.eqns, jaxpr.outvars))

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        branches = node.params["branches"]
        if any(branch.consts for branch in branches) or why_not_chosen(branches) is None:
            return None
        found: dict[int, Node] = {}
        for place, (atom, value) in enumerate(zip(node.equation.invars[1:], node.args[1:], strict=True)):
            maker = rewriter.maker(value) if not isinstance(atom, Literal) and reads[atom] == 1 else None
            readers = sum(_is_read(branch, place) for branch in branches)
            if maker is not None and _is_one(maker) and readers == 1:
                found[place] = maker
        if not found:
            return None
        args = [node.args[0], *(found[n].args[0] if n in found else x for n, x in enumerate(node.args[1:]))]
        params = {**node.params, "branches": tuple(_reducing(branch, found) for branch in branches)}
        return rewriter.again(Node(node.primitive, params, tuple(args), node.out_avals, node.effects, node.context))

    found = rewrite(closed, rule, named(("cond",)))
    return found if found is closed else remove_dead(found)


def _is_one(maker: Node) -> bool:
    return maker.equation is not None and maker.name in TABLE and maker.out_avals[0].size == 1


def _is_read(branch: Closed, place: int) -> bool:
    jaxpr = branch.jaxpr
    read = set(read_by(jaxpr.eqns, jaxpr.outvars))
    return jaxpr.invars[place] in read


def _reducing(branch: Closed, found: Mapping[int, Node]) -> Closed:
    """The branch, which is given what is reduced in the place of the results, and reduces it if it reads them."""

    def reduced(*args: Any) -> list[Any]:
        values = list(args)
        for place, maker in found.items():
            if _is_read(branch, place):
                (values[place],) = bind_equation(maker.equation, [args[place]])
        return run(branch, *values)  # those that nobody reads have other types

    avals = [found[n].equation.invars[0].aval if n in found else aval for n, aval in enumerate(branch.in_avals)]
    return made(jax.make_jaxpr(reduced)(*avals))
