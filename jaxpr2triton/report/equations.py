"""Equations in words: the name of the primitive, as the user knows it, all of it in one line."""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jaxpr2triton.ir.region import name_in_program, repeat_p
from jaxpr2triton.ir.scans import LOOPS


def name_of(eqn: Any) -> str:
    """Of its primitive, as the user knows it."""
    return "while" if eqn.primitive is repeat_p else name_in_program(eqn)


def printed(eqn: Any) -> str:
    """`b:f32[8] = sort[num_keys=1] a`."""
    names: dict[Any, str] = {}
    for atom in [*eqn.invars, *eqn.outvars]:
        if not isinstance(atom, jex.Literal):
            names.setdefault(atom, "abcdefghijklmnopqrstuvwxyz"[len(names) % 26])
    outputs = " ".join(f"{names[v]}:{v.aval.str_short(short_dtypes=True)}" for v in eqn.outvars)
    outputs += " = " if outputs else ""
    shown = {key: value for key, value in eqn.params.items() if isinstance(value, int | str | bool | tuple)}
    if eqn.primitive.name in (*LOOPS, "while"):  # all but these say how JAX keeps a loop
        shown = {key: value for key, value in shown.items() if key == "length" or (key == "reverse" and value)}
    params = " ".join(f"{key}={value}" for key, value in shown.items())
    operands = " ".join(str(v.val) if isinstance(v, jex.Literal) else names[v] for v in eqn.invars)
    return f"{outputs}{name_of(eqn)}{f'[{params}]' if params else ''} {operands}"
