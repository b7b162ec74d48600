"""What a program measures the rounding of is rounded as the program says, and by itself."""

from __future__ import annotations

from typing import Any

from jaxpr2triton._compat import close_like
from jaxpr2triton.ir import build
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.jaxprs import Closed, Eqn
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.scanned import combination
from jaxpr2triton.normalize.numbers.measured import is_float_array, measured
from jaxpr2triton.rules.indexing import MOVES

EXACT = {*MOVES, "neg", "abs", "copy", "stop_gradient", "convert_element_type", "reduce_precision", "rounded"}


def round_measured(closed: Closed) -> Closed:
    """Round each value between what cancels in a difference, so that nothing is known of it that rounding breaks.

        s = add a b;  c = sub s a    →    s' = add a b;  s = rounded s';  c' = sub s a;  c = rounded c'

    A sum that compensates for its errors computes them so: `(a + b) - a` is not b there. Whoever writes sums in another
    order, takes factors out of them or combines steps in tiles does so with sums and products only, and so leaves these
    alone. 16-bit values have no more digits than their dtype, and in a kernel with such values of other dtypes no
    product is fused with an addition. Loops, branches and calls are followed; left alone is what is exact anyway.
    """
    marked = measured(closed.jaxpr)
    if not marked:
        return closed
    rounded = _rounded(closed.jaxpr, marked)
    return closed if rounded is closed.jaxpr else close_like(closed, rounded)


def _rounded(jaxpr: Any, marked: frozenset[int]) -> Any:
    """The jaxpr, open or closed, with what is marked rounded."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    known = {eqn.invars[0] for eqn in inner.eqns if eqn.primitive is rounded_p}
    found: list[Eqn] = []
    for eqn in inner.eqns:
        changed = _with_bodies(eqn, marked)
        is_wanted = id(eqn) in marked and len(eqn.outvars) == 1 and eqn.outvars[0] not in known
        found += _with_result_rounded(changed) if is_wanted and _may_differ(eqn) else [changed]
    same = len(found) == len(inner.eqns) and all(one is other for one, other in zip(found, inner.eqns))
    return jaxpr if same else build.with_equations(jaxpr, found)


def _may_differ(eqn: Eqn) -> bool:
    """Whether a kernel may hold anything but what the program makes."""
    (out,) = eqn.outvars
    if not is_float_array(out) or eqn.primitive is rounded_p:
        return False
    return eqn.primitive.name not in EXACT or working_dtype(out.aval.dtype) != out.aval.dtype


def _with_bodies(eqn: Eqn, marked: frozenset[int]) -> Eqn:
    if eqn.primitive.name != "scanned":
        return build.with_bodies(eqn, lambda body: _rounded(body, marked))
    combine = eqn.params["combine"]
    closed = _rounded(combine.closed, marked)
    return eqn if closed is combine.closed else eqn.replace(params={**eqn.params, "combine": combination(closed)})


def _with_result_rounded(eqn: Eqn) -> list[Eqn]:
    (out,) = eqn.outvars
    exact = build.variable(out)
    return [eqn.replace(outvars=[exact]), build.after(eqn, rounded_p, [exact], [out])]
