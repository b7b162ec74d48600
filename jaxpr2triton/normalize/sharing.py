"""Equal equations → one of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import jax
import jax.extend.core as jex

from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, frozen, rewrite

COMMUTATIVE = frozenset({"add", "add_any", "mul", "and", "or", "xor", "eq", "ne"})
STATEFUL = frozenset({"rng_uniform", "infeed", "create_token", "empty", "empty2"})


def share_equal(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Compute once what is written twice; the first of the lines is kept.

        b = exp a;  c = exp a;  d = add b c   →   b = exp a;  d = add b b

    Equal are: primitive, parameters by their structure, operands (in either order where that does not matter), types.
    Left alone: equations with effects, and equations whose parameters cannot be compared.
    """
    return rewrite(closed, _share)


def _share(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.effects or node.name in STATEFUL:
        return None
    try:
        key = _key(node)
        known = rewriter.notes.get(key)
    except TypeError:  # a parameter without a hash
        return None
    if known is None:
        known = rewriter.notes[key] = rewriter.again(node)
    return known


def _key(node: Node) -> Hashable:
    operands = [_operand_key(arg) for arg in node.args]
    if node.name in COMMUTATIVE:
        operands.sort(key=repr)
    types = tuple((aval.shape, str(aval.dtype), aval.weak_type) for aval in node.out_avals)
    return node.primitive, frozen(node.params), tuple(operands), types, id(node.context)


def _operand_key(value: Value) -> Hashable:
    known = constant(value)
    if known is None:
        return "value", id(value)
    return "constant", str(known.dtype), known.tobytes(), bool(jax.typeof(value).weak_type)
