"""Comparisons, logic on bits and truth values, and choices."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.literals import is_bare, with_dtype


def _select(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    """Case 0 where the selector is False or 0, case 1 where it is True or 1, and so on."""
    which, *cases = args
    if all(is_bare(case) for case in cases):
        cases[-1] = with_dtype(cases[-1], call.out_dtype)
    if is_bool(call.in_dtypes[0]) and len(cases) == 2:
        return expr("tl.where({}, {}, {})", which, cases[1], cases[0])
    chosen = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        chosen = expr("tl.where({} <= {}, {}, {})", which, number, cases[number], chosen)
    return chosen


TABLE = {
    "eq": pointwise("{0} == {1}"),
    "ne": pointwise("{0} != {1}"),
    "lt": pointwise("{0} < {1}"),
    "le": pointwise("{0} <= {1}"),
    "gt": pointwise("{0} > {1}"),
    "ge": pointwise("{0} >= {1}"),
    "and": pointwise("{0} & {1}"),
    "or": pointwise("{0} | {1}"),
    "xor": pointwise("{0} ^ {1}"),
    "not": pointwise("~{0}"),
    "is_finite": pointwise('tl.abs({0}) < float("inf")', flops=2),
    "select_n": Pointwise(_select),
}
