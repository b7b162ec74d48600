"""What is decided before a program runs: branches for other platforms, and what loops are given that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.scans import apart, body_of, scanned
from jaxpr2triton.normalize.numbers.static_values import equations_of, static_array, written_again
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite

RUN_ON = frozenset({"cpu", "gpu", "cuda", "rocm"})
Given = dict[int, Any]  # position of an operand → the equations that make it


def specialise_loops(closed: Closed) -> Closed:
    """Take the branch that is known, and make what is known inside of the loop that reads it.

        i = platform_index[platforms=(("tpu",), None)];  y = cond[branches] i x   →   y = branch1 x
        b = iota;  m = ge b 2;  y = scan[num_consts=1 (λ m c x. ...)] m c0 xs     →   y = scan[(λ c x. ...)] c0 xs

    Left alone: what depends on a platform that kernels run on, and what takes more than index work to make.
    """
    return rewrite(closed, lambda node, rewriter: RULES[node.name](node, rewriter), named(RULES))


def _platform(node: Node, rewriter: Rewriter) -> list[Value] | None:
    """The default, where no platform is named that kernels run on."""
    platforms = node.params["platforms"]
    if None not in platforms or any(name in RUN_ON for names in platforms for name in names or ()):
        return None
    return [np.int32(platforms.index(None))]


def _branch(node: Node, rewriter: Rewriter) -> list[Value] | None:
    index, *operands = node.args
    known = static_array(index, rewriter)
    if known is None:
        return None
    branches = node.params["branches"]
    branch = branches[min(max(int(known), 0), len(branches) - 1)]
    return rewriter.evaluate(branch.jaxpr, branch.consts, operands)


def _given(args: Sequence[Value], rewriter: Rewriter) -> Given:
    made = {position: equations_of(arg, rewriter) for position, arg in enumerate(args)}
    return {position: equations for position, equations in made.items() if equations is not None}


def _all(args: Sequence[Value], given: Given, rest: Sequence[Value]) -> list[Value]:
    """The constants of a body: some are made there, the rest come in."""
    others = iter(rest)
    return [written_again(given[n], arg) if n in given else next(others) for n, arg in enumerate(args)]


def _scan(node: Node, rewriter: Rewriter) -> list[Value] | None:
    body = body_of(node.params)
    consts = node.args[: body.num_consts]
    given = _given(consts, rewriter)
    if not given or node.effects:
        return None
    rest = [const for n, const in enumerate(consts) if n not in given]

    def step(carry: Sequence[Value], xs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        args = [*_all(consts, given, rest), *carry, *xs]
        return apart(evaluate.outputs(body.jaxpr, body.closed.consts, args), body.num_carry)

    final, ys = scanned(node.params, step, body.inits(node.args), body.stacked(node.args))
    return [*final, *ys]


def _while(node: Node, rewriter: Rewriter) -> list[Value] | None:
    ours, theirs = node.params["cond_nconsts"], node.params["body_nconsts"]
    groups = node.args[:ours], node.args[ours : ours + theirs]
    start = node.args[ours + theirs :]
    given = [_given(group, rewriter) for group in groups]
    if not any(given) or node.effects:
        return None
    rests = [[arg for n, arg in enumerate(group) if n not in known] for group, known in zip(groups, given)]
    closed = [
        _with(node.params[name], group, known, [*map(jax.typeof, rest)], [*map(jax.typeof, start)])
        for name, group, known, rest in zip(("cond_jaxpr", "body_jaxpr"), groups, given, rests)
    ]
    params = {
        **node.params,
        "cond_jaxpr": closed[0],
        "body_jaxpr": closed[1],
        "cond_nconsts": len(rests[0]),
        "body_nconsts": len(rests[1]),
    }
    operands = (*rests[0], *rests[1], *start)
    return rewriter.again(Node(node.primitive, params, operands, node.out_avals, node.effects, node.context))


def _with(closed: Any, args: Sequence[Value], given: Given, rest: Sequence[Any], start: Sequence[Any]) -> Any:
    def run(*values: Value) -> list[Value]:
        whole = [*_all(args, given, values[: len(rest)]), *values[len(rest) :]]
        return evaluate.outputs(closed.jaxpr, closed.consts, whole)

    return jax.make_jaxpr(run)(*rest, *start)


RULES = {"platform_index": _platform, "cond": _branch, "scan": _scan, "while": _while}
