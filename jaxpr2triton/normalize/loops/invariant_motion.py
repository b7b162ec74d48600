"""Loops in the step of another one, and parts of them, that are the same in each of its steps → before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.cheapest import cheapest_of_step
from jaxpr2triton.ir.dataflow import computable
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var, made, nbytes
from jaxpr2triton.ir.scans import LOOPS, UNKNOWN, Body, apart, body_of, body_of_loop, scanned
from jaxpr2triton.normalize.loops.affine import groups_of
from jaxpr2triton.normalize.loops.critical_path import longest
from jaxpr2triton.normalize.loops.distribute import run_stage
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.normalize.loops.sweep import is_swept
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value
from jaxpr2triton.rules.indexing import MOVES


def move_invariant_loops(closed: Closed) -> Closed:
    """Take out of a loop the loops that none of its steps changes, and of others what they carry for itself.

        y = scan (λ y. let _, _, ds = scan (λ c d x. let c' = 1 / (b - c); d' = (x - d) * c' in (c', d', d')) 0 0 y
                       in ds) y0
            →    _, cs = scan (λ c. let c' = 1 / (b - c) in (c', c')) 0
                 y = scan (λ y. let _, ds = scan (λ d x c'. let d' = (x - d) * c' in (d', d')) 0 y cs in ds) y0

    What is carried goes along if it is made of nothing but itself and what the loop around is given. The rest reads the
    fewest bytes that it can be made of with moves. Left alone: where all steps together wait no less than as long as
    one more kernel takes, and what is written and read for that; a `repeat` in a step; loops with effects.
    """
    return rewrite_loops(closed, LOOPS, _plan_of, _rebuilt)


@dataclass(frozen=True)
class Motion:
    """What of a loop in a body comes before the loop around it."""

    eqn: Eqn
    body: Body
    places: tuple[int, ...]  # of what is carried
    ys: tuple[int, ...]  # positions of what is put out
    shown: tuple[Var, ...] = ()  # what the rest of a step reads of it

    @property
    def moved(self) -> list[Atom]:
        """What its steps carry on, put out and show."""
        afters, ys = self.body.afters, self.body.ys
        return [*(afters[place] for place in self.places), *(ys[position] for position in self.ys), *self.shown]

    @property
    def results(self) -> list[Var]:
        """What of this is known outside."""
        positions = [self.body.num_carry + position for position in self.ys]
        return [self.eqn.outvars[place] for place in (*self.places, *positions)]

    @property
    def left(self) -> list[int]:
        """The places of what else is carried."""
        return [place for place in range(self.body.num_carry) if place not in self.places]

    @property
    def rest(self) -> list[Atom]:
        """What the steps of the rest carry on and put out."""
        ys = [atom for position, atom in enumerate(self.body.ys) if position not in self.ys]
        return [*(self.body.afters[place] for place in self.left), *ys]

    def operands(self) -> dict[Var, Atom]:
        """What the moved part needs of the body around, by the variables of its own."""
        eqns = evaluate.needed(self.body.jaxpr.eqns, self.moved, ())
        read = {*evaluate.read_by(eqns, self.moved), *(self.body.befores[place] for place in self.places)}
        return {var: atom for var, atom in zip(self.body.jaxpr.invars, self.eqn.invars, strict=True) if var in read}


@dataclass(frozen=True)
class Plan:
    body: Body
    motions: tuple[Motion, ...]  # each after those that it reads


def _plan_of(eqn: Eqn) -> Plan | None:
    body, motions = body_of_loop(eqn), list[Motion]()
    times = eqn.params["length"] if eqn.primitive.name == "scan" else UNKNOWN
    given = set(body.consts)
    for each in body.jaxpr.eqns:
        if each.effects:
            continue
        motion = _motion_of(each, given) if each.primitive.name == "scan" else None
        if motion is not None and _saved(motion, times) > 0:
            motions.append(motion)
            given.update(motion.results)
        elif given.issuperset(evaluate.variables(each.invars)):
            given.update(each.outvars)
    return Plan(body, tuple(motions)) if motions else None


def _motion_of(eqn: Eqn, given: set[Var]) -> Motion | None:
    """What a loop carries that is made of what is given and itself, and what it puts out of that."""
    body = body_of(eqn.params)
    known = [isinstance(atom, Literal) or atom in given for atom in eqn.invars]
    outside = {*body.jaxpr.constvars, *(var for var, is_known in zip(body.jaxpr.invars, known) if is_known)}
    still = computable(body.jaxpr.eqns, outside.difference(body.befores))
    places = [place for place, before in enumerate(body.befores) if before in outside]
    while True:
        found = computable(body.jaxpr.eqns, {*still, *(body.befores[place] for place in places)})
        fewer = [place for place in places if _is_among(body.afters[place], found - still)]
        if fewer == places:
            break
        places = fewer
    if not places:
        return None
    run = found - still
    ys = tuple(position for position, atom in enumerate(body.ys) if _is_among(atom, run))
    motion = Motion(eqn, body, tuple(places), ys)
    return replace(motion, shown=_shown(motion, run))


def _is_among(atom: Atom, variables: set[Var]) -> bool:
    return not isinstance(atom, Literal) and atom in variables


def _shown(motion: Motion, run: set[Var]) -> tuple[Var, ...]:
    """The fewest bytes of what is moved of which the rest can be made with moves."""
    body = motion.body
    read = set(evaluate.read_by(evaluate.needed(body.jaxpr.eqns, motion.rest, run), motion.rest))
    put_out = {body.ys[position] for position in motion.ys}

    def cost(var: Var) -> int:
        return 0 if var in put_out else nbytes(var)

    asked = [var for var in body.dependences.reached_by if var in read & run]
    found = cheapest_of_step(body, asked, cost, lambda _, eqn: eqn.primitive.name in MOVES)
    return tuple(var for var in found if var in run)


def _saved(motion: Motion, times: int) -> float:
    """The instructions that all steps wait less for each other, beyond what one more kernel and its results cost.

    Where the rest alone is affine, combined in tiles once XLA runs the loop around it, its steps do not wait at all.
    """
    numbers, eqns = policy.COMMON, motion.body.jaxpr.eqns
    before = longest(eqns, [*motion.body.afters, *motion.body.ys])
    after = longest(evaluate.needed(eqns, motion.rest, motion.shown), motion.rest)
    affine = {place for places, each in groups_of(motion.body) if each is not None for place in places}
    if motion.rest and not affine.issuperset(motion.places) and is_swept(_equation_of_rest(motion), _as_it_is):
        after = 0
    a_step = before - after - nbytes(*motion.shown) / numbers.bytes_of_a_wait
    return a_step * motion.eqn.params["length"] * (times - 1) - numbers.waits_of_a_kernel


def _as_it_is(body: Closed) -> Closed:
    return body


def _equation_of_rest(motion: Motion) -> Eqn:
    """The loop that is left."""
    length = motion.eqn.params["length"]
    shown = [jax.ShapeDtypeStruct((length, *var.aval.shape), var.aval.dtype) for var in motion.shown]
    avals = [[atom.aval for atom in motion.eqn.invars], shown, [var.aval for var in motion.results]]

    def rest(args: Sequence[Value], shown: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        return _rest(motion, shown, args, dict(zip(motion.results, results)))

    closed = made(jax.make_jaxpr(rest)(*avals))
    return next(eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")


def _rebuilt(node: Node, plan: Plan, rewriter: Rewriter) -> list[Value]:
    body, number = plan.body, plan.body.num_consts
    outside = body.fixed(node.args)
    shown = list[Value]()
    for motion in plan.motions:
        operands = motion.operands()
        evaluate.run(evaluate.needed(body.jaxpr.eqns, operands.values(), outside), outside)
        found = _before(motion, {var: evaluate.read(outside, atom) for var, atom in operands.items()})
        outside.update(zip(motion.results, found))
        shown += found[len(motion.results) :]
    known = [var for motion in plan.motions for var in motion.results]
    moved = [*(outside[var] for var in known), *shown]

    def step(moved: Sequence[Value], fixed: Mapping[Var, Value], others: Sequence[Value]) -> list[Value]:
        env = {**fixed, **dict(zip([*body.befores, *body.xs], others, strict=True)), **dict(zip(known, moved))}
        of_all = iter(moved[len(known) :])
        seen = {id(motion.eqn): (motion, [next(of_all) for _ in motion.shown]) for motion in plan.motions}

        def rest(eqn: Eqn, values: list[Value]) -> list[Value] | None:
            return _rest(*seen[id(eqn)], values, env) if id(eqn) in seen else None

        evaluate.run(body.jaxpr.eqns, env, rest)
        return [evaluate.read(env, atom) for atom in body.jaxpr.outvars]

    if node.name == "scan":
        fixed = body.fixed(node.args)
        after, ys = scanned(
            node.params,
            lambda carried, x: apart(step(moved, fixed, [*carried, *x]), body.num_carry),
            body.inits(node.args),
            body.stacked(node.args),
        )
        return [*after, *ys]

    def of_repeat(*args: Value) -> list[Value]:
        given = args[len(moved) :]
        return step(args[: len(moved)], body.fixed(given), given[number:])

    args = (*moved, *node.args)
    inner = made(jax.make_jaxpr(of_repeat)(*map(jax.typeof, args)))
    params = {**node.params, "jaxpr": inner, "num_consts": len(moved) + number}
    return rewriter.again(Node(node.primitive, params, args, tuple(inner.out_avals)))


def _before(motion: Motion, given: Mapping[Var, Value]) -> list[Value]:
    """What is carried for itself in the end; then, of all steps, what is put out, and shown to the rest."""
    body, params = motion.body, motion.eqn.params
    fixed = {**dict(zip(body.jaxpr.constvars, body.closed.consts)), **given}
    there = {var: given[var] for var in body.xs if var in given}
    starts, shown = [given[body.befores[place]] for place in motion.places], motion.moved[len(motion.places) :]
    after, ys = run_stage(params, body, motion.places, shown, fixed, starts, there)
    return [*after, *ys]


def _rest(motion: Motion, shown: Sequence[Value], args: Sequence[Value], there: Mapping[Var, Value]) -> list[Value]:
    """The results of a loop of which a part has been moved; these are there."""
    body, params = motion.body, motion.eqn.params
    results = {var: there[var] for var in motion.results}
    if motion.rest:
        starts, ys = [body.inits(args)[place] for place in motion.left], motion.rest[len(motion.left) :]
        stacked = dict(zip([*body.xs, *motion.shown], [*body.stacked(args), *shown]))
        after, found = run_stage(params, body, motion.left, ys, body.fixed(args), starts, stacked)
        results.update(zip((var for var in motion.eqn.outvars if var not in results), [*after, *found]))
    return [results[var] for var in motion.eqn.outvars]
