"""A loop that takes another step and carries other values, be it a scan or a `repeat`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax

from jaxpr2triton.ir.jaxprs import Var, made
from jaxpr2triton.ir.scans import Body, scanned
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value

Fixed = Mapping[Var, Value]  # what no step changes
Step = Callable[[Fixed, Sequence[Value], Sequence[Value]], tuple[list[Value], list[Value]]]


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
