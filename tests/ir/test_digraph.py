"""Cuts, pieces and dominators, against what trying everything finds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from jaxpr2triton.ir.cheapest import cheapest
from jaxpr2triton.ir.digraph import Edge, backwards, behind_cut, dominators, pieces

Graph = dict[int, list[int]]
SEEDS = range(300)


def reached(after: Graph, start: int, without: int | None = None) -> set[int]:
    found, todo = set[int](), [start]
    while todo:
        node = todo.pop()
        if node not in found and node != without:
            found.add(node)
            todo += after.get(node, [])
    return found


def drawn(seed: int, most: int = 7) -> Graph:
    """A graph with edges from nodes to themselves, some twice, in any order."""
    chance = random.Random(seed)
    count = chance.randint(1, most)
    after: Graph = {node: [] for node in chance.sample(range(count), count)}
    for _ in range(chance.randint(0, 3 * count)):
        after[chance.randrange(count)].append(chance.randrange(count))
    return after


# --- cuts -------------------------------------------------------------------------------------------------------------


def cost_of(edges: Sequence[Edge], behind: Collection[Any]) -> float:
    cut = [cost for start, end, cost in edges if start not in behind and end in behind]
    return math.inf if None in cut else sum(cost for cost in cut if cost is not None)


def sides(edges: Sequence[Edge], source: Any, sink: Any) -> Iterator[set[Any]]:
    """All that the sink's side may be, the smaller ones first."""
    others = dict.fromkeys(node for edge in edges for node in edge[:2] if node not in (source, sink))
    for count in range(len(others) + 1):
        for chosen in itertools.combinations(others, count):
            yield {sink, *chosen}


def tried(edges: Sequence[Edge], source: Any, sink: Any) -> set[Any] | None:
    """The smallest side of the cheapest cut; none if no cut is finite. It is within all others."""
    found = min(sides(edges, source, sink), key=lambda behind: cost_of(edges, behind))
    least = cost_of(edges, found)
    assert all(found <= behind for behind in sides(edges, source, sink) if cost_of(edges, behind) == least)
    return None if least == math.inf else found


def drawn_edges(seed: int) -> list[Edge]:
    chance = random.Random(seed)
    costs = chance.choice(([0, 1, 2, 3, None], [1], [1, 1, 2, 10**30, 10**30 + 1], [1, None]))
    ends = [edge for edge in itertools.product(range(chance.randint(2, 7)), repeat=2) if chance.random() < 0.4]
    chance.shuffle(ends)
    return [(start, end, chance.choice(costs)) for start, end in ends]


@pytest.mark.parametrize("seed", SEEDS)
def test_cuts(seed: int) -> None:
    edges = drawn_edges(seed)
    expected = tried(edges, 0, 1)
    if expected is None:
        with pytest.raises(ValueError, match="no finite cut lies between 0 and 1"):
            behind_cut(edges, 0, 1)
    else:
        assert behind_cut(edges, 0, 1) == expected


def test_the_nearest_to_the_sink() -> None:
    assert behind_cut([("a", "b", 3), ("b", "c", 3), ("c", "d", None)], "a", "d") == {"c", "d"}
    assert behind_cut([("a", "b", 2), ("b", "c", 3), ("c", "d", None)], "a", "d") == {"b", "c", "d"}


def test_costs_of_any_size() -> None:
    """Not rounded: of 10**40 and one less the latter is cheaper."""
    for first, second, expected in ((10**40, 10**40 - 1, {"c"}), (10**40 - 1, 10**40, {"b", "c"})):
        assert behind_cut([("a", "b", first), ("b", "c", second)], "a", "c") == expected


def test_what_leads_nowhere() -> None:
    assert behind_cut([], "a", "b") == {"b"}
    assert behind_cut([("a", "c", None)], "a", "b") == {"b"}
    assert behind_cut([("c", "b", 1), ("b", "a", None)], "a", "b") == {"b", "c"}  # not reached: it costs nothing
    assert behind_cut([("a", "c", None), ("c", "b", 0), ("d", "b", -1)], "a", "b") == {"b"}


def test_edges_beside_each_other_cost_their_sum() -> None:
    assert behind_cut([("a", "b", 2), ("a", "b", 2), ("b", "c", 3)], "a", "c") == {"c"}
    assert behind_cut([("a", "b", 2), ("b", "b", None), ("b", "a", 9), ("b", "c", 3)], "a", "c") == {"b", "c"}


def test_no_finite_cut() -> None:
    edges: list[Edge] = [("a", "b", None), ("b", "c", None), ("a", "c", 1)]
    with pytest.raises(ValueError, match="no finite cut lies between 'a' and 'c'"):
        behind_cut(edges, "a", "c")
    with pytest.raises(ValueError, match="no finite cut lies between 'a' and 'a'"):
        behind_cut(edges, "a", "a")


