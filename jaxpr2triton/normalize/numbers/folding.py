"""Arithmetic on known numbers → numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.numbers.splat import UNIFORM
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, is_plain, rewrite, splat, spread


def fold_constants(closed: Closed) -> Closed:
    """Compute numbers that are known now, and arrays of one such number, in their own dtype.

        c = mul 2.0 3.0;  d = exp c;  e = add a d                             →   e = add a 403.4288
        b = broadcast_in_dim 1.0;  c = neg b;  d = reduce_sum[axes=(1,)] c    →   d = broadcast_in_dim -17.0

    Left alone: arrays of different numbers, sums that would be rounded, integer divisions by zero, the larger of 0.0
    and -0.0, and primitives that are in none of the tables.
    """
    foldable = _foldable(closed)
    return rewrite(closed, _fold, lambda eqn: not foldable.isdisjoint(eqn.outvars)) if foldable else closed


def _foldable(closed: Closed) -> set[Any]:
    """What is made of nothing but numbers, other than by writing an array of one number."""
    known: set[Any] = set()
    found: set[Any] = set()
    for eqn in closed.jaxpr.eqns:
        if eqn.invars and all(isinstance(atom, jex.Literal) or atom in known for atom in eqn.invars):
            known.update(eqn.outvars)
            if not _is_spread(eqn.primitive.name, eqn.invars[0]):
                found.update(eqn.outvars)
    return found


def _is_spread(name: str, operand: Any) -> bool:
    """True for the one way to write an array of one number."""
    return name == "broadcast_in_dim" and not isinstance(operand, jax.core.Tracer | jex.Var)


def _fold(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if not node.args or _is_spread(node.name, node.args[0]) or len(node.out_avals) != 1:
        return None
    aval = node.out_avals[0]
    known = [splat(arg, rewriter) for arg in node.args]
    numbers = [value for value in known if value is not None and not jnp.issubdtype(value.dtype, jnp.complexfloating)]
    if len(numbers) < len(known) or not is_plain(aval.dtype) or varies_over_mesh(aval):
        return None
    result = _number(node, numbers)
    if result is None:
        return None
    number = np.asarray(result, aval.dtype)[()]
    return [number if not aval.shape else spread(number, aval.shape, rewriter)]


def _number(node: Node, numbers: Sequence[np.ndarray]) -> Any:
    """The number that the result consists of, if a table knows it."""
    if node.name in UNIFORM:
        return UNIFORM[node.name](node, numbers)
    if node.name in EXACT:
        with np.errstate(all="ignore"):
            return EXACT[node.name](numbers, node.params)
    return computed(node.primitive, numbers, node.params) if node.name in ROUNDED else None


def computed(primitive: Any, arrays: Sequence[Any], params: Mapping[str, Any], dtype: Any = None) -> np.ndarray:
    """What a primitive makes of known arrays; by NumPy where the two agree, for XLA compiles it first."""
    arrays = [np.asarray(array) for array in arrays]
    found = None
    with np.errstate(all="ignore"):
        if primitive.name in ARRAYS:
            found = ARRAYS[primitive.name](arrays, params)
        elif primitive.name in EXACT and not any(array.shape for array in arrays):
            found = EXACT[primitive.name](arrays, params)
    if found is None:
        with jax.ensure_compile_time_eval():
            found = primitive.bind(*map(jnp.asarray, arrays), **params)
    return np.asarray(found, dtype)


def _numpy(function: Callable[..., Any]) -> Callable[[Sequence[np.ndarray], Mapping[str, Any]], Any]:
    return lambda args, params: function(*args)


def _is_integer(array: np.ndarray) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.integer))


def _divide(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    x, y = args
    if not _is_integer(x):
        return x / y
    if y == 0:
        return None
    quotient = abs(int(x)) // abs(int(y))
    return quotient if (x < 0) == (y < 0) else -quotient


def _multiply(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    return None if params.get("out_dtype") is not None else args[0] * args[1]


def _convert(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    (x,), dtype = args, params["new_dtype"]
    if params["sharding"] is not None:
        return None
    if is_bool(dtype):
        return x != 0
    if jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.inexact):
        info = jnp.iinfo(dtype)
        if np.isnan(x):
            return 0
        return min(max(x.item(), info.min), info.max) if np.isinf(x) else min(max(int(x), int(info.min)), int(info.max))
    return x.astype(dtype)


def _select(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    return args[1 + int(args[0])]


def _extreme(function: Callable[..., Any]) -> Callable[[Sequence[np.ndarray], Mapping[str, Any]], Any]:
    """Between 0.0 and -0.0 machines differ."""

    def fold(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
        x, y = args
        return None if x == 0 == y and np.copysign(1, float(x)) != np.copysign(1, float(y)) else function(x, y)

    return fold


def _clamp(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    low, x, high = args
    raised = _extreme(np.maximum)((x, low), params)
    return None if raised is None else _extreme(np.minimum)((raised, high), params)


def _bits(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    (x,), dtype = args, np.dtype(params["new_dtype"])
    fits = x.dtype.itemsize == dtype.itemsize and not is_bool(dtype) and not is_bool(x.dtype)
    return x.view(dtype) if fits and dtype.kind in "iuf" and x.dtype.kind in "iuf" else None


def _broadcast(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    (x, *_), shape = args, params["shape"]
    sizes = dict(zip(params["broadcast_dimensions"], x.shape))
    return np.broadcast_to(x.reshape([sizes.get(dim, 1) for dim in range(len(shape))]), shape)


def _counted(args: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    shape, dim = params["shape"], params["dimension"]
    line = np.arange(shape[dim]).astype(params["dtype"])
    return np.broadcast_to(line.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


EXACT: Mapping[str, Callable[[Sequence[np.ndarray], Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("add", "add_any"), _numpy(lambda x, y: x + y)),
    "sub": _numpy(lambda x, y: x - y),
    "mul": _multiply,
    "div": _divide,
    "neg": _numpy(lambda x: -x),
    "abs": _numpy(abs),
    "max": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "eq": _numpy(lambda x, y: x == y),
    "ne": _numpy(lambda x, y: x != y),
    "lt": _numpy(lambda x, y: x < y),
    "le": _numpy(lambda x, y: x <= y),
    "gt": _numpy(lambda x, y: x > y),
    "ge": _numpy(lambda x, y: x >= y),
    "and": _numpy(lambda x, y: x & y),
    "or": _numpy(lambda x, y: x | y),
    "xor": _numpy(lambda x, y: x ^ y),
    "not": _numpy(np.invert),
    "select_n": _select,
    "clamp": _clamp,
    "convert_element_type": _convert,
}
# … of whole arrays
ARRAYS: Mapping[str, Callable[[Sequence[np.ndarray], Mapping[str, Any]], Any]] = {
    "bitcast_convert_type": _bits,
    "broadcast_in_dim": _broadcast,
    "iota": _counted,
    **{name: EXACT[name] for name in ("add", "sub", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor")},
}
ROUNDED = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "sqrt", "rsqrt", "cbrt", "pow", "integer_pow"),
        *(
            "sin",
            "cos",
            "tan",
            "tanh",
            "erf",
            "erfc",
            "floor",
            "ceil",
            "round",
            "sign",
            "is_finite",
            "bitcast_convert_type",
        ),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic", "rem", "threefry", "philox"),
    }
)
