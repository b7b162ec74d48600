"""What the forward program saves for the backward one: a minimum cut between bytes and work.

The forward program is a graph from its inputs to the values that the linear program asks for. Cutting it somewhere
means: what lies on the cut is kept in memory, what lies behind it is computed again. A value costs the bytes that it
moves: an input or an output of the program is there anyway and has only to be read again, anything else is written and
read. Elementwise and index work is free to do again; results of anything else can only be kept.

    x ─→ mean ─→ x-mean ─→ var ─→ rstd        asked for: x-mean, rstd, normal
     ╲            ╱  ╲                        kept:      x (an input), mean, rstd
      ╲──────────╱    ╲─→ normal = (x-mean)·rstd

Among cuts of the same cost the one nearest the backward side wins: `tanh` keeps its output, not its input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
import networkx

from jaxpr2triton import policy

_START, _END = "inputs", "asked for"


def choose(
    forward: Any, num_outputs: int, needed: Sequence[Any], recomputable: Callable[[Any], bool]
) -> tuple[Any, ...]:
    """The variables of the flat program `forward` to keep, so that all of `needed` can be computed from them.

    Its first `num_outputs` outputs are the outputs of the user's program.
    """
    inner = forward.jaxpr
    inputs = set(inner.invars)
    there_anyway = inputs | {atom for atom in inner.outvars[:num_outputs] if not isinstance(atom, jex.Literal)}
    producer = {var: eqn for eqn in inner.eqns for var in eqn.outvars}
    graph = networkx.DiGraph()
    graph.add_nodes_from((_START, _END))
    todo = [atom for atom in needed if not isinstance(atom, jex.Literal)]
    for var in todo:
        graph.add_edge((var, "out"), _END)
    seen: set[Any] = set()
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        graph.add_edge((var, "in"), (var, "out"), capacity=_cost(var.aval, var in there_anyway))
        if var in inputs or not recomputable(producer[var]):
            graph.add_edge(_START, (var, "in"))
            continue
        for atom in producer[var].invars:
            if not isinstance(atom, jex.Literal):
                graph.add_edge((atom, "out"), (var, "in"))
                todo.append(atom)
    # networkx returns the cut nearest its sink: the sink's side is what still reaches it after the flow
    _, (_, behind) = networkx.minimum_cut(graph, _START, _END)
    order = [*inner.invars, *(var for eqn in inner.eqns for var in eqn.outvars)]
    return tuple(var for var in order if var in seen and (var, "in") not in behind and (var, "out") in behind)


def _cost(aval: Any, there_anyway: bool) -> int:
    """Bytes moved, with a little on top for memory taken for it alone; and of two equal costs the fewer arrays."""
    nbytes = math.prod(aval.shape) * aval.dtype.itemsize
    return 256 * nbytes * (policy.COMMON.byte_read if there_anyway else policy.COMMON.byte_stored) + 1
