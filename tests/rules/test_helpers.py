"""The functions that kernels call."""

from __future__ import annotations

import ast

import numpy as np

from jaxpr2triton.rules import reductions, sweeps
from jaxpr2triton.rules.helpers import HELPERS, with_callees
from jaxpr2triton.rules.pointwise.table import POINTWISE


def test_there_are_those_that_rows_name_and_those_that_these_call() -> None:
    dtypes = np.dtype(np.int32), np.dtype(np.float32)
    named = {row.helper(dtype) for row in reductions.TABLE.values() for dtype in dtypes} - {None}
    named |= {row.follow for row in reductions.TABLE.values()} - {None}
    named |= {name for row in POINTWISE.values() for name in row.helpers}
    others = (np.dtype(kind) for kind in (bool, np.int16, np.int64))
    swept = (*dtypes, *others)
    named |= {row.helper(dtype) for row in sweeps.TABLE.values() for dtype in swept} - {""}
    # for a product that is stored, for warps that meet, and for programs that do, whatever the row
    written = {"_product", "_in_each_warp", "_all_meet"}
    assert {each for name in named for each in with_callees(name)} | written == set(HELPERS)


def test_what_a_function_calls_stands_before_it() -> None:
    assert with_callees("_threefry") == ("_four_rounds", "_threefry")
    assert with_callees("_maximum") == ("_maximum",)


def test_a_row_says_how_many_words_its_function_gives() -> None:
    for name, row in POINTWISE.items():
        for helper in row.helpers:
            (function,) = ast.parse(HELPERS[helper]).body
            *_, returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
            given = len(returned.elts) if isinstance(returned, ast.Tuple) else 1
            assert given == row.words, name
