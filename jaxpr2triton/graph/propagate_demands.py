"""Let every equation learn where its results are wanted, and ask its operands: last one first.

b = exp a, c = sum[1] b, and c is wanted at [i]    →    b is wanted at [i, k] for a new axis k, and so is a

A loop is entered as its body's own equations would be. What each kind of equation asks for is in a file of its own.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Sequence

from jaxpr2triton import policy
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import accumulate, brought, crowded, dynamic, exchange, keep, loops, sweeps
from jaxpr2triton.graph.chooser import Chooser, Number
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.graph.demands import Crowds, Demands, EnteredLoop
from jaxpr2triton.graph.facts import LoopFacts
from jaxpr2triton.graph.nodes import Demand, Place, Remembered, axes_in
from jaxpr2triton.graph.reads import Asked, Counted, Elements, aligned
from jaxpr2triton.ir.accumulate import accumulate_p
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal
from jaxpr2triton.ir.region import exchange_p, keep_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing, iota_place
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep


def propagate(demands: Demands, roots: Sequence[tuple[Atom, Place]]) -> list[tuple[Atom, Demand]]:
    """Propagate from the roots to all that they need; returns how to read the roots."""
    targets = [demands.want(atom, place, ()) for atom, place in roots]
    while demands.asking:
        number = -heapq.heappop(demands.asking)
        if demands.asked and number == demands.asked[-1]:
            continue  # another one of its results
        demands.asked.append(number)
        eqn = demands.jaxpr.eqns[number]
        if eqn.primitive.name in LOOPS:
            demands.entered[number] = _propagate_through(demands, (*demands.path, number), scan_of(eqn))
        else:
            _ask(demands, (*demands.path, number), eqn)
    return targets


def _propagate_through(demands: Demands, number: Number, scan: Scan) -> EnteredLoop:
    """Go through the body of a loop whose results are wanted.

    c, ys = scan[jaxpr=f] c0 xs, and c[j] and ys[t, j] are wanted
        →   of what f gives back, c'[j] and y[j] are; then of what f reads, say c[j] and x[j]
        →   c0[j] and xs[t, j]
    """
    loop = loops.enter_loop(demands, number, scan, facts_of(scan))
    propagate(loop.inner, [*loops.handed_on(demands, loop), *loops.put_out_at(demands, loop)])
    loops.want_operands(demands, loop)
    return loop


def _ask(demands: Demands, number: Number, eqn: Eqn) -> None:
    """Record what each wanted element of the equation's result reads."""
    wanted: Sequence[Demand] = [demand for out in eqn.outvars for demand in demands.on(out)]
    row = TABLE.get(eqn.primitive.name)
    out = eqn.outvars[0]
    if not demands.may_repeat and len(wanted) > _places_at_most(row, eqn):
        demands.crowding.append(out)
        return
    wanted = crowded.at_once(demands, number, eqn, wanted)
    if isinstance(row, Reduction) or eqn.primitive.name == "dot_general":
        in_use = frozenset(axis for place, guard in wanted for axis in axes_in(place, guard))
        dims = eqn.params["axes"] if isinstance(row, Reduction) else eqn.params["dimension_numbers"][0][0]
        hints = _walked(demands, eqn) or demands.hints(eqn.invars[0], dims)
        indices = demands.choose.reduction(number, eqn.invars[0], dims, in_use, hints)
        demands.reduced_axes |= {axis for index in indices for axis in index.axes}
        for demand in wanted:
            demands.reads[out, demand] = demands.ask_reduction(eqn, dims, indices, *demand)
        return
    if isinstance(row, Sweep):
        sweeps.ask(demands, number, eqn, wanted)
        return
    if eqn.primitive is keep_p:
        keep.ask(demands, number, eqn, wanted)
        return
    if eqn.primitive is exchange_p:
        exchange.ask(demands, number, eqn, wanted)
        return
    if eqn.primitive is accumulate_p:
        accumulate.ask(demands, number, eqn, wanted)
        return
    for demand in brought.ask(demands, eqn, wanted):
        demands.reads[out, demand] = _ask_one(demands, eqn, demand)


def _ask_one(demands: Demands, eqn: Eqn, demand: Demand) -> Asked:
    """What one element of a result reads where nothing is combined."""
    row, (place, guard) = TABLE.get(eqn.primitive.name), demand
    if isinstance(row, Pointwise):
        return Elements([_ask_element(demands, v, demand, eqn.outvars[0].aval.shape) for v in eqn.invars])
    if isinstance(row, Indexing):
        return demands.ask_pieces(eqn, row.read(eqn, place), guard)
    if eqn.primitive.name == "iota":
        return Counted(iota_place(eqn, place))
    if eqn.primitive.name in dynamic.TABLE:
        return demands.ask_pieces(eqn, dynamic.TABLE[eqn.primitive.name](demands, eqn, place, guard), guard)
    raise CompilerBug(f"no rule for `{eqn.primitive.name}` inside a kernel")


def _ask_element(demands: Demands, atom: Atom, demand: Demand, shape: Sequence[int]) -> tuple[Atom, Demand]:
    """The operand of an elementwise equation; one of the result's shape is read just where that is wanted."""
    place, guard = demand
    own = aligned(place, atom.aval.shape)
    if own is place and isinstance(demand, Remembered) and atom.aval.shape == shape:
        return demands.want_at(atom, demand)
    return demands.want(atom, own, guard)


def _walked(demands: Demands, eqn: Eqn) -> list[Axis | None]:
    """Axes of their own for the terms of a product whose factor is kept along them: those need not be held."""
    if eqn.primitive.name != "dot_general":
        return []
    for factor, dims in zip(eqn.invars, eqn.params["dimension_numbers"][0]):
        maker = None if isinstance(factor, Literal) else demands.makers.get(factor)
        kept = {} if maker is None else demands.jaxpr.eqns[maker].params
        if maker is not None and demands.jaxpr.eqns[maker].primitive is keep_p and set(dims) <= set(kept["dims"]):
            return [Axis(f"p{n}", factor.aval.shape[d]) for n, d in enumerate(dims)]
    return []


def _places_at_most(row: object, eqn: Eqn) -> int:
    """At how many places a value is computed again rather than stored."""
    if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
        return 1
    match row:
        case Reduction():
            return policy.COMMON.places_of_a_sum
        case Pointwise() | Sweep():
            return policy.COMMON.places_computed
        case _:
            return policy.COMMON.places_moved


_FACTS: weakref.WeakKeyDictionary[Closed, LoopFacts] = weakref.WeakKeyDictionary()


def facts_of(scan: Scan) -> LoopFacts:
    """What of a loop one program has to have whole, and what it keeps; found out once for each body."""
    body = scan.eqn.params["jaxpr"]
    if body not in _FACTS:
        crowds = Crowds()
        facts = loops.loop_facts(scan, lambda chooser, roots: _trial(scan, chooser, roots, crowds))
        if crowds.dims and not crowds.are_large:
            facts = loops.loop_facts(scan, lambda chooser, roots: _trial(scan, chooser, roots, None))
        _FACTS[body] = facts
    return _FACTS[body]


def _trial(scan: Scan, chooser: Chooser, roots: Sequence[tuple[Atom, Place]], crowds: Crowds | None) -> Demands:
    """The demands on a body by itself."""
    trial = Demands(scan.body, chooser, frozenset(), True, crowds=crowds)
    trial.waits.update((inside, None) for _, inside in scan.consts)
    propagate(trial, roots)
    return trial
