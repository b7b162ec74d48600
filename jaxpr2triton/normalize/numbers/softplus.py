"""The derivative of softplus, as JAX writes it, is a sigmoid."""

from __future__ import annotations

import math

import numpy as np
from jax.extend.core import primitives

from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, splat


def sigmoid_of_difference(node: Node, rewriter: Rewriter) -> Value | None:
    """exp(x - log(exp(x) + 1)) → logistic(x), which takes one exponential in place of two and a logarithm.

    It has more digits, too: the difference of two numbers like x has lost those that x has before its point. JAX puts
    0 in the place of both, where they are infinite; NaN stays NaN.
    """
    difference = _made_by("sub", node.args[0], rewriter)
    if difference is None:
        return None
    x, total = (_finite(arg, rewriter) for arg in difference.args)
    if x is None or total is None or not _is_softplus(total, x, rewriter):
        return None
    return rewriter.bind(primitives.logistic_p, x, accuracy=None)


def _made_by(name: str, value: Value, rewriter: Rewriter) -> Node | None:
    maker = rewriter.maker(value)
    return maker if maker is not None and maker.name == name else None


def _unrounded(value: Value, rewriter: Rewriter) -> Value:
    """A value of 16 bits with the digits that it is held with."""
    rounded = _made_by("rounded", value, rewriter)
    return value if rounded is None else rounded.args[0]


def _finite(value: Value, rewriter: Rewriter) -> Value | None:
    """x, if the value is x, and 0 where x is infinite."""
    chosen = _made_by("select_n", value, rewriter)
    if chosen is None or len(chosen.args) != 3 or not _is(chosen.args[2], 0, rewriter):
        return None
    which, x = _made_by("eq", chosen.args[0], rewriter), chosen.args[1]
    if which is None or _unrounded(which.args[0], rewriter) is not x or not _is(which.args[1], math.inf, rewriter):
        return None
    return x


def _is_softplus(value: Value, x: Value, rewriter: Rewriter) -> bool:
    """Whether the value is max(x, 0) + log1p(exp(-|x|)), or x where x is NaN."""
    chosen = _made_by("select_n", value, rewriter)
    if chosen is None or len(chosen.args) != 3 or chosen.args[2] is not x:
        return False
    is_nan, total = _made_by("ne", chosen.args[0], rewriter), _made_by("add", chosen.args[1], rewriter)
    if is_nan is None or any(_unrounded(arg, rewriter) is not x for arg in is_nan.args) or total is None:
        return False
    larger, rest = _made_by("max", total.args[0], rewriter), total.args[1]
    if larger is None or _unrounded(larger.args[0], rewriter) is not x or not _is(larger.args[1], 0, rewriter):
        return False
    for name in ("log1p", "exp", "neg", "abs"):
        maker = _made_by(name, rest, rewriter)
        if maker is None:
            return False
        rest = _unrounded(maker.args[0], rewriter)
    negated = _made_by("neg", x, rewriter)
    return rest is x or (negated is not None and negated.args[0] is rest)


def _is(value: Value, number: float, rewriter: Rewriter) -> bool:
    known = splat(value, rewriter)
    return known is not None and bool(np.all(known == number))
