"""What is compared with one of its own elements is the same number wherever it is computed.

Kernels hold 16-bit values as f32, and round them where they are stored. A value that one kernel computes and another
one computes again, of what it finds in memory, may so differ in its last digit: no element is the largest one any more.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import jax.extend.core as jex
import numpy as np

from jaxpr2triton._compat import close_like
from jaxpr2triton.ir import build
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.rounded import CHOICES, rounded_p
from jaxpr2triton.rules.pointwise.table import POINTWISE
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.reductions import Outcome
from jaxpr2triton.rules.rows import names_of
from jaxpr2triton.rules.sweeps import TABLE as SWEEPS
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

CHOOSE = {*names_of(Outcome.SELECTION), *names_of(Outcome.PLACE), "max", "min", "eq", "ne", "sort"}
EXACT = {*CHOICES, "rounded", "convert_element_type", "bitcast_convert_type"}
MADE = {*POINTWISE, *REDUCTIONS, *SWEEPS, *DECOMPOSITIONS} - EXACT  # what kernels compute with more digits
IN_MEMORY = {"dot_general", "conv_general_dilated"}  # whose results XLA has rounded, and nothing computes again


def round_compared(closed: Closed) -> Closed:
    """Round what leads to such a value after each step, as JAX does.

        b = mul a a;  c = reduce_max b    →    b' = mul a a;  b = rounded b';  c = reduce_max b

    Of loops, all of the body if it makes or holds such a value. Left alone: wider dtypes, programs without choices, and
    what lies before a matrix product.
    """
    if not any(_is_narrow(var.aval) for eqn in closed.jaxpr.eqns for var in eqn.outvars):
        return closed
    rounded = _rounded(closed.jaxpr, False)
    return closed if rounded is closed.jaxpr else close_like(closed, rounded)


def _rounded(jaxpr: Any, everything: bool) -> Any:
    """The jaxpr with all rounded that leads to a choice; with everything rounded, if it is the body of a loop.

    Equations come last to first: when the turn of one comes, all that want its results rounded are known.
    """
    wanted: set[Any] = set()
    known = {var for eqn in jaxpr.eqns if eqn.primitive is rounded_p for var in variables(eqn.invars)}
    found: list[Any] = []
    for eqn in reversed(jaxpr.eqns):
        bodies = list(jex.jaxprs_in_params(eqn.params))
        is_wanted = everything or any(var in wanted for var in eqn.outvars) or any(map(_chooses_inside, bodies))
        if is_wanted and bodies:
            eqn = _with_bodies_rounded(eqn)

        computed = _is_computed(eqn) or (everything and eqn.primitive.name in IN_MEMORY)
        goes_on = computed or eqn.primitive.name not in IN_MEMORY
        if _is_choice(eqn) or (is_wanted and goes_on):
            wanted.update(variables(eqn.invars))

        if is_wanted and computed and eqn.outvars[0] not in known:
            found += _with_result_rounded(eqn)[::-1]
        else:
            found.append(eqn)
    eqns = found[::-1]
    same = all(map(operator.is_, eqns, jaxpr.eqns))  # what is rounded is another equation, with one more after it
    return jaxpr if same else build.with_equations(jaxpr, eqns)


def _is_computed(eqn: Any) -> bool:
    """Whether kernels compute it with more digits, wherever it is wanted; a sum of one product is one like others."""
    name = eqn.primitive.name
    return name in MADE or (name == "dot_general" and terms_of(eqn) == 1)


def _with_result_rounded(eqn: Any) -> list[Any]:
    """`b = mul a a  →  b' = mul a a;  b = rounded b'`; the equation alone if its result is of a wider dtype."""
    if not _is_narrow(eqn.outvars[0].aval):
        return [eqn]
    (out,) = eqn.outvars
    exact = build.variable(out)
    return [eqn.replace(outvars=[exact]), build.after(eqn, rounded_p, [exact], [out])]


def _with_bodies_rounded(eqn: Any) -> Any:
    """The equation with everything rounded in its bodies; the same object if there is nothing to round."""
    params = {key: _inside(value) for key, value in eqn.params.items()}
    same = all(params[key] is value for key, value in eqn.params.items())
    return eqn if same else eqn.replace(params=params)


def _inside(value: Any) -> Any:
    """A parameter, with all rounded in what is a body."""
    if isinstance(value, Closed):
        rounded = _rounded(value.jaxpr, True)
        return value if rounded is value.jaxpr else close_like(value, rounded)
    if isinstance(value, tuple) and any(isinstance(each, Closed) for each in value):
        found = tuple(map(_inside, value))
        return value if all(one is other for one, other in zip(found, value)) else found
    return value


def _chooses_inside(body: Any) -> bool:
    """Whether there is a choice in a body, or in a body of its equations."""
    eqns: Iterable[Any] = getattr(body, "jaxpr", body).eqns
    return any(_is_choice(eqn) or any(map(_chooses_inside, jex.jaxprs_in_params(eqn.params))) for eqn in eqns)


def _is_choice(eqn: Any) -> bool:
    """Whether a 16-bit value is chosen, or compared with what may have been chosen; nothing is equal to a constant."""
    narrow = [atom for atom in eqn.invars if _is_narrow(atom.aval)]
    return eqn.primitive.name in CHOOSE and bool(narrow) and not any(isinstance(atom, jex.Literal) for atom in narrow)


def _is_narrow(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and is_float(dtype) and working_dtype(dtype) != dtype
