"""Whether an equation can be part of a kernel at all, and if not, why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxpr2triton import policy
from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph import dynamic
from jaxpr2triton.graph.needless import BY_NATURE, all_why_not_chosen, why_not_chosen
from jaxpr2triton.ir.chunks import chunks_p
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.foreign import implementation
from jaxpr2triton.ir.jaxprs import Eqn, Literal, calls_python, jaxprs_in
from jaxpr2triton.ir.region import in_place_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.rules import folds, products
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep, too_long
from jaxpr2triton.rules.writes import OPERATIONS
from jaxpr2triton.rules.written import jacobi, linalg, pools, sorts
from jaxpr2triton.rules.written.convolutions import CONVOLUTION


def call_of(eqn: Eqn) -> Call:
    """The equation as its pointwise row sees it."""
    dtypes = tuple(np.dtype(atom.aval.dtype) for atom in eqn.invars)
    return Call(dtypes, np.dtype(eqn.outvars[0].aval.dtype), eqn.params)


def why_not(eqn: Eqn, in_loop: bool = False) -> WhyNot | None:
    """Why no kernel can hold this equation; None if one can."""
    name = eqn.primitive.name
    if name in LOOPS:
        return _why_not_loop(eqn)
    if name == "fused":
        return _why_not_fused(eqn)
    if eqn.primitive in (in_place_p, chunks_p):
        left: WhyNot = eqn.params["why"]
        return left
    if name == "cond" and (refusal := why_not_chosen(eqn.params["branches"])):
        return refusal
    if refusal := _why_not_of_types(eqn):
        return refusal
    if name in ("accumulate", "exchange", "flag", "iota", "keep"):
        return None
    if name == "dot_general":
        return None if in_loop else products.why_not(eqn)
    if name in dynamic.TABLE:
        return dynamic.REFUSALS[name](eqn) if name in dynamic.REFUSALS else None
    if name in OPERATIONS:
        return dynamic.why_not_several(eqn)
    if refusal := _why_not_written(eqn):
        return refusal
    if in_loop and isinstance(TABLE.get(name), Sweep) and (refusal := too_long(eqn)):
        return refusal
    return _why_no_row(eqn)


def _why_not_fused(eqn: Eqn) -> WhyNot:
    """Why a fused function inside another one is still there."""
    options, backend = ", ".join(eqn.params["roles"].apart), eqn.params["backend"]
    runs = "XLA runs it" if backend == "xla" else "it has kernels of its own"
    return WhyNot(f"{eqn.params['name']} is fused with options of its own ({options}), so {runs}")


def _why_not_written(eqn: Eqn) -> WhyNot | None:
    """Why what is written with other primitives, before kernels are made, is still there."""
    name, shapes = eqn.primitive.name, [atom.aval.shape for atom in eqn.invars]
    if name in linalg.TABLE or name in jacobi.TABLE:
        refusal = linalg.why_not(name, shapes, eqn.invars[0].aval.dtype, eqn.params)
        return refusal or WhyNot(f"`{name}` is written with other primitives, before kernels are made")
    if name == CONVOLUTION:
        return eqn.params.get("why", WhyNot("a library convolves", 'contractions="triton" makes a kernel of it'))
    if name in pools.TABLE:
        return pools.why_not(name, shapes, eqn.params)
    if name == "reduce":
        starts = eqn.invars[len(eqn.outvars) :]
        known = [start.val if isinstance(start, Literal) else None for start in starts]
        return folds.why_not(known, eqn.params, (None,) * len(known))
    return sorts.why_not(name, shapes[0], eqn.params) if name in sorts.TABLE else None


def _why_not_of_types(eqn: Eqn) -> WhyNot | None:
    """What is wrong with its operands or results."""
    for atom in [*eqn.invars, *eqn.outvars]:
        if not hasattr(atom.aval, "shape"):
            return WhyNot(f"`{eqn.primitive.name}` works on {atom.aval}, which is not an array")
        if refusal := unsupported(atom.aval.dtype):
            return refusal
    return WhyNot("its result has no elements") if any(0 in var.aval.shape for var in eqn.outvars) else None


def _why_no_row(eqn: Eqn) -> WhyNot | None:
    """What the row of a primitive refuses, or why there is none."""
    name, row = eqn.primitive.name, TABLE.get(eqn.primitive.name)
    if row is None and calls_python(eqn):
        return _why_not_told(eqn)
    if eqn.effects:
        return _why_not_effects(eqn)
    if row is None:
        found = implementation(eqn)
        return found if isinstance(found, WhyNot) else WhyNot(f"there is no rule for the primitive `{name}`")
    if isinstance(row, Sweep):
        return None
    return row.refuse(call_of(eqn) if isinstance(row, Pointwise) else eqn)


def is_short_contraction(eqn: Eqn) -> bool:
    """A contraction of so few terms that it is elementwise work: beside a loop it need not be a launch of its own."""
    if eqn.primitive.name != "dot_general" or why_not(eqn, in_loop=True) is not None:
        return False
    return terms_of(eqn) <= policy.COMMON.few


def _why_not_loop(eqn: Eqn) -> WhyNot | None:
    """A loop can be in a kernel if all of its body can."""
    if eqn.effects:
        return _why_not_effects(eqn)
    for atom in [*eqn.invars, *eqn.outvars]:
        if refusal := unsupported(atom.aval.dtype):
            return refusal
    for inner in eqn.params["jaxpr"].jaxpr.eqns:
        if refusal := why_not(inner, in_loop=True):
            where = user_frame(inner)
            why = f"the body of the loop cannot be in a kernel, {f'at {where}: ' if where else ''}{refusal}"
            return WhyNot(why, refusal.takes)
    return None


def _why_not_told(eqn: Eqn) -> WhyNot:
    return WhyNot(f"`{eqn.primitive.name}` {'calls Python' if calls_python(eqn) else 'has side effects'}", BY_NATURE)


def _why_not_effects(eqn: Eqn) -> WhyNot:
    """The reason for an equation with effects; of a loop or a call, the first in it that has them."""
    first = next(with_effects(eqn))
    refusal = _why_not_told(first)
    if first is eqn:
        return refusal
    what = "the body of the loop" if eqn.primitive.name in (*LOOPS, "while") else f"what `{eqn.primitive.name}` runs"
    where = user_frame(first)
    return WhyNot(f"{what} cannot be in a kernel, {f'at {where}: ' if where else ''}{refusal}", BY_NATURE)


def with_effects(eqn: Eqn) -> Iterator[Eqn]:
    """Of an equation with effects those in it that have them by themselves, or else itself."""
    inside = [inner for jaxpr in jaxprs_in(eqn) for inner in jaxpr.eqns if inner.effects]
    for inner in inside:
        yield from with_effects(inner)
    if not inside:
        yield eqn


def all_in_the_way(eqn: Eqn) -> Iterator[tuple[Eqn, WhyNot]]:
    """The equations in the body of a loop, and of the loops in it, that no kernel can hold, each with the reason.

    It looks at all of the body: for reports, not for planning. Of a loop with effects it tells these only: its body is
    as the user wrote it.
    """
    if eqn.effects:
        yield from ((inner, _why_not_told(inner)) for inner in with_effects(eqn))
        return
    for inner in eqn.params["jaxpr"].jaxpr.eqns:
        refusal = why_not(inner, in_loop=True)
        if refusal is None:
            continue
        within: list[tuple[Eqn, WhyNot]] = []
        if inner.primitive.name in LOOPS:
            within = list(all_in_the_way(inner))
        elif inner.primitive.name == "cond":
            within = [(each or inner, why) for each, why in all_why_not_chosen(inner.params["branches"])]
        yield from within or [(inner, refusal)]
