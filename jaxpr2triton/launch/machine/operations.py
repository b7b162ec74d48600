"""The operation of an opcode, and the opcodes that are usual."""

from __future__ import annotations

import functools
import itertools

from jaxpr2triton.launch.machine.families import bits, choices, conversions, floats, integers, pairs
from jaxpr2triton.launch.machine.families.spelling import Operation, Row, Spelling, spelling_of


@functools.cache
def operation(opcode: str) -> Operation | None:
    """… with all its modifiers, as `fma.rn.ftz.f32`; None if nobody knows what it does.

    `mov` with braces on one side has a name of ours, `pack.b64.2` or `unpack.b32.2`, and a conversion of what lies in a
    register of 32 or 64 bits and is shorter ends in .w32 or .w64.
    """
    return _operation(spelling_of(opcode))


def usual_operations() -> tuple[str, ...]:
    """The spellings that kernels are likely to have: they are compiled once, together."""
    families = (floats, pairs, integers, bits, choices, conversions)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(family.USUAL for family in families)))


def _operation(s: Spelling) -> Operation | None:
    takers = (row for row in _rows().get(s.name, ()) if row.takes(s))
    return next((found for row in takers if (found := row.rule(s)) is not None), None)


@functools.cache
def _rows() -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    scalar = (*floats.ROWS, *integers.ROWS, *bits.ROWS, *choices.ROWS, *conversions.ROWS)
    for each in (*scalar, *pairs.rows(_operation)):
        for name in each.names:
            rows.setdefault(name, []).append(each)
    return rows
