"""Where to cut a kernel that is too long: so that it falls into pieces of about the same length.

    out = d0(d1(… d9(x9), x1), x0)      →      d5 = d5(… d9(x9), x5)      out = d0(… d4(d5, x4), x0)

A value that all of a long computation leads through is the best cut: what only it reads leaves the kernel with it, so
that there are as many cuts as kernels. What those steps read of the rest, where it is needed as well, is cut with it:
x4 above, if x9 = f(… f(x0)), for else both kernels would make all of x0 … x4. Cutting just anywhere would not do: what
is left of a gradient still reads all that comes before, and every cut takes one step away. What is not long but wide,
the parts of a `stack` say, is cut at many values at once, which then share kernels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Compute, Graph, Node, Reduce, operands_of
from jaxpr2triton.ir.dataflow import reachable, readers_of
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.policy import Policy

VALUES = (Compute, Reduce)  # the nodes that are elements of a variable


def pieces(graph: Graph, steps: Sequence[Compute], policy: Policy) -> list[Var]:
    """The values to be in memory, in order, so that no kernel is left with all of these steps, too many for one."""
    most = policy.cuts
    parts = 1 << (len(steps) // most.steps).bit_length()  # twice the steps: twice as many kernels, and the same ones
    counted, above = frozenset(steps), dominators(graph)
    for size in (-(-len(steps) // parts), -(-len(steps) // (2 * parts))):
        found, longest = _cut_off(graph, above, counted, size, policy)
        if found and longest < most.steps:
            break
    if found:
        return [node.eqn.outvars[0] for node in graph.nodes if isinstance(node, VALUES) and node in found]
    size = len(steps) // (2 * (len(steps) // most.steps))
    few = _narrowest(graph, steps, policy.groups.outputs)
    few = few or _parts(graph, above, counted, size, numbers.COMMON.worth_carrying)
    return few or [steps[len(steps) // 2].eqn.outvars[0]]


def _cut_off(
    graph: Graph, above: Mapping[Node, Node | None], counted: Collection[Node], size: int, policy: Policy
) -> tuple[Collection[Node], int]:
    """Where pieces of `size` steps, or a few more, end in a value that is the only way from them; the longest one.

    What a piece reads of the rest, where it is needed as well, is cut with it, if that is little: then the kernel of
    the piece is not longer than the piece.
    """
    share = dict.fromkeys(graph.nodes, 0)  # steps that a node is the only way from, but those that are cut off
    within: dict[Node, list[Node]] = {}  # of which nodes it is the nearest that they lead through
    beside: dict[Node, set[Node]] = {}  # what those steps read of the rest
    is_long = functools.cache(lambda node: _is_long(node, numbers.COMMON.worth_carrying))
    found: set[Node] = set()
    left, longest = len(counted), 0
    for node in graph.nodes:  # operands come before readers, so what lies below a node is complete
        share[node] += node in counted
        read, through = beside.pop(node, set()), above[node]
        read.update(o for o in operands_of(node) if above[o] is not node and o not in found and is_long(o))
        read.difference_update(within.pop(node, ()))
        if node in counted and size <= share[node] < left and len(read) <= policy.groups.outputs:
            found.update((node, *read))
            left -= share[node]
            longest = max(longest, share[node])
        elif through is not None:
            share[through] += share[node]
            within.setdefault(through, []).append(node)
            few, many = sorted((read, beside.get(through, set())), key=len)
            beside[through] = many
            many |= few
    return found, max(longest, left)


def _is_long(node: Node, least: int) -> bool:
    """Whether a value takes so many steps that it had better be read than made again."""
    steps = (each for each in reachable([node], operands_of) if isinstance(each, Compute))
    return least <= 0 or (isinstance(node, VALUES) and any(True for _ in itertools.islice(steps, least - 1, None)))


def dominators(graph: Graph) -> Mapping[Node, Node | None]:
    """For each node the nearest one that all ways from it to the stores lead through; None where there is none."""
    above: dict[Node, Node | None] = {}
    depth: dict[Node | None, int] = {None: 0}
    readers: dict[Node, list[Node | None]] = {node: [] for node in graph.nodes}
    for store in graph.stores:
        readers[store.value].append(None)
    for node, reading in readers_of(graph.nodes, operands_of).items():
        readers[node] += reading
    for node in reversed(graph.nodes):
        found, *others = readers[node] or [None]
        for other in others:
            while found is not other:  # both go up to where they meet
                if depth[found] >= depth[other]:
                    found = above[found] if found is not None else None
                else:
                    other = above[other] if other is not None else None
        above[node] = found
        depth[node] = depth[found] + 1
    return above


def _narrowest(graph: Graph, steps: Sequence[Compute], most: int) -> list[Var]:
    """The values that go on from the first part of the steps to the second, where they are fewest; about the middle."""
    place: dict[Node, int] = {node: number for number, node in enumerate(steps)}
    last = dict.fromkeys(steps, 0)  # until which step a value is read
    for node in graph.nodes:
        until = place.get(node, len(steps))
        last.update({operand: max(last[operand], until) for operand in _steps_in(operands_of(node), place)})
    change = [0] * (len(steps) + 1)  # of how many values are alive after a step
    for node in steps:
        change[place[node]] += 1
        change[last[node]] -= 1
    alive = list(itertools.accumulate(change))
    middle = range(len(steps) // 4, 3 * len(steps) // 4)
    cut = min(middle, key=alive.__getitem__)
    values = dict.fromkeys(node.eqn.outvars[0] for node in steps[: cut + 1] if last[node] > cut)
    return list(values) if len(values) <= most else []


def _parts(
    graph: Graph, above: Mapping[Node, Node | None], counted: Collection[Node], size: int, least: int
) -> list[Var]:
    """Many values with `least` steps each, or more, that nothing else needs: the largest ones, until about `size` steps
    are left.
    """
    share = {node: int(node in counted) for node in graph.nodes}
    for node in graph.nodes:
        if (through := above[node]) is not None:
            share[through] += share[node]
    within: set[Node | None] = set()
    parts: list[Compute] = []
    for node, through in above.items():  # readers before operands
        if through in within:
            within.add(node)
        elif isinstance(node, Compute) and node in counted and least <= share[node] < size:
            within.add(node)
            parts.append(node)
    found: dict[Var, None] = {}
    left = len(counted)
    for node in sorted(parts, key=lambda part: (-share[part], part.number)):
        if left <= size:
            break
        found[node.eqn.outvars[0]] = None
        left -= share[node]
    return list(found)


def _steps_in(nodes: Sequence[Node], place: Mapping[Node, int]) -> list[Compute]:
    return [node for node in nodes if isinstance(node, Compute) and node in place]
