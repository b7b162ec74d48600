"""Loops whose steps do something else, be they scans or `repeat`s."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import jax

from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var, made
from jaxpr2triton.ir.scans import Body, scanned
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite_planned

Plan = TypeVar("Plan")

Fixed = Mapping[Var, Value]  # what no step changes
Step = Callable[[Fixed, Sequence[Value], Sequence[Value]], tuple[list[Value], list[Value]]]


def rewrite_loops(
    closed: Closed,
    names: Collection[str],
    plan_of: Callable[[Eqn], Plan | None],
    rebuilt: Callable[[Node, Plan, Rewriter], Sequence[Value]],
) -> Closed:
    """Let loops be rebuilt that have a plan, and whose steps may be taken apart."""
    return rewrite_planned(closed, names, lambda eqn: plan_of(eqn) if may_be_distributed(eqn) else None, rebuilt)


def may_be_distributed(eqn: Eqn) -> bool:
    """Whether the order of what steps do is nobody's business: no effects, and nothing that devices differ in."""
    return not eqn.effects and not any(varies_over_mesh(atom.aval) for atom in eqn.invars)


def loop_again(
    node: Node, body: Body, rewriter: Rewriter, starts: Sequence[Value], step: Step
) -> tuple[Sequence[Value], Sequence[Value]]:
    """What the loop carries in the end, and what it puts out; a step takes what is carried, and its part of the xs."""
    number = body.num_consts
    if node.name == "scan":
        fixed, xs = body.fixed(node.args), body.stacked(node.args)
        after, ys = scanned(node.params, lambda before, x: step(fixed, before, x), list(starts), xs)
        return after, ys

    def one(*args: Value) -> list[Value]:
        return step(body.fixed(args), args[number:], ())[0]

    operands = (*node.args[:number], *starts)
    inner = made(jax.make_jaxpr(one)(*map(jax.typeof, operands)))
    again = Node(node.primitive, {**node.params, "jaxpr": inner}, operands, tuple(inner.out_avals))
    return rewriter.again(again), ()
