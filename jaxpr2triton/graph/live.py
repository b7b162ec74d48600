"""Which carried values of a loop its results need: the others are not entered."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Jaxpr, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.ir.scans import Scan


def live_carries(scan: Scan, wanted_results: Sequence[Var]) -> list[int]:
    """The positions of the carried values that the wanted results need."""
    return _bits(needed_carries(scan, wanted_results, {}))


def needed_carries(scan: Scan, wanted_results: Sequence[Var], known: dict[int, int]) -> int:
    """The same, as bits; `known` is what single carried values were found to need, and gets what is found now."""
    results, inputs = set(wanted_results), inputs_below(scan.body)
    first = len(scan.consts)  # where the carried values begin among the inputs
    everything = (1 << len(scan.carries)) - 1

    def below(atoms: Iterable[Atom]) -> int:
        """The carried values that these atoms of the body are computed from, as bits."""
        return functools.reduce(operator.or_, (inputs[atom] for atom in variables(atoms)), 0) >> first & everything

    live = below(atom for atom, result in scan.ys if result in results) | int(scan.conditional)
    live |= sum(1 << n for n, carry in enumerate(scan.carries) if carry[3] in results)
    fresh, wanted = live, live
    while fresh:
        new = _bits(fresh)
        live |= functools.reduce(operator.or_, (known[n] for n in new if n in known), 0)
        fresh = below(scan.carries[n][2] for n in new if n not in known) & ~live
        live |= fresh
    if wanted.bit_count() == 1:
        known[wanted.bit_length() - 1] = live
    return live


def _bits(mask: int) -> list[int]:
    found = []
    while mask:  # one step for each bit that is set; most are not
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


@once
def inputs_below(body: Jaxpr) -> Mapping[Var, int]:
    """For each variable of a body the inputs that it is computed from, as bits."""
    found = {var: 1 << n for n, var in enumerate(body.invars)} | dict.fromkeys(body.constvars, 0)
    for eqn in body.eqns:
        mask = functools.reduce(operator.or_, (found[atom] for atom in variables(eqn.invars)), 0)
        found.update(dict.fromkeys(eqn.outvars, mask))
    return found
