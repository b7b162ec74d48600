"""What no other carried value has a part in, as the numbers that a step draws → made one step ahead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import computable
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var, elements
from jaxpr2triton.ir.scans import LOOPS, Body, body_of_loop, put
from jaxpr2triton.normalize.loops.critical_path import waits_of
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import loop_again, rewrite_loops
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value


def make_ahead(closed: Closed) -> Closed:
    """Let each step make what the next one needs of values that lead a life of their own.

        k, x = scan (λ k x. let l, s = split k; n = normal s in (l, f x n)) k0 x0
            →    let l0, s = split k0; n0 = normal s
                 _, x, _ = scan (λ l x n. let m, s = split l; o = normal s in (m, f x n, o)) l0 x0 n0

    A thread then has two things to do that do not wait for each other, where before one followed the other. The last
    step makes something for nobody. Left alone: what is soon made, or hardly waited for; what would be many more
    numbers than the loop carries; loops of few steps, or that read what they need for it step by step; loops with so
    many lanes that others have something to do anyway.
    """
    read = set(evaluate.read_by(closed.jaxpr.eqns, closed.jaxpr.outvars))
    return rewrite_loops(closed, LOOPS, lambda eqn: _plan_of(eqn, read), _rebuilt)


@dataclass(frozen=True)
class Plan:
    body: Body
    places: tuple[int, ...]  # of the carried values that run ahead
    drawn: tuple[Var, ...]  # what is made of them for the rest of a step

    @property
    def ahead(self) -> list[Var]:
        return [self.body.befores[place] for place in self.places]


def _plan_of(eqn: Eqn, read: Collection[Var]) -> Plan | None:
    numbers = policy.COMMON
    if eqn.primitive.name == "scan" and eqn.params["length"] < numbers.steps_worth_ahead:
        return None
    body = body_of_loop(eqn)
    own = _own(body)
    places = _long_ahead(body, own, is_ended=eqn.primitive.name != "scan")
    if not places:
        return None
    early, ahead = _made_of(body, own, places), [body.befores[place] for place in places]
    late, asked = _rest(body, early)
    results = [var for var, result in zip(body.befores, eqn.outvars) if var in ahead and result in read]
    drawn = tuple(dict.fromkeys([*asked, *_handed_on(body, early, ahead), *results]))
    sizes = [elements(var) for var in body.befores if var not in ahead]
    is_little = sum(map(elements, drawn)) <= numbers.times * sum(sizes)
    is_waited_for = max(waits_of(late).values(), default=0) >= numbers.worth_ahead
    if not is_little or not is_waited_for or max(sizes) > numbers.lanes_of_steps:
        return None
    return Plan(body, tuple(places), drawn)


def _long_ahead(body: Body, own: set[Var], is_ended: bool) -> list[int]:
    """The places of what leads a life of its own, and to what takes long and the rest of a step reads."""
    independent, waits = _independent(body, own, is_ended), waits_of(body.jaxpr.eqns)
    _, asked = _rest(body, _made_of(body, own, independent))
    long = [body.dependences.reached_by[var] for var in asked if waits[var] >= policy.COMMON.worth_ahead]
    return sorted({other for places in long for place in places for other in independent[place]})


def _handed_on(body: Body, early: Collection[Var], ahead: Collection[Var]) -> list[Var]:
    """What is made early and becomes a carried value as it is."""
    others = [after for var, after in zip(body.befores, body.afters) if var not in ahead]
    return [var for var in evaluate.variables(others) if var in early]


def _made_of(body: Body, own: Iterable[Var], places: Collection[int]) -> set[Var]:
    reached_by = body.dependences.reached_by
    return {var for var in own if reached_by[var] and reached_by[var].issubset(places)}


def _rest(body: Body, early: Collection[Var]) -> tuple[list[Eqn], list[Var]]:
    """The other equations of a step, and what they read, or the step puts out, of what is made early."""
    there = {*early, *body.dependences.invariant}
    late = [eqn for eqn in body.jaxpr.eqns if not there.issuperset(eqn.outvars)]
    asked = evaluate.variables([*(atom for eqn in late for atom in eqn.invars), *body.ys])
    return late, [var for var in dict.fromkeys(asked) if var in early]


def _own(body: Body) -> set[Var]:
    """What is made again of carried values and constants alone."""
    return computable(body.jaxpr.eqns, [*body.consts, *body.befores], does_again)


def _independent(body: Body, own: set[Var], is_ended: bool) -> dict[int, tuple[int, ...]]:
    """Each place of a recurrence that nothing else that is carried has a part in, with all of them."""
    found = body.dependences
    ends = {0} if is_ended else set[int]()  # says whether there is another step

    def is_independent(places: tuple[int, ...]) -> bool:
        made = own.issuperset(evaluate.variables(body.afters[place] for place in places))
        return made and ends.isdisjoint(places) and all(found.needs[place].issubset(places) for place in places)

    return {place: places for places in found.recurrences if is_independent(places) for place in places}


def _rebuilt(node: Node, plan: Plan, rewriter: Rewriter) -> list[Value]:
    body, starts = plan.body, plan.body.inits(node.args)
    first, drawn = _made(plan, body.fixed(node.args), [starts[place] for place in plan.places])
    carried = [*put(starts, plan.places, first), *drawn]
    after, ys = loop_again(node, body, rewriter, carried, partial(_step, plan))
    return [*_results(plan, after), *ys]


def _step(
    plan: Plan, fixed: Mapping[Var, Value], before: Sequence[Value], x: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """What was drawn is used, and what the next step needs is drawn."""
    body = plan.body
    env = body.with_invariants(fixed)
    later, drawn = _made(plan, env, [before[place] for place in plan.places])
    others = [place for place in range(body.num_carry) if place not in plan.places]
    env.update((body.befores[place], before[place]) for place in others)
    env.update(zip(plan.drawn, before[body.num_carry :]))
    env.update(zip(body.xs, x))
    afters = [body.afters[place] for place in others]
    evaluate.run(evaluate.needed(body.jaxpr.eqns, [*afters, *body.ys], env), env)
    carried = put(body.afters, others, [evaluate.read(env, after) for after in afters])
    return [*put(carried, plan.places, later), *drawn], [evaluate.read(env, atom) for atom in body.ys]


def _made(plan: Plan, fixed: Mapping[Var, Value], ahead: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """What those that run ahead are a step later, and what is drawn for this one."""
    env = {**fixed, **dict(zip(plan.ahead, ahead))}
    afters = [plan.body.afters[place] for place in plan.places]
    evaluate.run(evaluate.needed(plan.body.jaxpr.eqns, [*afters, *plan.drawn], env), env)
    return [evaluate.read(env, after) for after in afters], [env[var] for var in plan.drawn]


def _results(plan: Plan, after: Sequence[Value]) -> list[Value]:
    """Those that run ahead are one step too far; if anybody reads them, they have been drawn as well."""
    drawn = dict(zip(plan.drawn, after[plan.body.num_carry :]))
    carried = after[: plan.body.num_carry]
    return [drawn.get(var, value) for var, value in zip(plan.body.befores, carried)]
