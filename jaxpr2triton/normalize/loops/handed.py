"""What a step computes of what it hands on, and the next one computes again of the same → a carried value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir import build, evaluate
from jaxpr2triton.ir.cheapest import cheapest_of_step
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var, elements, nbytes
from jaxpr2triton.ir.scans import LOOPS, Body, body_of_loop, scan_of
from jaxpr2triton.normalize.calls.sharing import STATEFUL, equality
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import loop_again, rewrite_loops
from jaxpr2triton.normalize.rewrite import (
    Node,
    Rewriter,
    Value,
    is_plain,
)
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.dims import dims_of
from jaxpr2triton.rules.indexing import MOVES
from jaxpr2triton.rules.rows import TABLE


def hand_on(closed: Closed) -> Closed:
    """Let a loop carry what a step computes at its end and the next one at its beginning.

        x, v = scan (λ x v. let u = v + f x; y = x + u in (y, u + f y)) x0 v0
            →    x, v, _ = scan (λ x v g. let u = v + g; y = x + u; h = f y in (y, u + h, h)) x0 v0 (f x0)

    So a leapfrog step takes one gradient in place of two, and a Runge-Kutta method whose last stage is the first one of
    the next step takes one less. That holds of what is computed of carried values and of what no step changes, if the
    step computes the very same of what it carries on. Where it chooses between the old values and others, the carried
    value is chosen alike. What is carried is as little as the rest can be computed from with moves and cheap
    arithmetic. Left alone: what is worth less than the numbers that would be carried; loops with effects.
    """
    return rewrite_loops(closed, LOOPS, _plan_of, _rebuilt)


@dataclass(frozen=True)
class Choice:
    """A flag by which a carried value stays as it was, and along which dimensions of the value it lies."""

    flag: Var
    old: int  # which case of the choice that is
    places: tuple[int, ...]


@dataclass(frozen=True)
class Later:
    """What a value of this step is for the next one: `now`, unless one of the choices leaves it as it was."""

    now: Atom
    choices: tuple[Choice, ...] = ()

    @property
    def read(self) -> list[Atom]:
        return [self.now, *(choice.flag for choice in self.choices)]


@dataclass(frozen=True)
class Plan:
    body: Body
    handed: Mapping[Var, Later]  # what a step begins with, and what it is for the next step

    @property
    def targets(self) -> list[Atom]:
        """What a step has to compute."""
        return [*self.body.afters, *self.body.ys, *(atom for later in self.handed.values() for atom in later.read)]


def _plan_of(eqn: Eqn) -> Plan | None:
    body = body_of_loop(eqn)
    again: dict[Var, Later] = {}
    for carried in _chosen_alike(body):
        again.update(_computed_again(body, carried))
    if not again:
        return None
    plan = Plan(body, {var: again[var] for var in _to_carry(body, again)})
    return plan if plan.handed and _is_worth_it(plan) else None


def _chosen_alike(body: Body) -> Iterator[dict[Var, Later]]:
    """What carried values are for the next step: those that the same flags leave as they were, together; then all."""
    makers = body.dependences.definitions
    groups: dict[tuple[tuple[Var, int], ...], dict[Var, Later]] = {}
    for before, after in zip(body.befores, body.afters):
        later = _peeled(before, after, makers)
        groups.setdefault(tuple((each.flag, each.old) for each in later.choices), {})[before] = later
    yield from (group for flags, group in groups.items() if flags)
    yield {before: Later(after) for before, after in zip(body.befores, body.afters)}


def _peeled(before: Var, after: Atom, makers: Mapping[Var, Eqn]) -> Later:
    """c = select_n (broadcast_in_dim p) a b, where a was carried   →   b, unless p is False"""
    choices: list[Choice] = []
    while (eqn := _maker(after, makers)) is not None and eqn.primitive.name == "select_n" and len(eqn.invars) == 3:
        flag, *cases = eqn.invars
        if isinstance(flag, Literal) or before not in cases:
            break
        places = tuple(range(len(flag.aval.shape)))
        while (spread := _maker(flag, makers)) is not None and spread.primitive.name == "broadcast_in_dim":
            if isinstance(spread.invars[0], Literal) or not _is_whole(spread):
                break
            flag = spread.invars[0]
            places = tuple(places[place] for place in spread.params["broadcast_dimensions"])
        old = cases.index(before)
        choices.append(Choice(flag, old, places))
        after = cases[1 - old]
    return Later(after, tuple(choices))


def _maker(atom: Atom, makers: Mapping[Var, Eqn]) -> Eqn | None:
    return None if isinstance(atom, Literal) else makers.get(atom)


def _is_whole(spread: Eqn) -> bool:
    """Whether no dimension of size 1 grows."""
    places, shape = spread.params["broadcast_dimensions"], spread.outvars[0].aval.shape
    return all(size == shape[place] for size, place in zip(spread.invars[0].aval.shape, places))


def _computed_again(body: Body, carried: Mapping[Var, Later]) -> Iterator[tuple[Var, Later]]:
    """What a step computes of these carried values only, and the same of what it carries on, if it computes that, too.

    Found equation by equation: one is computed again if there is an equal one that reads, in the place of each of its
    operands, what is this operand for the next step.
    """
    there = {var: Later(var) for var in body.dependences.invariant} | dict(carried)
    now = {var: later.now for var, later in there.items()}
    known = {key: eqn for eqn in body.jaxpr.eqns if _is_pure(eqn) and (key := equality(eqn)) is not None}
    for eqn in body.jaxpr.eqns:
        if not _is_pure(eqn) or not all(var in there for var in evaluate.variables(eqn.invars)):
            continue
        key = equality(build.reading(eqn, now))
        same = None if key is None else known.get(key)
        choices = None if same is None else _choices_of(eqn, there)
        if same is None or choices is None:
            continue
        later = {var: Later(atom, choices) for var, atom in zip(eqn.outvars, same.outvars)}
        there.update(later)
        now.update(zip(eqn.outvars, same.outvars))
        if same is not eqn:
            yield from later.items()


def _choices_of(eqn: Eqn, there: Mapping[Var, Later]) -> tuple[Choice, ...] | None:
    """By what the results are chosen, if their elements along a flag are made of operands at the same ones."""
    read = [(n, there[atom].choices) for n, atom in enumerate(eqn.invars) if not isinstance(atom, Literal)]
    chosen = [(n, choices) for n, choices in read if choices]
    if not any(choice.places for _, choices in chosen for choice in choices):
        return chosen[0][1] if chosen else ()
    dims = dims_of(eqn)
    kept = {(each.operand, each.dim): each.place for each in dims.kept if each.exact} if dims is not None else {}
    moved = {
        tuple(replace(each, places=tuple(kept.get((n, d), -1) for d in each.places)) for each in choices)
        for n, choices in chosen
    }
    if len(moved) > 1:
        return None
    (choices,) = moved
    return choices if all(_is_rising(choice.places) for choice in choices) else None


def _is_rising(places: Sequence[int]) -> bool:
    return all(place >= 0 for place in places) and all(one < other for one, other in pairwise(places))


def _is_pure(eqn: Eqn) -> bool:
    plain = all(is_plain(atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars))
    return plain and not eqn.effects and eqn.primitive.name not in STATEFUL


def _to_carry(body: Body, again: Mapping[Var, Later]) -> tuple[Var, ...]:
    """The fewest bytes from which moves and cheap arithmetic lead to all that is read besides."""
    others = (eqn for eqn in body.jaxpr.eqns if again.keys().isdisjoint(eqn.outvars))
    read = evaluate.read_by(others, body.jaxpr.outvars)
    there = {*body.befores, *body.dependences.invariant}

    def cost(var: Var) -> int:
        return 0 if var in there else nbytes(var) or 1

    asked = dict.fromkeys(var for var in read if var in again)
    found = cheapest_of_step(body, asked, cost, lambda var, eqn: var in again and _is_cheap(eqn))
    return tuple(var for var in found if var in again)


def _is_cheap(eqn: Eqn) -> bool:
    row = TABLE.get(eqn.primitive.name)
    return does_again(eqn) and not (isinstance(row, Pointwise) and row.flops >= policy.COMMON.worth_carrying)


def _is_worth_it(plan: Plan) -> bool:
    """Whether a step saves enough operations for each number that it carries besides."""
    before, after = (_work(evaluate.needed(plan.body.jaxpr.eqns, plan.targets, given)) for given in ((), plan.handed))
    return before - after >= policy.COMMON.worth_carrying * sum(map(elements, plan.handed))


def _work(eqns: Iterable[Eqn]) -> int:
    return sum(map(_operations, eqns))


def _operations(eqn: Eqn) -> int:
    """How many of one number, about."""
    name, row = eqn.primitive.name, TABLE.get(eqn.primitive.name)
    result = sum(map(elements, eqn.outvars))
    if name in MOVES:
        return 0
    if name in LOOPS:
        scan = scan_of(eqn)
        return scan.length * _work(scan.body.eqns)
    if name == "dot_general":
        return 2 * result * terms_of(eqn)
    return result * row.flops if isinstance(row, Pointwise) else max([result, *map(elements, eqn.invars)])


def _rebuilt(node: Node, plan: Plan, rewriter: Rewriter) -> list[Value]:
    body = plan.body
    first = {**body.fixed(node.args), **dict(zip(body.befores, body.inits(node.args)))}
    evaluate.run(evaluate.needed(body.jaxpr.eqns, plan.handed, first), first)
    start = [*body.inits(node.args), *(first[var] for var in plan.handed)]
    after, ys = loop_again(node, body, rewriter, start, partial(_step, plan))
    return [*after[: body.num_carry], *ys]


def _step(
    plan: Plan, fixed: Mapping[Var, Value], before: Sequence[Value], x: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    body = plan.body
    env = {**fixed, **dict(zip([*body.befores, *plan.handed], before)), **dict(zip(body.xs, x))}
    evaluate.run(evaluate.needed(body.jaxpr.eqns, plan.targets, plan.handed), env)
    after = [evaluate.read(env, atom) for atom in body.afters]
    after += [_chosen(env, var, later) for var, later in plan.handed.items()]
    return after, [evaluate.read(env, atom) for atom in body.ys]


def _chosen(env: dict[Var, Value], var: Var, later: Later) -> Value:
    value = evaluate.read(env, later.now)
    for choice in reversed(later.choices):
        flag = lax.broadcast_in_dim(env[choice.flag], var.aval.shape, choice.places)
        value = lax.select_n(flag, *((env[var], value) if choice.old == 0 else (value, env[var])))
    return value
