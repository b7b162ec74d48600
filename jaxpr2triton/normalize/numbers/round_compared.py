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
IN_MEMORY = {"dot_general", "conv_general_dilated"}  # whose operands are in memory, where they are rounded


def round_compared(closed: Closed) -> Closed:
    """Round what leads to such a value after each step, as JAX does.

        b = mul a a;  c = reduce_max b    →    b' = mul a a;  b = rounded b';  c = reduce_max b

    Of loops, all of the body if it makes or holds such a value. Left alone: wider dtypes, programs without choices,
    what lies before a matrix product, and that itself where something that is rounded is made of it first.
    """
    if not any(_is_narrow(var.aval) for eqn in closed.jaxpr.eqns for var in eqn.outvars):
        return closed
    rounded = _rounded(closed.jaxpr, False)
    return closed if rounded is closed.jaxpr else close_like(closed, rounded)


def _rounded(jaxpr: Any, everything: bool) -> Any:
    """The jaxpr with all rounded that leads to a choice; with everything rounded, if it is the body of a loop.

    Equations come last to first: when the turn of one comes, all that want its results rounded are known.
    """
    leads = _Leads(everything)
    known = {var for eqn in jaxpr.eqns if eqn.primitive is rounded_p for var in variables(eqn.invars)}
    found: list[Any] = []
    for eqn in reversed(jaxpr.eqns):
        if leads.holds(eqn):
            eqn = _with_bodies_rounded(eqn)
        is_rounded = leads.is_rounded(eqn) and eqn.outvars[0] not in known
        leads.go_through(eqn)
        found += _with_result_rounded(eqn)[::-1] if is_rounded else [eqn]
    eqns = found[::-1]
    same = all(map(operator.is_, eqns, jaxpr.eqns))  # what is rounded is another equation, with one more after it
    return jaxpr if same else build.with_equations(jaxpr, eqns)


class _Leads:
    """The values that lead to a choice, as far as equations were gone through from the last one on."""

    def __init__(self, everything: bool) -> None:
        self.everything = everything
        self.wanted: set[Any] = set()
        self.met: set[Any] = set()  # of these what no computation comes between: that is rounded, whatever makes it

    def holds(self, eqn: Any) -> bool:
        bodies = jex.jaxprs_in_params(eqn.params)
        return self.everything or not self.wanted.isdisjoint(eqn.outvars) or any(map(_chooses_inside, bodies))

    def is_rounded(self, eqn: Any) -> bool:
        """Whether kernels compute it with more digits, and it matters."""
        if self.everything and eqn.primitive.name in IN_MEMORY:
            return True
        is_met = not _is_of_products(eqn) or not self.met.isdisjoint(eqn.outvars)
        return self.holds(eqn) and _is_computed(eqn) and is_met

    def go_through(self, eqn: Any) -> None:
        is_choice, is_held = _is_choice(eqn), self.holds(eqn)
        is_met = is_held and not _is_computed(eqn) and not self.met.isdisjoint(eqn.outvars)
        goes_on = self.everything or (eqn.primitive.name != "conv_general_dilated" and not _is_of_products(eqn))
        if is_choice or (is_held and goes_on):
            self.wanted.update(variables(eqn.invars))
        if is_choice or is_met:
            self.met.update(variables(eqn.invars))


def _is_computed(eqn: Any) -> bool:
    """Whether kernels compute it with more digits, wherever it is wanted."""
    return eqn.primitive.name in MADE or eqn.primitive.name == "dot_general"


def _is_of_products(eqn: Any) -> bool:
    """A sum of one is a product like any other."""
    return bool(eqn.primitive.name == "dot_general" and terms_of(eqn) > 1)


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
