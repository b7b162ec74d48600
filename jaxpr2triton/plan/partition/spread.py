"""Loops whose state is spread over programs that run at once: what they carry is shared out, the body written again.

    x: f32[512,512]                                        x: f32[128,4,512], rows of 128 programs, 4 of each
    x' = x + roll x 1                                      shown = reshape (exchange[shared=(0,)] x turn)
    s  = sum x'                                     →      x' = reshape (reshape x + roll shown 1)
                                                           s  = sum (exchange[shared=(0,)] (sum[axes=(1, 2)] x') turn)

One class of the dimensions that are carried is taken apart: n = programs x block. A value that is read where it is
made is a program's own. A sum, or a product, along the class is one of each part, which programs show each other; all
add them up in the same order, so that all have the same bits. Whatever else is wanted elsewhere is shown as it is. What
nobody carries, or is made of what is shown, is there for all; so is what is made of that, and each program makes it
where it needs it, unless that is much: then each makes its own part, and shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton import policy as numbers
from jaxpr2triton.errors import Mistake, Reason, WhyNot
from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var, made
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.ir.scans import LOOPS, Scan, body_of_loop, scan_of, scanned
from jaxpr2triton.plan.decisions import Decisions, Leave, Reach, Refuse, Split, Wish
from jaxpr2triton.plan.partition.keeping import Copies
from jaxpr2triton.plan.partition.sources import note_source
from jaxpr2triton.plan.partition.spread_steps import NotSpread, Step, Value
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.policy import Policy


def split_of(eqn: Eqn, policy: Policy) -> Split | None:
    """How a loop is best shared out; None where it is not: no class of what it carries is long and held."""
    scan = scan_of(eqn)
    if policy.target.backend != "cuda":
        return None  # what one wave releases need not cover what others have stored
    if scan.conditional and scan.carries[0][1].aval.shape:
        return None  # lanes end one by one, and programs with them
    facts = _known_of(scan)
    if facts is None:
        return None
    carried = [before for _, before, _, _ in scan.carries]
    most = policy.target.processors
    found = []
    for kind in facts.held & facts.carried:
        size = facts.sizes[kind]
        programs = max((p for p in range(1, min(most, size) + 1) if size % p == 0), default=1)
        own = sum(_part(facts.of(var), kind[0], programs, var.aval.size) for var in carried)
        if not kind[1] and programs >= numbers.COMMON.programs_that_meet and own <= policy.carried:
            place = _place(carried, facts.of, kind[0])
            found.append((own, place[1], Split(place, size, programs)))  # rows before columns: neighbours stay together
    return min(found, key=lambda each: each[:2], default=(0, 0, None))[2]


def _known_of(scan: Scan) -> LoopFacts | None:
    """What is known of a loop; None where a loop in it makes what is read at too many places."""
    try:
        return facts_of(scan)
    except TooManyPlaces:
        return None


def _part(kinds: Sequence[Kind], of_class: Hashable, programs: int, size: int) -> float:
    return size / programs if any(kind == of_class for kind, _ in kinds) else size


def _place(carried: Sequence[Var], kinds: Callable[[Var], Sequence[Kind]], of_class: Hashable) -> tuple[int, int]:
    """Which of the carried values has a dimension of this class, and which dimension that is."""
    pairs = ((p, d) for p, var in enumerate(carried) for d, kind in enumerate(kinds(var)) if kind[0] == of_class)
    return next(pairs)


@dataclass
class Spreads:
    """The loops of one program that are spread, each written again once for each way to split it."""

    copies: Copies
    made: dict[tuple[int, Split], tuple[Eqn, list[Eqn] | None]] = field(default_factory=dict)
    sources: dict[int, int] = field(default_factory=dict)  # bodies of loops that are spread → those they come from
    programs: dict[tuple[object, ...], tuple[Closed, Closed]] = field(default_factory=dict)
    unspread: dict[int, Reason] = field(default_factory=dict)  # why those would have stayed with XLA

    def may_be(self, eqn: Eqn, policy: Policy) -> Split | None:
        """How a loop is shared out, if it can be."""
        split = split_of(eqn, policy)
        return split if split is not None and self._again(eqn, split) is not None else None

    def written_out(self, closed: Closed, decisions: Decisions) -> Closed:
        """The program with these loops written again; those that are refused are as they were."""
        splits = {body: split for body, split in decisions.spread.items() if body not in decisions.refused}
        if not splits or decisions.reach is not Reach.ALL:
            return closed
        key = id(closed), tuple(splits.items())
        if key not in self.programs:
            eqns: list[Eqn] = []
            for eqn in closed.jaxpr.eqns:
                split = splits.get(body_of(eqn)) if eqn.primitive.name in LOOPS else None
                again = None if split is None else self._again(eqn, split)
                eqns += [eqn] if again is None else again
            self.programs[key] = closed, build.with_equations(closed, eqns)
        return self.programs[key][1]

    def of_sources(self, wish: Wish) -> Wish:
        """The same wish about the loops of the program as it was; why they are not spread comes after all else."""
        if isinstance(wish, Refuse | Leave):
            return replace(wish, loops=dict(starmap(self._of_source, wish.loops.items())))
        return wish

    def _of_source(self, body: int, why: Reason) -> tuple[int, Reason]:
        first = self.copies.body(body)
        source = self.sources.get(first, body)
        before = self.unspread.get(source)
        if source == body or before is None or isinstance(why, Mistake):
            return source, why
        return source, WhyNot(f"{before}; spread over processors, {why}", getattr(why, "takes", ""))

    def _again(self, eqn: Eqn, split: Split) -> list[Eqn] | None:
        key = id(eqn), split
        if key not in self.made:
            eqns = spread_loop(eqn, split, numbers.COMMON.made_again_elsewhere)
            if _is_crowded(eqns):  # then more is shown
                eqns = spread_loop(eqn, split, numbers.COMMON.read_in_a_step)
            eqns = None if _is_crowded(eqns) else eqns
            self.made[key] = eqn, eqns
            for each in eqns or ():
                if each.primitive.name in LOOPS:
                    self.sources[body_of(each)] = body_of(eqn)
        return self.made[key][1]


def _is_crowded(eqns: Sequence[Eqn] | None) -> bool:
    """Whether a step would keep what it makes, to read it at many places: no program has all of it."""
    known = [_known_of(scan_of(each)) for each in eqns or () if each.primitive.name in LOOPS]
    return any(facts is None or facts.crowded for facts in known)


def spread_loop(eqn: Eqn, split: Split, most: float) -> list[Eqn] | None:
    """The equations in place of a loop: it carries parts, which are put together again; None if it cannot be.

    What takes more than `most` instructions is not made again where it is wanted elsewhere.
    """
    step = Step(scan_of(eqn), split, most)
    try:
        traced = made(jax.make_jaxpr(lambda *args: _loop_again(eqn, step, args))(*(atom.aval for atom in eqn.invars)))
    except NotSpread:
        return None
    standing: dict[Var, Atom] = dict(zip(traced.jaxpr.invars, eqn.invars))
    results = {var: out for var, out in zip(traced.jaxpr.outvars, eqn.outvars) if not isinstance(var, Literal)}
    if traced.consts or len(results) < len(eqn.outvars) or not step.shows or not results.keys().isdisjoint(standing):
        return None
    eqns = []
    for each in traced.jaxpr.eqns:
        outvars = [results.get(var, var) for var in each.outvars]
        eqns.append(build.in_place_of(eqn, each, [build.now(atom, standing) for atom in each.invars], outvars))
        if each.primitive.name in LOOPS:
            note_source(each, eqn)
    return eqns


def _loop_again(eqn: Eqn, step: Step, args: Sequence[Value]) -> list[Value]:
    """The loop over parts; its last carried value says whose turn it is of two buffers."""
    body = body_of_loop(eqn)
    starts = [*map(step.apart, step.carried_dims, body.inits(args)), np.int32(0)]
    fixed = body.fixed(args)
    if eqn.primitive.name == "scan":

        def one(carried: Sequence[Value], xs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
            return step.run(fixed, carried, xs)

        after, ys = scanned(eqn.params, one, [jnp.asarray(start) for start in starts], body.stacked(args))
    else:
        consts = args[: body.num_consts]

        def again(*values: Value) -> list[Value]:
            return step.run(body.fixed(values), values[body.num_consts :], ())[0]

        inner = made(jax.make_jaxpr(again)(*map(jax.typeof, (*consts, *starts))))
        after = repeat_p.bind(*consts, *starts, **{**eqn.params, "jaxpr": inner})
        ys = ()
    whole = [step.together(dim, value, 0) for dim, value in zip(step.carried_dims, after)]
    return [*whole, *(step.together(dim, y, 1) for dim, y in zip(step.put_out_dims, ys))]
