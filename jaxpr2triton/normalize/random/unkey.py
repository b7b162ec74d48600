"""Random keys and bits → integer arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.ir.dtypes import threefry_keys
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.random import other_kinds, threefry
from jaxpr2triton.normalize.random.generators import generated
from jaxpr2triton.normalize.random.key_loops import LOOPS, like
from jaxpr2triton.normalize.random.key_moves import move_keys
from jaxpr2triton.normalize.random.keys import (
    Keys,
    Value,
    as_array,
    as_keys,
    drawn,
    is_key,
    shaped,
    static_shape,
    written,
)
from jaxpr2triton.normalize.rewrite import Node, Rewriter


def unkey(closed: Closed, loops: bool = True) -> Closed:
    """Compute with the words of keys what JAX computes with keys, bit for bit.

        { lambda ; k:key[]. let                       { lambda ; k:key[]. let
            b:u32[8] = random_bits[bit_width=32] k  →     r = random_unwrap k;  k0 = r[0];  k1 = r[1]
          in (b,) }                                       n = iota;  c = add n k1;  d = add k0 c ... in (b,) }

    Keys become words everywhere, in the bodies of loops and branches too: what carries an array of keys, typed or as
    uint32[..., words], carries an array for each word. Only what comes in and goes out is still unwrapped and wrapped.
    What keys of other kinds than JAX's default one are split into, and the bits that they draw, are what the functions
    of that kind compute (`other_kinds`); `rng_bit_generator`, which those of JAX use, is arithmetic as well.

    Without `loops`, loops and branches stay as they are, and get the keys wrapped.

    Left alone: keys of more words than 16, `random_gamma`, calls that cannot be inlined, arrays of 2^32 elements and
    more, and other primitives that take keys; these get them wrapped. The bits are those of
    `jax_threefry_partitionable` as it is now.
    """
    if not _is_random(closed.jaxpr) or not all(isinstance(aval, jax.core.ShapedArray) for aval in closed.in_avals):
        return closed
    sources = {var: eqn for eqn in closed.jaxpr.eqns for var in eqn.outvars}

    def run(*args: Value) -> list[Value]:
        given = [as_keys(arg) if is_key(jax.typeof(arg)) else arg for arg in args]
        outs = Rewriter(unkey_equation if loops else _unkey_outside).evaluate(closed.jaxpr, closed.consts, given)
        arrays = []
        for value, var in zip(outs, closed.jaxpr.outvars):
            with nullcontext() if isinstance(var, jex.Literal) or var not in sources else source_of(sources[var]):
                arrays.append(as_array(value))
        return like(arrays, closed.out_avals)

    return again(closed, run)


def unkey_equation(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """The rule: operands that are keys are `Keys`, and so are results."""
    if node.name in RANDOM:
        kind = _kind_of(node)
        made = node.name in other_kinds.TABLE and kind not in (None, threefry_keys())
        outs = other_kinds.TABLE[node.name](node, kind, rewriter) if made else RANDOM[node.name](node)
        if outs is not None:
            return outs
    with_keys = any(isinstance(arg, Keys) for arg in node.args) or any(map(is_key, node.out_avals))
    inner = [getattr(jaxpr, "jaxpr", jaxpr) for jaxpr in jex.jaxprs_in_params(node.params)]
    if not with_keys and not any(map(_is_random, inner)):
        return None
    if node.name in LOOPS:
        return LOOPS[node.name](node, unkey_equation)
    called = inline_call(node, rewriter)
    if called is not None:
        return called
    moved = move_keys(node, rewriter) if with_keys else None
    return _between_arrays(node, rewriter) if moved is None else moved


def _unkey_outside(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """The rule that does not enter loops and branches."""
    return _between_arrays(node, rewriter) if node.name in LOOPS else unkey_equation(node, rewriter)


def unkey_outside(closed: Closed) -> Closed:
    """`unkey` for programs whose loops and branches stay as they are."""
    return unkey(closed, loops=False)


def _between_arrays(node: Node, rewriter: Rewriter) -> list[Value]:
    """The equation as it was."""
    outs = rewriter.again(replace(node, args=tuple(map(as_array, node.args))))
    return [as_keys(out) if is_key(aval) else out for out, aval in zip(outs, node.out_avals)]


def _kind_of(node: Node) -> Any:
    """The dtype of the keys that an equation takes or makes."""
    taken = [arg.kind for arg in node.args if isinstance(arg, Keys)]
    return next(iter([*(aval.dtype for aval in node.out_avals if is_key(aval)), *taken]), None)


def _is_random(jaxpr: Any) -> bool:
    """True if a jaxpr has to do with keys, or what it runs has."""
    if any(is_key(var.aval) for var in (*jaxpr.invars, *jaxpr.constvars)):
        return True
    return any(
        eqn.primitive.name in HASHES
        or any(is_key(var.aval) for var in eqn.outvars)
        or any(_is_random(getattr(inner, "jaxpr", inner)) for inner in jex.jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def _wrap(node: Node) -> list[Value] | None:
    (made,) = node.out_avals
    return [as_keys(node.args[0], made.dtype).as_kind(made.dtype, typed=True)] if is_key(made) else None


def _unwrap(node: Node) -> list[Value] | None:
    (keys,) = node.args
    return [keys.as_kind(keys.kind, typed=False)] if isinstance(keys, Keys) else None


def _seed(node: Node) -> list[Value] | None:
    (made,) = node.out_avals
    return [written(threefry.seeded(node.args[0]), made.dtype, typed=True)] if is_key(made) else None


def _clone(node: Node) -> list[Value] | None:
    return [node.args[0]] if isinstance(node.args[0], Keys) else None


def _fold_in(node: Node) -> list[Value] | None:
    keys, data = node.args
    return [written(threefry.folded(keys.pair, data), keys.kind, typed=True)] if isinstance(keys, Keys) else None


def _split(node: Node) -> list[Value] | None:
    (keys,) = node.args
    shape = static_shape(node)
    if not isinstance(keys, Keys) or 2 * math.prod(shape) > threefry.MOST:
        return None
    return [drawn(keys, shape, local=_is_local())]


def _bits(node: Node) -> list[Value] | None:
    (keys,) = node.args
    shape, width = static_shape(node), node.params["bit_width"]
    count = math.prod(shape)
    if not isinstance(keys, Keys) or count * max(1, width // 32) > threefry.MOST:
        return None
    place = threefry.places(keys.shape, shape)
    return [shaped(threefry.bits(keys.pair, place, count, width, local=_is_local()), node.out_avals[0].shape)]


def _hash(node: Node) -> list[Value]:
    one, other, high, low = node.args
    return list(threefry.threefry2x32((one, other), (high, low)))


def _counts(node: Node) -> list[Value] | None:
    shape = static_shape(node)
    place = threefry.places((), shape)
    zeros = lax.full(shape, 0, np.uint32)
    return None if math.prod(shape) > threefry.MOST else [zeros, zeros if isinstance(place, int) else place]


def _generated(node: Node) -> list[Value] | None:
    return generated(as_array(node.args[0]), node.params)


def _is_local() -> bool:
    config: Any = jax.config
    return bool(config.jax_threefry_partitionable)


HASHES = frozenset(
    {"threefry2x32", "iota_2x32_shape", "rng_bit_generator"}
)  # they have nothing to do with keys any more
RANDOM: Mapping[str, Callable[[Node], list[Value] | None]] = {
    "random_wrap": _wrap,
    "random_unwrap": _unwrap,
    "random_seed": _seed,
    "random_clone": _clone,
    "random_fold_in": _fold_in,
    "random_split": _split,
    "random_bits": _bits,
    "threefry2x32": _hash,
    "iota_2x32_shape": _counts,
    "rng_bit_generator": _generated,
}
