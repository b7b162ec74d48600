"""Contractions in a loop that no step has to wait for → one contraction before it, or after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from jaxpr2triton import policy
from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.cheapest import cheapest_of_step
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.dataflow import computable, made_of
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var, elements, nbytes
from jaxpr2triton.ir.scans import LOOPS, Body
from jaxpr2triton.normalize.arrays.sum_parts import sum_pieces
from jaxpr2triton.normalize.loops.deferral_choice import plan_of
from jaxpr2triton.normalize.loops.distribute import Stage, distribute
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import may_be_distributed, rewrite_loops
from jaxpr2triton.normalize.rewrite import Node, Value


def products_apart(closed: Closed, prepare: Callable[[Closed], Closed] = lambda body: body) -> Closed:
    """Take contractions out of a scan that depend on nothing it carries, or on which nothing that it carries depends.

        h, hs = scan (λ h x. let h' = tanh (sin x @ w + h @ u) in (h', h')) h0 xs
            →    zs = sin xs @ w;   h, hs = scan (λ h z. let h' = tanh (z + h @ u) in (h', h')) h0 zs

        dh, dxs = scan (λ dh h. let dz = dh * h in (dz @ uᵀ, dz @ wᵀ)) dh0 hs
            →    dh, dzs = scan (λ dh h. let dz = dh * h in (dz @ uᵀ, dz)) dh0 hs;   dxs = dzs @ wᵀ

    All steps at once are a product of matrices that programs share out, where a step has one row for each of its own;
    and the loop does not hold the weights. What leads to the operands goes along, and so does what is made of the
    results until it is put out; other than that operands are written as they are, for sums that are deferred may have
    the same ones (`defer.py`). `prepare` makes a body into one without transparent calls. Left alone: contractions of
    so few terms, in so few steps, that a launch takes longer; those whose factors are much larger than what they make;
    `while`, and scans with effects.
    """
    return rewrite_loops(
        closed, {"scan"}, lambda eqn: _plan_of(eqn, prepare), lambda node, plan, _: distributed(node, plan)
    )


@dataclass(frozen=True)
class Plan:
    body: Body
    before: tuple[Var, ...]  # results of contractions that are made for all steps before the loop
    sunk: tuple[int, ...]  # positions of ys that are made after it
    given: tuple[Var, ...]  # of what, besides what no step changes

    @property
    def stored(self) -> tuple[Var, ...]:
        """What the loop has to write for that."""
        there = {*self.body.xs, *self.before, *self._written}
        return tuple(var for var in self.given if var not in there)

    @property
    def kept(self) -> list[Atom]:
        """The ys that it goes on writing."""
        return [atom for position, atom in enumerate(self.body.ys) if position not in self.sunk]

    @property
    def _written(self) -> list[Var]:
        return evaluate.variables(self.kept)


def _plan_of(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> Plan | None:
    body, length = Body(prepare(eqn.params["jaxpr"]), *scan_counts_of(eqn.params)), eqn.params["length"]
    products = [each for each in body.jaxpr.eqns if each.primitive.name == "dot_general" and _is_much(each, length)]
    before = _before(body, products)
    after = not_waited_for(body, products, before)
    sunk, given = sunk_of(body, after, before, stacked=_stacked(body) if after else ())
    return Plan(body, before, sunk, given) if before or sunk else None


def _stacked(body: Body) -> tuple[Var, ...]:
    """What is written for the sake of sums that are taken after the loop (`defer.py`)."""
    deferred = plan_of(replace(body, closed=sum_pieces(body.closed)))
    made = body.dependences.definitions
    return tuple(root for root in deferred.stacks if root in made) if deferred is not None else ()


def left_of(eqn: Eqn) -> tuple[tuple[Eqn, frozenset[Var]], ...]:
    """The contractions of a scan without calls that would be taken out of it, and what no step changes."""
    plan = _plan_of(eqn, lambda body: body) if may_be_distributed(eqn) else None
    if plan is None:
        return ()
    products = [each for each in plan.body.jaxpr.eqns if each.primitive.name == "dot_general"]
    gone = {*plan.before, *(not_waited_for(plan.body, products, plan.before) if plan.sunk else ())}
    return tuple((each, plan.body.dependences.invariant) for each in products if each.outvars[0] in gone)


def _is_much(product: Eqn, length: int) -> bool:
    """Whether the steps multiply, one after the other, for longer than a launch takes."""
    terms = terms_of(product)
    larger = max(elements(atom) for atom in product.invars)
    return terms > policy.COMMON.few and length * larger >= policy.COMMON.worth_a_launch


def _before(body: Body, products: Sequence[Eqn]) -> tuple[Var, ...]:
    """The results that no carried value leads to, the last ones of each chain, where they are not much to write."""
    free = computable(body.jaxpr.eqns, [*body.consts, *body.xs], lambda eqn: not eqn.effects and not _is_loop(eqn))
    invariant = body.dependences.invariant
    found = [eqn.outvars[0] for eqn in products if eqn.outvars[0] in free - invariant and _is_worth_writing(eqn)]
    rest = evaluate.needed(body.jaxpr.eqns, [*body.afters, *body.ys], found)
    read = set(evaluate.read_by(rest, body.jaxpr.outvars))
    return tuple(var for var in found if var in read)


def _is_loop(eqn: Eqn) -> bool:
    return eqn.primitive.name in LOOPS


def _is_worth_writing(product: Eqn) -> bool:
    """Whether what is written for each step is no more than the larger operand that it is made of."""
    return elements(product.outvars[0]) <= policy.COMMON.times * max(map(elements, product.invars))


def not_waited_for(body: Body, made: Iterable[Eqn], before: Iterable[Var]) -> frozenset[Var]:
    """The results that lead to no carried value."""
    there = {*body.dependences.waited_for, *before, *body.dependences.invariant}
    return frozenset(eqn.outvars[0] for eqn in made if eqn.outvars[0] not in there)


def sunk_of(
    body: Body,
    after: frozenset[Var],
    before: Sequence[Var],
    more: frozenset[Var] = frozenset(),
    most: int | None = None,
    stacked: Iterable[Var] = (),
) -> tuple[tuple[int, ...], tuple[Var, ...]]:
    """Which ys are made after the loop, and of what; nothing if that is much more than they are, or `most` bytes.

    What leads to them is made after it too, if all it is made of is there, and what `more` says. Nothing is counted for
    what is `stacked` in any case.
    """
    behind = made_of(body.jaxpr.eqns, after)
    moved = [eqn for eqn in body.jaxpr.eqns if not behind.isdisjoint(eqn.outvars)]
    sunk = tuple(p for p, atom in enumerate(body.ys) if not isinstance(atom, Literal) and atom in behind)
    if not sunk or any(eqn.effects or _is_loop(eqn) for eqn in moved):
        return (), ()
    invariant, written = body.dependences.invariant, set(evaluate.variables(body.ys)) - behind
    there = {*invariant, *body.xs, *before, *written, *stacked}
    asked = dict.fromkeys(var for var in evaluate.variables(body.ys) if var in behind)
    given = _made_of(body, asked, behind, there, more)
    stored = sum(nbytes(var) for var in given if var not in there)
    if stored > (policy.COMMON.times * nbytes(*asked) if most is None else most):
        return (), ()
    return sunk, tuple(var for var in given if var not in invariant)


def _made_of(
    body: Body, asked: Iterable[Var], behind: set[Var], there: set[Var], more: frozenset[Var]
) -> tuple[Var, ...]:
    """The fewest bytes that lead to what is asked for, all of it `behind` contractions; what is there costs nothing."""
    again = behind | (computable(body.jaxpr.eqns, there, does_again) - there) | (more - there)
    never = sum(map(nbytes, body.dependences.definitions)) + 1

    def cost(var: Var) -> int:
        return never if var in behind else 0 if var in there else nbytes(var)

    return cheapest_of_step(body, asked, cost, lambda var, _: var in again)


def distributed(node: Node, plan: Plan) -> list[Value]:
    written = dict.fromkeys([*evaluate.variables(plan.kept), *plan.stored])
    return distribute(node, plan.body, [Stage(None, plan.before), Stage(plan.body.places, tuple(written))])
