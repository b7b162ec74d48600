"""What a loop is made of: a scan, or a `repeat`, which is a while loop in the form that kernels have."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
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
