"""A value with the digits that its dtype has, rounded by itself: `b = rounded a`.

Kernels hold 16-bit values with more digits, and compilers round a product and the sum that it goes into once instead of
twice. Nothing that knows of sums or products sees through it.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex
from jax.interpreters import ad, batching, mlir

# Primitives whose result is one of the operands, but for its sign: it has no more digits than they have.
CHOICES = {"max", "min", "select_n", "clamp", "neg", "abs", "stop_gradient", "copy", "reduce_max", "reduce_min"}
# Primitives whose result jumps, or for which the operand's dtype counts. They see 16-bit values as JAX does, rounded,
# so that a value that one program stores and another computes again is equal to itself. A sine jumps as well: that of a
# large number has nothing to do with that of the number before it is rounded.
SUDDEN = {"eq", "ne", "lt", "le", "gt", "ge", "eq_to", "le_to", "lt_to", "sign", "floor", "ceil", "round", "rem"} | {
    "convert_element_type",
    "bitcast_convert_type",
    "rounded",
    *("sin", "cos", "tan"),
}

rounded_p = jex.Primitive("rounded")
rounded_p.def_impl(lambda x: x)
rounded_p.def_abstract_eval(lambda aval: aval)


def _jvp(primals: Any, tangents: Any) -> Any:
    return rounded_p.bind(primals[0]), tangents[0]


ad.primitive_jvps[rounded_p] = _jvp
batching.defvectorized(rounded_p)
mlir.register_lowering(rounded_p, mlir.lower_fun(lambda x: x, multiple_results=False))
