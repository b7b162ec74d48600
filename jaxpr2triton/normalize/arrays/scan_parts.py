"""One equation for all results of a scan, as it is differentiated → one equation for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jax import lax

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.scanned import Combination, combination, scanned_p
from jaxpr2triton.ir.scanned_slopes import affine, affine_scanned_p, parts_of, run_parts, scanned_parts_p
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite

RUNNING: Mapping[str, Callable[..., Any]] = {
    "add": lax.cumsum,
    "mul": lax.cumprod,
    "max": lax.cummax,
    "min": lax.cummin,
}


def write_parts(closed: Closed, longest: int | None = None) -> Closed:
    """Take scans apart that were differentiated as a whole.

        a, b = scanned_parts[axis=0 combine=C] x y   →   a = scanned[… output=0] x y;  b = scanned[… output=1] x y

    Those along axes that are longer than `longest` are written as JAX's own recursion.
    """
    scans = (scanned_parts_p, affine_scanned_p)
    return rewrite(closed, partial(_parts, longest), lambda eqn: eqn.primitive in scans)


def _parts(longest: int | None, node: Node, rewriter: Rewriter) -> Sequence[Value]:
    values, axis, reverse = node.args, node.params["axis"], node.params["reverse"]
    if node.primitive is scanned_parts_p:
        combine, outputs = combination(inline_calls(node.params["combine"].closed)), range(len(values))
    else:
        parts = parts_of(values)
        combine = affine(parts, values[0].dtype, node.params["choosing"])
        outputs = range(parts * parts, len(values))
    if longest is not None and values[0].shape[axis] > longest:
        made = run_parts(*values, combine=combine, axis=axis, reverse=reverse)
        return [made[output] for output in outputs]
    return [written(values, combine, axis, output, reverse) for output in outputs]


def written(values: Sequence[Value], combine: Combination, axis: int, output: int, reverse: bool) -> Value:
    """One result of a scan."""
    inner = combine.closed.jaxpr
    name = inner.eqns[0].primitive.name if len(inner.eqns) == len(inner.outvars) == 1 else ""
    all_of_it = name in RUNNING and {*variables(inner.eqns[0].invars)} == {*inner.invars}
    if all_of_it and inner.outvars == inner.eqns[0].outvars:
        return RUNNING[name](values[0], axis, reverse)
    return scanned_p.bind(*values, combine=combine, axis=axis, output=output, reverse=reverse)
