"""What no other carried value has a part in, as the numbers that a step draws → made one step ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jaxpr2triton import policy
from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Literal, Var, elements
from jaxpr2triton.ir.scans import LOOPS, Body, body_of_loop, put
from jaxpr2triton.normalize.loops.again import loop_again
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite_planned
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

Causes = Mapping[Var, frozenset[Var] | None]  # carried values; None where a step reads something else, or does


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
    read = set(evaluate.variables([*closed.jaxpr.outvars, *(atom for eqn in closed.jaxpr.eqns for atom in eqn.invars)]))
    return rewrite_planned(closed, LOOPS, lambda eqn: _plan_of(eqn, read), _rebuilt)


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
    if eqn.effects or any(varies_over_mesh(atom.aval) for atom in eqn.invars):
        return None
    if eqn.primitive.name == "scan" and eqn.params["length"] < numbers.steps_worth_ahead:
        return None
    body = body_of_loop(eqn)
    causes = _causes(body)
    ahead = _long_ahead(body, causes, is_ended=eqn.primitive.name != "scan")
    if not ahead:
        return None
    early = _made_of(causes, ahead)
    late, asked = _rest(body, early)
    results = [var for var, result in zip(body.befores, eqn.outvars) if var in ahead and result in read]
    drawn = tuple(dict.fromkeys([*asked, *_handed_on(body, early, ahead), *results]))
    sizes = [elements(var) for var in body.befores if var not in ahead]
    is_little = sum(map(elements, drawn)) <= numbers.times * sum(sizes)
    is_waited_for = max(waits_of(late).values(), default=0) >= numbers.worth_ahead
    if not is_little or not is_waited_for or max(sizes) > numbers.lanes_of_steps:
        return None
    return Plan(body, tuple(place for place, var in enumerate(body.befores) if var in ahead), drawn)


def _long_ahead(body: Body, causes: Causes, is_ended: bool) -> set[Var]:
    """The carried values that lead a life of their own, and to what takes long and the rest of a step reads."""
    sources = _sources(body, causes, is_ended)
    waits = waits_of(body.jaxpr.eqns)
    _, asked = _rest(body, _made_of(causes, sources))
    long = [causes[var] or () for var in asked if waits[var] >= policy.COMMON.worth_ahead]
    return {other for carried in long for one in carried for other in sources[one]}


def _handed_on(body: Body, early: Collection[Var], ahead: Collection[Var]) -> list[Var]:
    """What is made early and becomes a carried value as it is."""
    others = [after for var, after in zip(body.befores, body.afters) if var not in ahead]
    return [var for var in evaluate.variables(others) if var in early]


def _made_of(causes: Causes, carried: Collection[Var]) -> set[Var]:
    return {var for var, found in causes.items() if found and all(each in carried for each in found)}


def _rest(body: Body, early: Collection[Var]) -> tuple[list[Eqn], list[Var]]:
    """The other equations of a step, and what they read, or the step puts out, of what is made early."""
    there = {*early, *body.invariants()}
    late = [eqn for eqn in body.jaxpr.eqns if not there.issuperset(eqn.outvars)]
    asked = evaluate.variables([*(atom for eqn in late for atom in eqn.invars), *body.ys])
    return late, [var for var in dict.fromkeys(asked) if var in early]


def _causes(body: Body) -> Causes:
    """The carried values that each value is made of."""
    found: dict[Var, frozenset[Var] | None] = dict.fromkeys(body.consts, frozenset())
    found |= {var: frozenset((var,)) for var in body.befores} | dict.fromkeys(body.xs)
    for eqn in body.jaxpr.eqns:
        of = [found[var] for var in evaluate.variables(eqn.invars)]
        known = [each for each in of if each is not None]
        is_known = len(known) == len(of) and does_again(eqn)
        found.update(dict.fromkeys(eqn.outvars, frozenset().union(*known) if is_known else None))
    return found


def _sources(body: Body, causes: Causes, is_ended: bool) -> dict[Var, frozenset[Var]]:
    """The carried values that are made of each other and of nothing else that is carried, each with those."""
    carried = dict(zip(body.befores, body.afters))
    ends = frozenset(body.befores[:1]) if is_ended else frozenset()  # says whether there is another step
    behind: dict[Var, frozenset[Var]] = {}
    for before in (var for var in body.befores if var not in ends):
        found, waiting = {before}, [before]
        while waiting:
            after = carried[waiting.pop()]
            more = frozenset() if isinstance(after, Literal) else causes[after]
            if more is None or more & ends:
                break
            waiting += more - found
            found |= more
        else:
            behind[before] = frozenset(found)
    return {var: found for var, found in behind.items() if all(behind.get(other) == found for other in found)}


def waits_of(eqns: Iterable[Eqn]) -> defaultdict[Var, float]:
    """The instructions on the longest way to each value, which wait for each other; as if lanes met twice at most."""
    found: defaultdict[Var, float] = defaultdict(float)
    for eqn in eqns:
        row = TABLE.get(eqn.primitive.name)
        own = row.weight if isinstance(row, Pointwise) else 0 if does_again(eqn) else policy.COMMON.worth_ahead / 2
        longest = max((found[var] for var in evaluate.variables(eqn.invars)), default=0)
        found.update(dict.fromkeys(eqn.outvars, longest + own))
    return found


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
