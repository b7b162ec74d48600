"""Loops that go on as long as any lane wants to → loops in which each lane goes on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var, made
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.ir.scans import Scan, scan_of
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.normalize.loops.terms import Reading, Term, Terms
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, named, primitive_names, rewrite

Normalize = Callable[[Closed], Closed]
Makers = Callable[[Var], Eqn | None]
Step = Callable[..., list[Value]]
NEVER = np.iinfo(np.int32).max  # the step in which a flag falls that does not


def part_lanes(closed: Closed, normalize: Normalize) -> Closed:
    """Let each lane of a loop end by itself, where the loop goes on for the sake of any of them.

        go = any(x < 9);  go, x = repeat (λ go x. x' = select (x < 9) (f x) x;  (any(x' < 9), x')) go x
            →    go = x < 9;  go, x = repeat (λ go x. x' = select (x < 9) (f x) x;  (go & x' < 9, x')) go x

    That is the same if a lane that wants no other step is left as it is by all those that the others take, and if no
    lane is changed once none wants another step; what the lanes have in common, a count of steps, nobody may read
    afterwards. Both is proved from the equations (`loops/terms.py`).

    A flag that only falls, and that a step asks of all lanes at once, is asked of no lane: how many steps it stands is
    found out first, by a loop in which it always does.

        go, x, f = repeat (λ go x f. (..., g x any(f), f & p x)) go x f
            →    go1, n, f1 = repeat (λ go n x f. (go & f', n + go, ...)) (go & f) 0 x f;  last = max(select f1 ∞ n)
                 go, t, x, f = repeat (λ go t x f. (..., t + 1, g x (t < last), f & p x)) go 0 x f

    Left alone: loops whose lanes would still meet in a step, and those of few lanes.
    """
    if "repeat" not in primitive_names(closed):
        return closed
    read = set(evaluate.variables(closed.jaxpr.outvars))
    read.update(var for eqn in closed.jaxpr.eqns for var in evaluate.variables(eqn.invars))

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if node.equation is None:
            return None
        shared = _Shared(scan_of(node.equation), _makers(closed.jaxpr), read)
        return next((_parted(lanes, node, rewriter, normalize) for lanes in shared.lanes()), None)

    return rewrite(closed, rule, named({"repeat"}))


def _makers(jaxpr: Jaxpr) -> Makers:
    makers = makers_of(jaxpr)
    return lambda var: jaxpr.eqns[makers[var]] if var in makers else None


@dataclass(frozen=True)
class Flag:
    """An atom of a body, and what it says of lanes that go on."""

    atom: Atom
    says: bool


@dataclass(frozen=True)
class Latch:
    """A flag that only falls, and where a step asks any lane for it."""

    position: int  # among what is carried
    asked: frozenset[Var]


@dataclass(frozen=True)
class Lanes:
    """How a loop may be parted: a lane goes on while its own flag says so, and all do while `common` is True."""

    scan: Scan
    alive: Flag
    common: tuple[Atom, ...]  # numbers of the body, after a step
    implied: tuple[bool, ...]  # of the sides of the `and` that lets the loop begin: where a lane's flag says so, too
    latch: Latch | None = None

    @property
    def needed(self) -> list[Eqn]:
        """The equations of the flag."""
        return evaluate.needed(self.scan.body.eqns, [self.alive.atom], ())


class _Shared:
    """A loop with one condition for all, and what can be proved of its lanes."""

    def __init__(self, scan: Scan, outer: Makers, read: set[Var]) -> None:
        self._scan, self._read, self._outer = scan, read, outer
        self._makers = _makers(scan.body)
        self._terms = Terms()
        self._outside = outside = Reading(self._terms, outer, {})
        self._fixed = {inside: outside.of(operand) for operand, inside in scan.consts}
        self._inits = {before: outside.of(start) for start, before, _, _ in scan.carries}
        self._befores = {before: self._terms.opaque(before) for _, before, _, _ in scan.carries}
        self._now = self._reading(self._befores)
        self._afters = {before: self._now.of(after) for _, before, after, _ in scan.carries}

    def _reading(self, carried: Mapping[Var, Term]) -> Reading:
        return Reading(self._terms, self._makers, {**self._fixed, **carried})

    def lanes(self) -> Iterator[Lanes]:
        """All ways that are known to be right."""
        going, *carries = self._scan.carries
        if going[1].aval.shape or going[3] in self._read:
            return
        wishes, common = self._condition(going[2])
        if len(wishes) != 1 or wishes[0].atom.aval.size <= policy.COMMON.held_anyway:
            return
        (wish,) = wishes
        for alive in dict.fromkeys(filter(None, (self._guard(before, after) for _, before, after, _ in carries))):
            if alive.atom.aval.shape == wish.atom.aval.shape and self._is_right(alive, wish):
                lanes = Lanes(self._scan, alive, tuple(common), tuple(self._implied(alive)))
                latches: Sequence[Latch | None] = self._latches(wish.atom.aval.shape)
                yield from (replace(lanes, latch=latch) for latch in (latches or (None,)))

    def _condition(self, atom: Atom) -> tuple[list[Flag], list[Atom]]:
        """What any lane says in it, and the rest."""
        flags: list[Flag] = []
        rest: list[Atom] = []
        for side in _sides(atom, self._makers):
            eqn = self._made(side)
            asked = None if eqn is None else _any(eqn)
            inner = self._made(eqn.invars[0]) if eqn is not None and eqn.primitive.name == "not" else None
            denied = None if inner is None else _any(inner, "reduce_and")
            if asked is not None or denied is not None:
                flags += [Flag(asked, True)] if asked is not None else []
                flags += [Flag(denied, False)] if denied is not None else []
            else:
                rest.append(side)
        return flags, rest

    def _made(self, atom: Atom) -> Eqn | None:
        return None if isinstance(atom, Literal) else self._makers(atom)

    def _guard(self, before: Var, after: Atom) -> Flag | None:
        """By what a step chooses between a carried value as it was and another one."""
        eqn = self._made(after)
        if eqn is None or eqn.primitive.name != "select_n" or len(eqn.invars) != 3 or before not in eqn.invars[1:]:
            return None
        which, off, _ = eqn.invars
        while (spread := self._made(which)) is not None and _is_spread(spread):
            which = spread.invars[0]
        return Flag(which, off is before)

    def _is_right(self, alive: Flag, wish: Flag) -> bool:
        """Whether lanes that the flag ends stay as they are, and there are no others once nobody wishes to go on."""
        carries = self._scan.carries[1:]
        kept = {before for _, before, after, _ in carries if self._is_kept(before, after, alive)}
        if any(result in self._read for _, before, _, result in carries if before not in kept):
            return False
        eqns = evaluate.needed(self._scan.body.eqns, [alive.atom], ())
        below = set(evaluate.read_by(eqns, [alive.atom]))
        if not below & set(self._befores) <= kept:
            return False  # a lane that has ended might go on again
        ended = self._terms.known(np.bool_(not alive.says))
        after = self._reading(self._afters).of(alive.atom)
        facts = self._terms.facts(after, alive.says)
        wished = self._terms.where(self._now.of(wish.atom), facts)
        return after == ended or wished == self._terms.known(np.bool_(wish.says))

    def _implied(self, alive: Flag) -> Iterator[bool]:
        """Of what lets the loop begin: whether a lane that is alive at first says so, when all are asked for any."""
        facts = self._terms.facts(self._reading(self._inits).of(alive.atom), alive.says)
        for side in _sides(self._scan.carries[0][0], self._outer):
            eqn = None if isinstance(side, Literal) else self._outer(side)
            asked = None if eqn is None else _any(eqn)
            yield asked is not None and self._terms.where(self._outside.of(asked), facts) == self._terms.true

    def _is_kept(self, before: Var, after: Atom, alive: Flag) -> bool:
        """Whether a step leaves a carried value as it was, in the lanes that do not go on."""
        if after is before:
            return True
        if self._guard(before, after) == alive:
            return True
        if len(before.aval.shape) < len(alive.atom.aval.shape):
            return False
        facts = self._terms.facts(self._now.of(alive.atom), not alive.says)
        ended, was = (self._terms.where(of[before], facts) for of in (self._afters, self._befores))
        return ended == was

    def _latches(self, shape: tuple[int, ...]) -> list[Latch]:
        asked: dict[Var, set[Var]] = {}
        for eqn in self._scan.body.eqns:
            flag = _any(eqn)
            if flag is not None and flag in self._befores and flag.aval.shape == shape:
                asked.setdefault(flag, set()).update(eqn.outvars)
        terms, positions = self._terms, {before: n for n, (_, before, _, _) in enumerate(self._scan.carries[1:])}
        return [
            Latch(positions[flag], frozenset(where))
            for flag, where in asked.items()
            if terms.where(self._afters[flag], {self._befores[flag]: False}) == terms.false
        ]


def _sides(atom: Atom, makers: Makers) -> list[Atom]:
    """What an `and`, and those in it, are made of."""

    def operands(each: Atom) -> Sequence[Atom]:
        eqn = None if isinstance(each, Literal) else makers(each)
        return eqn.invars if eqn is not None and eqn.primitive.name == "and" else ()

    return _leaves(atom, operands)


def _values(value: Value, rewriter: Rewriter) -> list[Value]:
    """The same of a value."""

    def operands(each: Value) -> Sequence[Value]:
        maker = rewriter.maker(each)
        return maker.args if maker is not None and maker.name == "and" else ()

    return _leaves(value, operands)


def _leaves(whole: Any, operands: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """What has no operands, in order, as often as it stands there; what stands there twice is taken apart once."""
    found, stack, seen = [], [whole], set[int]()
    while stack:
        each = stack.pop()
        inner = operands(each)
        if not inner:
            found.append(each)
        elif id(each) not in seen:
            seen.add(id(each))
            stack.extend(inner[::-1])
    return found


def _is_spread(eqn: Eqn) -> bool:
    """Whether an equation writes an array along more dimensions, each element as often."""
    if eqn.primitive.name != "reshape":
        return eqn.primitive.name == "broadcast_in_dim"
    before, after = ([size for size in atom.aval.shape if size != 1] for atom in (eqn.invars[0], eqn.outvars[0]))
    return before == after


def _any(eqn: Eqn, name: str = "reduce_or") -> Var | None:
    """The flag of which any lane is asked."""
    if eqn.primitive.name != name or isinstance(eqn.invars[0], Literal):
        return None
    return eqn.invars[0] if len(eqn.params["axes"]) == len(eqn.invars[0].aval.shape) > 0 else None


def _parted(lanes: Lanes, node: Node, rewriter: Rewriter, normalize: Normalize) -> list[Value] | None:
    """The loop, and before it the one that finds out how long the flag stands, if their lanes are apart."""
    count = len(lanes.scan.consts)
    consts, going, start = list(node.args[:count]), node.args[count], list(node.args[count + 1 :])
    run = _Run(lanes, node.params["jaxpr"].consts)
    alive = run.alive(consts, start)
    for side, implied in zip(_values(going, rewriter), lanes.implied, strict=True):
        alive = alive if implied else _both(alive, side)
    number = np.int32(0)
    latch = lanes.latch
    if latch is None:
        main = _body(run.each_by_itself(count), [*consts, alive, *start], count, normalize)
        return None if main is None else _written(rewriter, main, [*consts, alive, *start], count)
    stands = start[latch.position]
    first_args = [*consts, _both(alive, stands), jnp.zeros(jnp.shape(stands), np.int32), *start]
    first = _body(run.while_it_stands(latch, count), first_args, count, normalize)
    main = first and _body(run.each_until(count), [*consts, number, alive, number, *start], count + 1, normalize)
    if first is None or main is None:
        return None
    _, steps, *ends = _written(rewriter, first, first_args, count)
    steps = lax.select_n(ends[latch.position], steps, jnp.full(jnp.shape(steps), NEVER, np.int32))
    last = lax.reduce_max(steps, tuple(range(jnp.ndim(steps))))
    going, _, *ends = _written(rewriter, main, [*consts, last, alive, number, *start], count + 1)
    return [going, *ends]


@dataclass(frozen=True)
class _Run:
    """A step of the loop as a function, and what the loops that take its place do in theirs."""

    lanes: Lanes
    known: Sequence[Any]  # the constants of the body

    def each_by_itself(self, count: int) -> Step:
        def step(*args: Value) -> list[Value]:
            consts, going, carried = args[:count], args[count], args[count + 1 :]
            alive, after = self._step(consts, carried, None)
            return [jnp.logical_and(going, alive), *after]

        return step

    def while_it_stands(self, latch: Latch, count: int) -> Step:
        """Counts the steps of each lane in which the flag stands: then it does for all."""

        def step(*args: Value) -> list[Value]:
            consts, going, steps, carried = args[:count], args[count], args[count + 1], args[count + 2 :]
            alive, after = self._step(consts, carried, np.True_)
            alive = jnp.logical_and(going, jnp.logical_and(alive, after[latch.position]))
            return [alive, steps + going.astype(np.int32), *after]

        return step

    def each_until(self, count: int) -> Step:
        """The flag stands until the last lane's has fallen."""

        def step(*args: Value) -> list[Value]:
            consts, last, going, steps, carried = args[:count], *args[count : count + 3], args[count + 3 :]
            alive, after = self._step(consts, carried, lax.lt(steps, last))
            return [jnp.logical_and(going, alive), steps + np.int32(1), *after]

        return step

    def alive(self, consts: Sequence[Value], carried: Sequence[Value]) -> Value:
        """Which lanes go on with these carried values."""
        env = self._env(consts, carried)
        evaluate.run(self.lanes.needed, env)
        alive = evaluate.read(env, self.lanes.alive.atom)
        return alive if self.lanes.alive.says else jnp.logical_not(alive)

    def _step(self, consts: Sequence[Value], carried: Sequence[Value], stands: Value) -> tuple[Value, list[Value]]:
        env = self._env(consts, carried)
        latch = self.lanes.latch
        asked = latch.asked if latch is not None else frozenset()
        evaluate.run(self.lanes.scan.body.eqns, env, lambda eqn, _: None if asked.isdisjoint(eqn.outvars) else [stands])
        after = [evaluate.read(env, after) for _, _, after, _ in self.lanes.scan.carries[1:]]
        alive = self.alive(consts, after)
        for atom in self.lanes.common:
            alive = jnp.logical_and(alive, evaluate.read(env, atom))
        return alive, after

    def _env(self, consts: Sequence[Value], carried: Sequence[Value]) -> dict[Var, Value]:
        body = self.lanes.scan.body
        return {**dict(zip(body.constvars, self.known)), **dict(zip(body.invars, [*consts, np.True_, *carried]))}


def _both(flags: Value, other: Value) -> Value:
    """What is known is left out."""
    known = constant(other)
    return jnp.logical_and(flags, other) if known is None else flags if known else jnp.zeros_like(flags)


def _body(step: Step, args: Sequence[Value], count: int, normalize: Normalize) -> Closed | None:
    """The body of a loop, if its lanes are apart."""
    closed = normalize(made(jax.make_jaxpr(step)(*map(jax.typeof, args))))
    befores, afters = closed.jaxpr.invars[count:], closed.jaxpr.outvars
    pairs = [pair for pair in zip(befores, afters) if not isinstance(pair[1], Literal)]
    tied = (((before, d), (after, d)) for before, after in pairs for d in range(len(before.aval.shape)))
    coupling = Coupling(closed.jaxpr.eqns, tied)
    dims = [d for d, size in enumerate(befores[0].aval.shape) if size != 1]
    return closed if all(coupling.is_apart(befores[0], d) for d in dims) else None


def _written(rewriter: Rewriter, body: Closed, args: Sequence[Value], count: int) -> list[Value]:
    """The results of a loop, of which the first is that it does not go on."""
    params = {"jaxpr": body, "num_consts": count}
    _, *results = rewriter.again(Node(repeat_p, params, tuple(args), tuple(body.out_avals)))
    return [jnp.zeros((), bool), *results]
