"""Sums that a step makes for others alone → sums of what it puts out, so that programs can share out the lanes.

    c, ys = scan (λ c x. let c' = f c x in (c', reduce_sum[axes=(0,)] (c' * x))) c0 xs         # c: f32[1024,16]
        →
    c, vs = scan (λ c x. let c' = f c x in (c', c' * x)) c0 xs
    ys = reduce_sum[axes=(1,)] vs

A program would have all lanes for the sake of the sum. The values that are summed are not stored: what lanes of a loop
add up to is made by the loop's own programs, in parts (`split_lanes.py`). Left alone: loops that programs enough share
out as they are, and those whose lanes meet in what they carry as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
from jax import lax

from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.loops import results_of
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import made_of
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Body, Scan, body_of, scan_of, scanned
from jaxpr2triton.ir.tracing import traced
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.in_two import wide_of
from jaxpr2triton.plan.partition.split import Rewritten, reduced
from jaxpr2triton.plan.partition.split_lanes import lanes_of_a_chunk, programs_beside
from jaxpr2triton.rules.reductions import TABLE

Values = Sequence[jax.Array]


def sums_of_steps(cuts: Cuts) -> dict[Eqn, Rewritten]:
    """The loops whose lanes meet in such sums alone, and how they are written then."""
    found = dict[Eqn, Rewritten]()
    for eqn in cuts.inside:
        if eqn.primitive.name == "scan" and not eqn.effects:
            scan = scan_of(eqn)
            kinds = sorted(_held(scan), key=lambda kind: -facts_of(scan).sizes[kind])
            made = (rewritten for kind in kinds if (rewritten := _without(cuts, scan, kind)) is not None)
            if (first := next(made, None)) is not None:
                found[eqn] = first
    return found


def _held(scan: Scan) -> Iterator[Kind]:
    """The kinds of lanes that a program has whole; those of one dimension of each value."""
    facts = facts_of(scan)
    return (kind for kind in facts.held & facts.carried if kind[1] == 0 and (kind[0], 1) not in facts.sizes)


def _without(cuts: Cuts, scan: Scan, kind: Kind) -> Rewritten | None:
    """The loop without its sums along lanes, if these are all that keeps the lanes together, and processors idle."""
    facts, body = facts_of(scan), body_of(scan.eqn.params)
    sums = [eqn for eqn in body.jaxpr.eqns if _combines_lanes(eqn) and kind in _summed(facts, eqn)]
    late = _late(body, sums)
    if late is None:
        return None
    beside = programs_beside(cuts, scan, _outside(cuts, scan, kind))
    if cuts.policy.keeps_busy(beside) or lanes_of_a_chunk(cuts.policy, facts.sizes[kind], beside) is None:
        return None
    rewritten = partial(_rewritten, scan.eqn, body, late)
    again = traced(rewritten, *(atom.aval for atom in scan.eqn.invars))
    (other,) = (scan_of(eqn) for eqn in again.jaxpr.eqns if eqn.primitive.name == "scan")
    return rewritten if _are_apart(scan, facts, kind, other) else None


@dataclass(frozen=True)
class _Late:
    """What a body need not make while the loop runs."""

    sums: tuple[Eqn, ...]
    rest: tuple[Eqn, ...]  # what is made of these, and of what no step changes
    places: tuple[int, ...]  # the ys that are put out then
    read: tuple[Var, ...]  # the xs that are read for that

    @property
    def terms(self) -> list[Var]:
        """What is combined: of a product of vectors with a matrix the terms, which are called as it is."""
        return list(dict.fromkeys(var for each in self.sums for var in _names(each)))

    @property
    def operands(self) -> list[Atom]:
        return [atom for each in self.sums for atom in each.invars]


def _late(body: Body, sums: Sequence[Eqn]) -> _Late | None:
    """These sums and what is made of them, if none of it is carried; None without any that is put out."""
    chosen = [eqn for eqn in sums if body.dependences.waited_for.isdisjoint(eqn.outvars)]
    made = {var for eqn in chosen for var in eqn.outvars}
    behind = made_of(body.jaxpr.eqns, made)
    places = [place for place, atom in enumerate(body.ys) if not isinstance(atom, Literal) and atom in behind]
    rest = evaluate.needed(body.jaxpr.eqns, [body.ys[place] for place in places], made)
    read = _read_by(rest) - made
    if not places or any(eqn.effects for eqn in rest) or not read <= {*body.xs, *body.dependences.invariant}:
        return None
    return _Late(tuple(chosen), tuple(rest), tuple(places), tuple(var for var in body.xs if var in read))


def _read_by(eqns: Sequence[Eqn]) -> set[Var]:
    """What they read that none of them makes."""
    made = {var for eqn in eqns for var in eqn.outvars}
    return {var for eqn in eqns for var in evaluate.variables(eqn.invars)} - made


def _outside(cuts: Cuts, scan: Scan, kind: Kind) -> Hashable:
    """The class of the lanes outside of the loop."""
    facts = facts_of(scan)
    classes = (
        cuts.classes.of(result)[d]
        for atom, result, offset in results_of(scan)
        if not isinstance(atom, Literal)
        for d, each in enumerate(facts.of(atom), offset)
        if each == kind
    )
    return next(classes, None)


def _are_apart(scan: Scan, facts: LoopFacts, kind: Kind, other: Scan) -> bool:
    """Whether programs can share out in another loop what they cannot in this one."""
    now = facts_of(other)
    kinds = (
        new
        for (_, before, _, _), (_, after, _, _) in zip(scan.carries, other.carries)
        for old, new in zip(facts.of(before), now.of(after))
        if old == kind
    )
    return now.held.isdisjoint(kinds)


def _combines_lanes(eqn: Eqn) -> bool:
    """Whether it is a reduction, or multiplies vectors with a matrix: each term has a factor of its own."""
    if eqn.primitive.name in TABLE:
        return True
    if eqn.primitive.name != "dot_general" or any(isinstance(atom, Literal) for atom in eqn.invars):
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    sides = zip(eqn.invars, contracted, batch)
    return any(len(atom.aval.shape) == len(summed) + len(kept) for atom, summed, kept in sides)


def _summed(facts: LoopFacts, eqn: Eqn) -> list[Kind]:
    dims = eqn.params["axes"] if eqn.primitive.name in TABLE else eqn.params["dimension_numbers"][0][0]
    (operand, *_) = evaluate.variables(eqn.invars)
    kinds = facts.of(operand)
    return [kinds[d] for d in dims]


def _rewritten(eqn: Eqn, body: Body, late: _Late, *args: jax.Array) -> list[jax.Array]:
    """The results of the loop; it puts out what is summed, and the rest is made of that."""
    kept = [atom for place, atom in enumerate(body.ys) if place not in late.places]
    needed = evaluate.needed(body.jaxpr.eqns, [*body.afters, *kept, *late.operands], ())
    xs, fixed = dict(zip(body.xs, body.stacked(args))), body.fixed(args)

    same = _of_no_step(body, needed, late.terms, fixed, eqn.params["length"])
    put_out = [var for var in late.terms if var not in same]

    def step(before: Values, x: Values) -> tuple[list[jax.Array], list[jax.Array]]:
        env = {**fixed, **dict(zip(body.befores, before)), **dict(zip(body.xs, x))}
        evaluate.run(needed, env)
        env |= _products(late.sums, env)
        return [evaluate.read(env, atom) for atom in body.afters], [evaluate.read(env, a) for a in [*kept, *put_out]]

    after, ys = scanned(eqn.params, step, body.inits(args), [*xs.values()])
    others, terms = ys[: len(kept)], {**same, **dict(zip(put_out, ys[len(kept) :]))}

    def of_a_step(totals: Values, read: Mapping[Var, jax.Array]) -> list[jax.Array]:
        env = {**fixed, **{each.outvars[0]: total for each, total in zip(late.sums, totals)}, **read}
        evaluate.run(late.rest, env)
        return [evaluate.read(env, body.ys[place]) for place in late.places]

    totals = [_total(each, [terms[var] for var in _names(each)]) for each in late.sums]
    made = jax.vmap(of_a_step, axis_size=eqn.params["length"])(totals, {var: xs[var] for var in late.read})
    found = dict(zip(late.places, made))
    rest = iter(others)
    return [*after, *(found[place] if place in found else next(rest) for place in range(len(body.ys)))]


def _names(eqn: Eqn) -> list[Var]:
    return evaluate.variables(eqn.invars) if eqn.primitive.name in TABLE else list(eqn.outvars)


def _products(sums: Sequence[Eqn], env: dict[Var, jax.Array]) -> dict[Var, jax.Array]:
    """All terms of the products among these, with the contracted dimensions first."""
    products = [eqn for eqn in sums if eqn.primitive.name not in TABLE]
    return {eqn.outvars[0]: _terms(eqn, *(evaluate.read(env, atom) for atom in eqn.invars)) for eqn in products}


def _terms(eqn: Eqn, *operands: jax.Array) -> jax.Array:
    wide = wide_of(eqn.outvars[0].aval.dtype)
    orders = [_order(atom, summed, batch) for atom, summed, batch in zip(eqn.invars, *eqn.params["dimension_numbers"])]
    shape = max((tuple(atom.aval.shape[d] for d in order) for atom, order in zip(eqn.invars, orders)), key=len)
    factors = [lax.transpose(lax.convert_element_type(x, wide), order) for x, order in zip(operands, orders)]
    return lax.mul(*(lax.broadcast_in_dim(factor, shape, range(factor.ndim)) for factor in factors))


def _of_no_step(
    body: Body, eqns: Sequence[Eqn], wanted: Iterable[Var], fixed: Mapping[Var, jax.Array], steps: int
) -> dict[Var, jax.Array]:
    """Those among them that all steps have alike, for each of the steps."""
    invariant, env = body.dependences.invariant, dict(fixed)
    evaluate.run([each for each in eqns if invariant.issuperset(each.outvars)], env)
    same = {var: env[var] for var in wanted if var in invariant}
    return {var: lax.broadcast_in_dim(x, (steps, *x.shape), range(1, 1 + x.ndim)) for var, x in same.items()}


def _order(atom: Var, summed: Sequence[int], batch: Sequence[int]) -> list[int]:
    rest = (d for d in range(len(atom.aval.shape)) if d not in (*summed, *batch))
    return [*summed, *batch, *rest]


def _total(eqn: Eqn, terms: Values) -> jax.Array:
    """The sums of all steps."""
    if eqn.primitive.name in TABLE:
        return reduced(eqn, terms, [d + 1 for d in eqn.params["axes"]])
    axes = tuple(range(1, 1 + len(eqn.params["dimension_numbers"][0][0])))
    (whole,) = terms
    return lax.convert_element_type(lax.reduce_sum(whole, axes), eqn.outvars[0].aval.dtype)
