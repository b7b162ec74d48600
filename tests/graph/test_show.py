"""Graphs in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.graph.show import show_graph
from tests.loop_programs import PROGRAMS as LOOPS


def shown(fn: Callable[..., Any], *args: Any) -> str:
    (plan,) = j2t.transpile(fn, *args).stages["schedule"].plans
    return show_graph(graph_of(plan))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


SOFTMAX = """\
0: float32[col, row] = load in0 at [row, col]
1: float32[row] = reduce_max 0 over col
2: float32[col, row] = sub 0 1
3: float32[col, row] = exp 2
4: float32[row] = reduce_sum 3 over col
5: float32[col, row] = div 3 4
out0 at [row, col] = 5"""

PADDED = """\
0: float32[i, j] = load in0 at [j, i - 1] if 1 <= i < 65
out0 at [i, j] = 0"""

LOOKED_UP = """\
0: uint8[] = load in1 at []
1: float32[i] = load in0 at [<0 in 0 … 8>, i]
out0 at [i] = 1"""

COUNTDOWN = """\
0: bool[t] = carried along t
1: int32[t] = carried along t
2: int32[] = load in0 at []
3: int32[] = 0
4: bool[] = gt 2 3
5: int32[] = 1
6: int32[t] = sub 1 5
7: bool[t] = gt 6 3
8: bool[] = loop t while: 0 from 4 to 7, 1 from 2 to 6
9: bool[] = the end of 0
10: int32[] = the end of 1
out0 at [] = 10"""


(nuts,) = (program for program in LOOPS if program.name == "nuts")


def test_places_that_a_step_looks_up() -> None:
    def taken(h: Any) -> Any:
        return lax.fori_loop(0, 3, lambda t, h: h + h[t % 2, (h[0, 0] > 0).astype(int)], h)

    text = shown(taken, f32(2, 4))
    assert "= take 1 where row is 0\n" in text and "= take 13 where col is 0\n" in text
    text = shown(nuts.fn, *nuts.args(np.random.default_rng(0)))
    assert "= look up 17 where k is <251 in 0 … 2> and k1 is k2\n" in text


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lambda x: jax.nn.softmax(x, -1), [f32(8, 100)], SOFTMAX),
        (lambda x: jnp.pad(x, ((0, 0), (1, 1))).T, [f32(32, 64)], PADDED),
        (lambda x, n: lax.dynamic_index_in_dim(x, n, keepdims=False), [f32(9, 64), np.uint8(3)], LOOKED_UP),
        (lambda n: lax.while_loop(lambda n: n > 0, lambda n: n - 1, n), [np.int32(3)], COUNTDOWN),
    ],
)
def test_show_graph(fn: Callable[..., Any], args: list[Any], expected: str) -> None:
    assert shown(fn, *args) == expected
