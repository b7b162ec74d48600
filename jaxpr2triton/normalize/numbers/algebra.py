"""Arithmetic that changes nothing → its operand."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import primitives

from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.numbers.softplus import sigmoid_of_difference
from jaxpr2triton.normalize.rewrite import (
    Node,
    Rewriter,
    Value,
    has_type_of,
    named,
    rewrite,
    splat,
    spread,
)
from jaxpr2triton.rules.indexing import MOVES

_SIGNED = {"mul": 2, "div": 1}  # -a * b is -(a * b): how many operands may give a result its sign
STEPS_TO_NEGATION = 3  # products and quotients; what moves counts for nothing


def simplify_algebra(closed: Closed) -> Closed:
    """Rewrites that keep every bit, those of NaN and infinities too, and of -0.0 where nothing is added.

        b = mul a 1.0;  c = neg b;  d = neg c           →   d = a
        b:f32 = convert a:bf16;  c:bf16 = convert b     →   c = a
        b:f32 = convert a:bf16;  d:bf16 = convert bᵀ    →   d = aᵀ
        b = max -inf a                                  →   b = a
        c = select_n True a b                           →   c = b
        d = sub a (neg b)                               →   d = add a b
        c = mul (neg a) b;  d = add x c                 →   c = mul a b;  d = sub x c
        c = mul -0.5 (mul 2.0 a)                        →   c = neg a
        b:i32 = convert a:bool;  c = ge b 1             →   c = a
        c = exp (sub a (softplus a))                    →   c = logistic a
        c = cumsum[axis=1] (broadcast_in_dim a)         →   c = broadcast_in_dim (cumsum[axis=0] a), if a has that axis

    Left alone, because they change some value: x - x and 0 * x (NaN, inf), x / x, exp(log x). Not kept are the sign of
    a zero that a sum comes to (x + 0.0 is x, as for XLA, and sum(-x) is -sum(x)), nor an infinity between two factors,
    nor the digits that exp(x - softplus(x)) loses: it is logistic(x).
    """
    return rewrite(closed, _simplify, named(ALGEBRA))


def _simplify(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    result = ALGEBRA[node.name](node, rewriter)
    if result is None or has_type_of(result, node.out_avals[0]):
        return None if result is None else [result]
    return [spread(result, node.out_avals[0].shape, rewriter)] if _fits(result, node.out_avals[0]) else None


def _fits(value: Value, aval: Any) -> bool:
    """True for operands that the primitive itself has spread over a larger one."""
    got = jax.typeof(value)
    if got.dtype != aval.dtype or varies_over_mesh(got) != varies_over_mesh(aval):
        return False
    return got.ndim == 0 or (got.ndim == aval.ndim and all(m in (1, n) for m, n in zip(got.shape, aval.shape)))


def _equals(value: Value, number: float, rewriter: Rewriter) -> bool:
    """True if every element is exactly this number; 0.0 and -0.0 differ."""
    known = splat(value, rewriter)
    if known is None or jnp.issubdtype(known.dtype, jnp.complexfloating):
        return False
    return float(known) == number and math.copysign(1.0, float(known)) == math.copysign(1.0, number)


def _operand_of(value: Value, name: str, rewriter: Rewriter) -> Value | None:
    """x, if the value is `name x`."""
    maker = rewriter.maker(value)
    return maker.args[0] if maker is not None and maker.name == name else None


def _is_float(value: Value) -> bool:
    return bool(jnp.issubdtype(jax.typeof(value).dtype, jnp.floating))


def _second(number: float) -> Callable[[Node, Rewriter], Value | None]:
    """The first operand, if the second is this number."""
    return lambda node, rewriter: node.args[0] if _equals(node.args[1], number, rewriter) else None


def _add(node: Node, rewriter: Rewriter) -> Value | None:
    x, y = node.args
    for kept, other in ((x, y), (y, x)):
        if _equals(other, 0, rewriter) or _equals(other, -0.0, rewriter):
            return kept
    first, second = (_negated(each, rewriter, 0) for each in (x, y))
    if first is not None and second is not None and _is_sum(first, rewriter) and _is_sum(second, rewriter):
        return rewriter.bind(primitives.neg_p, rewriter.write(node, first, second))
    for kept, other in ((x, y), (y, x)):
        negated = _negated(other, rewriter)
        if negated is not None:
            return rewriter.bind(primitives.sub_p, kept, negated)
    return None


def _is_sum(value: Value, rewriter: Rewriter) -> bool:
    """Whether elements were added up, and moved; two such sums, added, meet at once."""
    maker = rewriter.maker(value)
    while maker is not None and maker.name in MOVES and len(maker.args) == 1:
        maker = rewriter.maker(maker.args[0])
    return maker is not None and maker.name == "reduce_sum"


def _sub(node: Node, rewriter: Rewriter) -> Value | None:
    x, y = node.args
    if _equals(y, 0, rewriter):
        return x
    negated = _negated(y, rewriter)
    return None if negated is None else rewriter.bind(primitives.add_p, x, negated)


def _negated(value: Value, rewriter: Rewriter, steps: int = STEPS_TO_NEGATION) -> Value | None:
    """What is made of x as the value is of `neg x`: moved, multiplied or divided."""
    moves: list[Node] = []
    while (maker := rewriter.maker(value)) is not None and maker.name in MOVES and len(maker.args) == 1:
        if not _is_float(value):
            return None
        moves.append(maker)
        (value,) = maker.args
    found = None if maker is None else _negated_by(maker, value, rewriter, steps)
    for move in moves[::-1] if found is not None else ():
        found = rewriter.write(move, found)
    return found


def _negated_by(maker: Node, value: Value, rewriter: Rewriter, steps: int) -> Value | None:
    """The same of a value that is not moved; no more of these are gone through than so many steps."""
    if maker.name == "neg":
        return maker.args[0]
    for position in range(_SIGNED.get(maker.name, 0) if steps and _is_float(value) else 0):
        found = _negated(maker.args[position], rewriter, steps - 1)
        if found is not None:
            return rewriter.write(maker, *(found if n == position else arg for n, arg in enumerate(maker.args)))
    return None


def _moved(value: Value, moves: Sequence[Node], rewriter: Rewriter) -> Value:
    for move in reversed(moves):
        value = rewriter.write(move, value)
    return value


def _sum(node: Node, rewriter: Rewriter) -> Value | None:
    negated = _operand_of(node.args[0], "neg", rewriter)
    return None if negated is None else rewriter.bind(primitives.neg_p, rewriter.write(node, negated))


def _mul(node: Node, rewriter: Rewriter) -> Value | None:
    if node.params.get("out_dtype") is not None:
        return None
    for kept, other in (node.args, node.args[::-1]):
        if _equals(other, 1, rewriter):
            return kept
        if _equals(other, -1, rewriter):
            return rewriter.bind(primitives.neg_p, kept)
    return _of_constants(node, rewriter)


def _div(node: Node, rewriter: Rewriter) -> Value | None:
    x, y = node.args
    if _equals(y, 1, rewriter):
        return x
    return rewriter.bind(primitives.neg_p, x) if _equals(y, -1, rewriter) and _is_float(x) else None


def _of_constants(node: Node, rewriter: Rewriter) -> Value | None:
    """c * -x as -c * x; and c * (d * x) as (c * d) * x, where c and d are powers of two: nothing is rounded."""
    for first, rest in (node.args, node.args[::-1]):
        c, inner = splat(first, rewriter), rewriter.maker(rest)
        if c is None or inner is None or not _is_float(first):
            continue
        shape = np.shape(first)
        if inner.name == "neg":
            return rewriter.write(node, spread(-c, shape, rewriter) if shape else -c, inner.args[0])
        for second, x in (inner.args, inner.args[::-1]) if inner.name == "mul" else ():
            d = splat(second, rewriter)
            if d is None or not _is_power_of_two(c) or not _is_power_of_two(d):
                continue
            factor = np.asarray(c * d, c.dtype)
            if abs(factor) == 1:
                return x if factor == 1 else rewriter.bind(primitives.neg_p, x)
            if np.isfinite(factor) and abs(factor) >= jnp.finfo(c.dtype).tiny:
                return rewriter.write(node, spread(factor, shape, rewriter) if shape else factor, x)
    return None


def _is_power_of_two(number: np.ndarray) -> bool:
    return abs(math.frexp(float(number))[0]) == 0.5


def _extreme(largest: bool) -> Callable[[Node, Rewriter], Value | None]:
    """max with the smallest value of the dtype, or min with the largest; NaN passes through both."""

    def simplify(node: Node, rewriter: Rewriter) -> Value | None:
        for kept, other in (node.args, node.args[::-1]):
            known = splat(other, rewriter)
            if known is not None and _is_bound(known, largest):
                return kept
        return None

    return simplify


def _is_bound(known: np.ndarray, largest: bool) -> bool:
    if jnp.issubdtype(known.dtype, jnp.floating):
        return float(known) == (math.inf if largest else -math.inf)
    if jnp.issubdtype(known.dtype, jnp.integer):
        info = jnp.iinfo(known.dtype)
        return int(known) == (info.max if largest else info.min)
    return is_bool(known.dtype) and bool(known) == largest


def _undo(node: Node, rewriter: Rewriter) -> Value | None:
    return _operand_of(node.args[0], node.name, rewriter)


def _abs(node: Node, rewriter: Rewriter) -> Value | None:
    inner = rewriter.maker(node.args[0])
    if inner is None or jnp.issubdtype(jax.typeof(node.args[0]).dtype, jnp.complexfloating):
        return None
    match inner.name:
        case "abs" if has_type_of(inner.args[0], node.out_avals[0]):
            return node.args[0]
        case "neg":
            return rewriter.bind(primitives.abs_p, inner.args[0])
        case _:
            return None


def _bits(everything: bool) -> Callable[[Node, Rewriter], Value | None]:
    def simplify(node: Node, rewriter: Rewriter) -> Value | None:
        for kept, other in (node.args, node.args[::-1]):
            known = splat(other, rewriter)
            if known is not None and known == (~np.zeros((), known.dtype) if everything else np.zeros((), known.dtype)):
                return kept
        return None

    return simplify


def _select(node: Node, rewriter: Rewriter) -> Value | None:
    which, *cases = node.args
    known = splat(which, rewriter)
    if known is not None:
        return cases[min(max(int(known), 0), len(cases) - 1)]
    if all(case is cases[0] for case in cases):
        return cases[0]
    negated = _operand_of(which, "not", rewriter) if is_bool(jax.typeof(which).dtype) else None
    return None if negated is None else rewriter.write(node, negated, *reversed(cases))


def _of_truth(compare: Callable[[Any, Any], Any]) -> Callable[[Node, Rewriter], Value | None]:
    """A truth value, or one as a number, compared with a number."""

    def rule(node: Node, rewriter: Rewriter) -> Value | None:
        value = node.args[0]
        is_truth = is_bool(jax.typeof(value).dtype)
        truth = value if is_truth else _operand_of(value, "convert_element_type", rewriter)
        number = splat(node.args[1], rewriter)
        if truth is None or number is None or not is_bool(jax.typeof(truth).dtype):
            return None
        if_false, if_true = (bool(compare(number.dtype.type(n), number)) for n in (0, 1))
        if if_false is if_true:
            return None
        return truth if if_true else jnp.logical_not(truth)

    return rule


def _integer_pow(node: Node, rewriter: Rewriter) -> Value | None:
    return node.args[0] if node.params["y"] == 1 else None


def _convert(node: Node, rewriter: Rewriter) -> Value | None:
    inner = rewriter.maker(node.args[0])
    if inner is not None and inner.name in MOVES:
        return _moved_as_it_was(node, rewriter)
    if inner is None or inner.name != "convert_element_type" or node.params["sharding"] or inner.params["sharding"]:
        return None
    start, middle, end = (jax.typeof(inner.args[0]).dtype, inner.params["new_dtype"], node.params["new_dtype"])
    if not holds(middle, start):
        return None
    if start == end:
        return inner.args[0]
    through_float = jnp.issubdtype(middle, jnp.floating) and not jnp.issubdtype(start, jnp.floating)
    if through_float and not jnp.issubdtype(end, jnp.floating) and not holds(end, start):
        return None  # floats saturate where integers wrap around
    return rewriter.write(node, inner.args[0])


def _moved_as_it_was(node: Node, rewriter: Rewriter) -> Value | None:
    """A value that was widened, moved and made narrow again: moved only, with the digits that it is held with."""
    moves: list[Node] = []
    maker = rewriter.maker(node.args[0])
    while maker is not None and maker.name in MOVES and len(maker.args) == 1:
        moves.append(maker)
        maker = rewriter.maker(maker.args[0])
    if maker is None or maker.name != "convert_element_type" or node.params["sharding"] or maker.params["sharding"]:
        return None
    value = maker.args[0]
    if jax.typeof(value).dtype != node.params["new_dtype"] or not holds(
        maker.params["new_dtype"], jax.typeof(value).dtype
    ):
        return None
    return _moved(value, moves, rewriter)


def holds(wide: Any, narrow: Any) -> bool:
    """True if every value of dtype `narrow` is exactly a value of dtype `wide`."""
    if wide == narrow or is_bool(narrow):
        return True
    if is_bool(wide) or not all(
        jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating) for dtype in (wide, narrow)
    ):
        return False
    if jnp.issubdtype(narrow, jnp.floating):
        if str(wide) not in ("float16", "bfloat16", "float32", "float64"):
            return False
        big, small = jnp.finfo(wide), jnp.finfo(narrow)
        return bool(big.nmant >= small.nmant and big.minexp <= small.minexp and big.maxexp >= small.maxexp)
    span = jnp.iinfo(narrow)
    if jnp.issubdtype(wide, jnp.floating):
        limit = 2 ** (int(jnp.finfo(wide).nmant) + 1)
        return int(span.max) <= limit and int(span.min) >= -limit and float(jnp.finfo(wide).max) >= float(span.max)
    return bool(jnp.iinfo(wide).min <= span.min and jnp.iinfo(wide).max >= span.max)


def _swept(node: Node, rewriter: Rewriter) -> Value | None:
    """Of what is alike along other axes: there is one running sum of it."""
    maker, axis = rewriter.maker(node.args[0]), node.params["axis"]
    if maker is None or maker.name != "broadcast_in_dim" or len(maker.args) > 1:
        return None
    (x,), dims, shape = maker.args, maker.params["broadcast_dimensions"], maker.params["shape"]
    if axis not in dims or jnp.shape(x)[dims.index(axis)] != shape[axis]:
        return None
    return rewriter.write(maker, rewriter.write(node, x, axis=dims.index(axis)))


ALGEBRA: Mapping[str, Callable[[Node, Rewriter], Value | None]] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "reduce_sum": _sum,
    "max": _extreme(largest=False),
    "min": _extreme(largest=True),
    "neg": _undo,
    "not": _undo,
    "abs": _abs,
    "and": _bits(everything=True),
    "or": _bits(everything=False),
    "xor": _bits(everything=False),
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), _second(0)),
    "select_n": _select,
    "integer_pow": _integer_pow,
    **{compare.__name__: _of_truth(compare) for compare in (op.eq, op.ne, op.lt, op.le, op.gt, op.ge)},
    "convert_element_type": _convert,
    "exp": sigmoid_of_difference,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _swept),
}
