"""The solvers against what following every path finds, on drawn graphs; and on chains that no recursion survives."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxpr2triton.ir.dataflow import (
    affected,
    computable,
    fixpoint,
    forward,
    forward_equations,
    needed_for,
    on_demand,
    postorder,
    reachable,
    readers_of,
    sources,
)

Graph = dict[int, list[int]]
SEEDS = range(60)
LONG = 20_000
CHAIN: Graph = {n: [n - 1] * 2 if n else [] for n in range(LONG)}  # 2^20,000 paths


def drawn(seed: int) -> Graph:
    """Operands come before what is made of them."""
    rng = random.Random(seed)
    return {n: [rng.randrange(n) for _ in range(rng.randint(0, 3))] if n else [] for n in range(rng.randint(1, 12))}


def below(graph: Graph, top: int) -> set[int]:
    return {top}.union(*(below(graph, each) for each in graph[top]))


@pytest.mark.parametrize("seed", SEEDS)
def test_sources(seed: int) -> None:
    graph = drawn(seed)
    among = {n for n in graph if n % 3 == 0}

    def nearest(value: int) -> set[int]:
        return {value} if value in among else set[int]().union(*map(nearest, graph[value]))

    assert sources(graph, graph.__getitem__, among) == {n: below(graph, n) & among for n in graph}
    assert sources(graph, graph.__getitem__, among, nearest=True) == {n: nearest(n) for n in graph}


@pytest.mark.parametrize("seed", SEEDS)
def test_from_results(seed: int) -> None:
    graph = drawn(seed)
    top, asked = max(graph), list[int]()

    def operands(value: int) -> list[int]:
        asked.append(value)
        return graph[value]

    found = list(reachable([top, top], operands))
    assert sorted(found) == sorted(below(graph, top)) and sorted(asked) == sorted(found)
    done: dict[int, int] = {}
    for value in postorder([top], graph.__getitem__, done):
        assert all(each in done for each in graph[value])
        done[value] = 1
    assert done.keys() == below(graph, top)


@pytest.mark.parametrize("solve", ["forward", "on_demand", "fixpoint"])
@pytest.mark.parametrize("seed", SEEDS)
def test_depths(seed: int, solve: str) -> None:
    graph = drawn(seed)

    @cache
    def depth(value: int) -> int:
        return max((depth(each) + 1 for each in graph[value]), default=0)

    def transfer(_: int, depths: list[int]) -> int:
        return max(depths, default=-1) + 1

    solvers: dict[str, Callable[[], dict[int, int]]] = {
        "forward": lambda: forward(graph, graph.__getitem__, transfer),
        "on_demand": lambda: {n: on_demand(n, graph.__getitem__, transfer, {}) for n in graph},
        "fixpoint": lambda: fixpoint(list(graph)[::-1], graph.__getitem__, transfer, 0),
    }
    assert solvers[solve]() == {n: depth(n) for n in graph}


@pytest.mark.parametrize("seed", SEEDS)
def test_affected_where_values_are_made_of_each_other(seed: int) -> None:
    rng = random.Random(seed)
    graph = {n: [rng.randrange(9) for _ in range(rng.randint(0, 2))] for n in range(9)}
    found = {0}
    for _ in graph:
        found |= {n for n in graph if found.intersection(graph[n])}
    assert affected(graph, graph.__getitem__, [0]) == found
    assert {n: sorted(set(readers)) for n, readers in readers_of(graph, graph.__getitem__).items()} == {
        n: sorted(each for each in graph if n in graph[each]) for n in graph if any(n in graph[each] for each in graph)
    }


def test_long_chains() -> None:
    """Each value once, and no function calls itself along them."""

    def transfer(_: int, depths: list[int]) -> int:
        return max(depths, default=-1) + 1

    assert on_demand(LONG - 1, CHAIN.__getitem__, transfer, {}) == LONG - 1
    assert forward(CHAIN, CHAIN.__getitem__, transfer)[LONG - 1] == LONG - 1
    assert len(list(reachable([LONG - 1], CHAIN.__getitem__))) == LONG
    assert len(affected(CHAIN, CHAIN.__getitem__, [0])) == LONG


def test_equations() -> None:
    def function(x: Any, y: Any) -> Any:
        a = jnp.sin(x)
        b = a * y
        return jnp.cos(x), b + 1.0

    jaxpr = jax.make_jaxpr(function)(1.0, 2.0).jaxpr
    (x, y), (cos, total) = jaxpr.invars, jaxpr.outvars

    def names(eqn: Any, of: list[frozenset[Any]]) -> frozenset[Any]:
        return frozenset((eqn.primitive.name,)).union(*of)

    assert forward_equations(jaxpr.eqns, names)[total] == {"sin", "mul", "add"}
    inputs = forward_equations(
        jaxpr.eqns, lambda _, of: frozenset[Any]().union(*of), {each: frozenset((each,)) for each in (x, y)}
    )
    assert inputs[total] == {x, y} and inputs[cos] == {x}
    assert forward_equations(jaxpr.eqns, lambda _, of: sum(of) + 1, {x: 0, y: 10})[total] == 13
    needed = needed_for(jaxpr.eqns, [total], lambda _, wanted: wanted)
    assert y in needed and cos not in needed


def test_what_can_be_computed_of_some_values() -> None:
    eqns = jax.make_jaxpr(lambda x, y: (jnp.sin(x) * 2, jnp.cos(x) + y))(1.0, 2.0).jaxpr.eqns
    x = eqns[0].invars[0]
    assert [eqn.outvars[0] in computable(eqns, [x]) for eqn in eqns] == [True, True, True, False]
    found = computable(eqns, [x], lambda eqn: eqn.primitive.name != "sin")
    assert [eqn.outvars[0] in found for eqn in eqns] == [False, False, True, False]
