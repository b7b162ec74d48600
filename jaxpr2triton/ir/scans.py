"""What a loop is made of: a scan, or a `repeat`, which is a while loop in the form that kernels have.

`Scan` sees the equation, and pairs what is outside with what is inside; `Body` sees what a scan runs, and is what a
scan is written again from (`scanned`). Nobody else takes a loop apart by counting operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import lax

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dependences import Dependences, dependences_of
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import once

Dim = tuple[Hashable, int]  # (variable, or what else has dimensions; position)


LOOPS = ("scan", "repeat")
UNKNOWN = 2  # the length of a loop that ends when its condition says so, where a size has to be named


@dataclass(frozen=True)
class Scan:
    """A loop's equation, taken apart: operands and results by what they are."""

    eqn: Eqn
    body: Jaxpr
    consts: tuple[tuple[Atom, Var], ...]  # (operand, variable of the body)
    carries: tuple[tuple[Atom, Var, Atom, Var], ...]  # (operand, variable before a step, atom after it, result)
    xs: tuple[tuple[Atom, Var], ...]
    ys: tuple[tuple[Atom, Var], ...]  # (atom of the body, result)
    length: int
    reverse: bool
    conditional: bool  # the first carried value says whether there is another step


def scan_of(eqn: Eqn) -> Scan:
    conditional = eqn.primitive.name == "repeat"
    if conditional:
        num_consts, num_carry = eqn.params["num_consts"], len(eqn.outvars)
    else:
        num_consts, num_carry = scan_counts_of(eqn.params)
    body: Jaxpr = eqn.params["jaxpr"].jaxpr
    operands = list(zip(eqn.invars, body.invars))
    first_x = num_consts + num_carry
    carried = operands[num_consts:first_x]
    return Scan(
        eqn,
        body,
        tuple(operands[:num_consts]),
        tuple((*pair, after, result) for pair, after, result in zip(carried, body.outvars, eqn.outvars)),
        tuple(operands[first_x:]),
        tuple(zip(body.outvars[num_carry:], eqn.outvars[num_carry:])),
        UNKNOWN if conditional else eqn.params["length"],
        not conditional and eqn.params["reverse"],
        conditional,
    )


@dataclass(frozen=True)
class Body:
    """The body of a scan: its variables by what they are."""

    closed: Closed
    num_consts: int
    num_carry: int

    @property
    def jaxpr(self) -> Jaxpr:
        return self.closed.jaxpr

    @property
    def places(self) -> tuple[int, ...]:
        """Of all that is carried."""
        return tuple(range(self.num_carry))

    @property
    def consts(self) -> list[Var]:
        return [*self.jaxpr.constvars, *self.jaxpr.invars[: self.num_consts]]

    @property
    def befores(self) -> list[Var]:
        return list(self.jaxpr.invars[self.num_consts : self._first_x])

    @property
    def afters(self) -> list[Atom]:
        return list(self.jaxpr.outvars[: self.num_carry])

    @property
    def xs(self) -> list[Var]:
        return list(self.jaxpr.invars[self._first_x :])

    @property
    def ys(self) -> list[Atom]:
        return list(self.jaxpr.outvars[self.num_carry :])

    @property
    def _first_x(self) -> int:
        return self.num_consts + self.num_carry

    def fixed(self, args: Sequence[Any]) -> dict[Var, Any]:
        """The constants by their variables; `args` are the operands of the scan."""
        return dict(zip(self.consts, [*self.closed.consts, *args[: self.num_consts]]))

    def inits(self, args: Sequence[Any]) -> list[Any]:
        return list(args[self.num_consts : self._first_x])

    def stacked(self, args: Sequence[Any]) -> list[Any]:
        """The xs among the operands."""
        return list(args[self._first_x :])

    @property
    def dependences(self) -> Dependences:
        return dependences_of(self.jaxpr, self.num_consts, self.num_carry)

    def with_invariants(self, fixed: Mapping[Var, Any], eqns: Sequence[Eqn] | None = None) -> dict[Var, Any]:
        """The constants, and what these equations, by default all of them, make of them alone."""
        env, still = dict(fixed), self.dependences.invariant
        evaluate.run([eqn for eqn in (self.jaxpr.eqns if eqns is None else eqns) if still.issuperset(eqn.outvars)], env)
        return env

    def leading_to(self, targets: Sequence[Atom]) -> tuple[list[Eqn], list[Var]]:
        """The equations that a step needs for these atoms, and the xs that it reads then."""
        eqns = evaluate.needed(self.jaxpr.eqns, targets, ())
        read = set(evaluate.read_by(eqns, targets))
        return eqns, [var for var in self.xs if var in read]


def body_of(params: Mapping[str, Any]) -> Body:
    """What a scan with these parameters runs."""
    return Body(params["jaxpr"], *scan_counts_of(params))


def body_of_loop(eqn: Eqn) -> Body:
    """What a scan or a `repeat` runs."""
    if eqn.primitive.name == "scan":
        return body_of(eqn.params)
    return Body(eqn.params["jaxpr"], eqn.params["num_consts"], len(eqn.outvars))


def put(values: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """The values, with others in some places."""
    changed = dict(zip(places, others))
    return [changed.get(place, value) for place, value in enumerate(values)]


Step = Callable[[Any, Any], tuple[Any, Any]]


def scanned(params: Mapping[str, Any], step: Step, carried: Any, xs: Any) -> tuple[Any, Any]:
    """A scan of another step, with as many steps as the one with these parameters, in the same direction."""
    return lax.scan(step, carried, xs, params["length"], params["reverse"], params["unroll"])


def apart(values: Iterable[Any], num_carry: int) -> tuple[list[Any], list[Any]]:
    """The results of a body as what is carried on and what is put out."""
    values = list(values)
    return values[:num_carry], values[num_carry:]


@once
def scans_in(jaxpr: Jaxpr) -> tuple[Scan, ...]:
    """The loops of a jaxpr, without those in their bodies."""
    return tuple(scan_of(eqn) for eqn in jaxpr.eqns if eqn.primitive.name in LOOPS)


def ties(scan: Scan) -> Iterator[tuple[Dim, Dim]]:
    """What goes out of a step is what comes into the next one."""
    for _, before, after, _ in scan.carries:
        if not isinstance(after, Literal):
            yield from (((before, d), (after, d)) for d in range(len(before.aval.shape)))


def outer_dims(scan: Scan) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of a dimension outside and the same one inside of the body."""
    for outside, inside in scan.consts:
        yield from _paired(outside, inside, 0)
    for outside, before, _, result in scan.carries:
        yield from _paired(outside, before, 0)
        yield from _paired(result, before, 0)
    for outside, inside in scan.xs:
        yield from _paired(outside, inside, 1)
    for put_out, result in scan.ys:
        yield from _paired(result, put_out, 1)


def time_dims(scan: Scan) -> list[Dim]:
    outside: list[Atom] = [atom for atom, _ in scan.xs] + [result for _, result in scan.ys]
    return [(atom, 0) for atom in outside if not isinstance(atom, Literal)]


def _paired(outside: Atom, inside: Atom, offset: int) -> Iterator[tuple[Dim, Dim]]:
    if isinstance(outside, Literal) or isinstance(inside, Literal):
        return
    for d in range(len(inside.aval.shape)):
        yield (outside, d + offset), (inside, d)


def carried_through(step: Callable[[Any, Any], Any], first: Any, xs: Any) -> Any:
    """What is left of `first` once each of `xs` has made another one of it."""
    return lax.scan(lambda carry, x: (step(carry, x), None), first, xs)[0]