def test_flow_that_has_to_be_taken_back() -> None:
    """What goes from a by c and e leaves no way by d and e; c leads on by b as well."""
    ends = (("a", "c"), ("a", "d"), ("c", "e"), ("c", "b"), ("d", "e"), ("e", "f"), ("b", "f"))
    edges: list[Edge] = [(start, end, 1) for start, end in ends]
    assert behind_cut(edges, "a", "f") == tried(edges, "a", "f") == {"f"}


def test_long_chains() -> None:
    """20,000 edges in which something joins at each step, and what joins can go on only in part."""
    count = 6000
    for cost in (lambda n: count - n, lambda n: 10**9, lambda n: n + 1):
        edges: list[Edge] = [(("in", n), ("out", n), cost(n)) for n in range(count)]
        edges += [(("out", n), ("in", n + 1), None) for n in range(count - 1)]
        edges += [("start", ("in", n), 2 if n else None) for n in range(count)]
        behind = behind_cut([*edges, (("out", count - 1), "end", None)], "start", "end")
        # all that joins behind a cut of the chain has to be cut as well
        before = min(range(count), key=lambda n: (cost(n) + 2 * (count - 1 - n), -n))
        whole = itertools.product(("in", "out"), range(before + 1, count))
        assert behind == {"end", ("out", before), *whole}


def test_the_cheapest_values_are_near_what_is_asked_for() -> None:
    """x ─→ y ─→ z, all of one size: z is kept; if x is there anyway, x."""
    sources: dict[Any, list[Any]] = {"y": ["x"], "z": ["y"]}

    def kept(**costs: int) -> tuple[Any, ...]:
        return cheapest(["z"], "xyz", lambda var: costs.get(var, 4), sources.get)

    assert kept() == ("z",)
    assert kept(x=1) == ("x",)
    assert kept(y=1, x=1) == ("y",)


# --- pieces -----------------------------------------------------------------------------------------------------------


def pieces_by_trying(after: Graph) -> list[tuple[int, ...]]:
    """Of those that only what is done leads to, always the one with the smallest node next."""
    leads = {node: reached(after, node) for node in after}
    left = sorted({tuple(sorted(other for other in leads[node] if node in leads[other])) for node in after})
    order = []
    while left:
        free = (one for one in left if not any(one[0] in leads[other[0]] for other in left if other != one))
        order.append(next(free))
        left.remove(order[-1])
    return order


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces(seed: int) -> None:
    after = drawn(seed)
    assert pieces(after) == pieces_by_trying(after)


def test_pieces_in_order() -> None:
    assert pieces({}) == []
    assert pieces({0: [3, 1], 1: [2], 2: [1], 3: []}) == [(0,), (1, 2), (3,)]
    assert pieces({3: [1], 2: [], 1: [], 0: [3]}) == [(0,), (2,), (3,), (1,)]  # 2 is free before 3, and 1 after it
    assert pieces({0: [0, 1, 1]}) == [(0,), (1,)]  # an edge twice, one to itself, and a node without an entry


def test_pieces_of_a_long_chain() -> None:
    count = 20_000
    chain = {node: [node + 1] for node in range(count)}
    assert pieces(chain) == [(node,) for node in range(count + 1)]
    assert pieces({**chain, count: [0]}) == [tuple(range(count + 1))]


# --- dominators -------------------------------------------------------------------------------------------------------


def dominators_by_trying(after: Graph, start: int) -> dict[int, int]:
    """Of the nodes without which another is not reached, the one that is not reached without any of the others."""
    found = {}
    for node in reached(after, start) - {start}:
        needed = {each for each in after if each != node and node not in reached(after, start, without=each)}
        (found[node],) = (
            one for one in needed if not any(one in reached(after, start, without=each) for each in needed - {one})
        )
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_dominators(seed: int) -> None:
    after = drawn(seed, most=12)
    start = next(iter(after))
    assert dominators(after, start) == dominators_by_trying(after, start)


def test_what_dominates() -> None:
    assert dominators({0: [1, 2], 1: [3], 2: [3]}, 0) == {1: 0, 2: 0, 3: 0}
    assert dominators({0: [1], 1: [2, 3], 2: [1], 3: []}, 0) == {1: 0, 2: 1, 3: 1}
    assert dominators({0: [1], 1: [0], 2: [1]}, 0) == {1: 0}  # what is not reached is no way, and the start has none
    assert dominators({}, 0) == {}


def test_a_loop_with_two_heads() -> None:
    """Neither dominates the other."""
    assert dominators({0: [1, 2], 1: [2], 2: [1, 3]}, 0) == {1: 0, 2: 0, 3: 2}


def test_dominators_of_a_long_chain() -> None:
    count = 20_000
    after = {node: [node + 1, max(node - 1, 0)] for node in range(count)}
    assert dominators(after, 0) == {node + 1: node for node in range(count)}


def test_backwards() -> None:
    assert backwards({0: [1, 2], 1: [2]}) == {0: [], 1: [0], 2: [0, 1]}
