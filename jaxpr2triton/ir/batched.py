"""`vmap` of the compiler's own primitives that work along some dimensions: these are one further."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from jax.interpreters import batching


def define(primitive: Any, along: str) -> None:
    """The parameter `along` has the dimension, or the dimensions; all operands have those of the batch first."""
    batching.primitive_batchers[primitive] = partial(_batch, primitive, along)


def _batch(primitive: Any, along: str, operands: Sequence[Any], dims: Sequence[Any], **how: Any) -> tuple[Any, Any]:
    size = next(x.shape[d] for x, d in zip(operands, dims) if d is not None)
    whole = [batching.bdim_at_front(x, d, size) for x, d in zip(operands, dims)]
    one = isinstance(how[along], int)
    found = primitive.bind(*whole, **{**how, along: how[along] + 1 if one else tuple(d + 1 for d in how[along])})
    return found, [0] * len(found) if primitive.multiple_results else 0
