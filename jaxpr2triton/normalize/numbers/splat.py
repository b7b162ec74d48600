"""What primitives make of arrays in which every element is the same number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.normalize.rewrite import Node

Numbers = Sequence[np.ndarray]  # of rank 0: the number that each operand consists of


def _moved(node: Node, numbers: Numbers) -> np.ndarray | None:
    """Elements go elsewhere; what is put between them must be the same number."""
    return numbers[0] if all(number.tobytes() == numbers[0].tobytes() for number in numbers) else None


def _source(node: Node, numbers: Numbers) -> np.ndarray:
    return numbers[0]


def _most(node: Node, numbers: Numbers) -> np.ndarray | None:
    return numbers[0] if _count(node) > 0 else None


def _total(node: Node, numbers: Numbers) -> np.ndarray | None:
    """The sum, if no partial sum is rounded: whole numbers up to the width of the mantissa."""
    dtype, count = numbers[0].dtype, _count(node)
    if not jnp.issubdtype(dtype, jnp.floating):
        return None
    number = float(numbers[0])
    if number == 0 and not np.signbit(number):
        return numbers[0]
    limit = 2.0 ** (int(jnp.finfo(dtype).nmant) + 1)
    exact = number.is_integer() and 0 < abs(number) * count <= min(limit, float(jnp.finfo(dtype).max))
    return np.asarray(number * count, dtype) if exact else None


def _product(node: Node, numbers: Numbers) -> np.ndarray | None:
    return numbers[0] if _count(node) > 0 and not is_bool(numbers[0].dtype) and numbers[0] == 1 else None


def _count(node: Node) -> int:
    """How many elements of the operand go into one of the result."""
    size, results = jax.typeof(node.args[0]).size, node.out_avals[0].size
    return size // results if results else 0


UNIFORM: Mapping[str, Callable[[Node, Numbers], np.ndarray | None]] = {
    **dict.fromkeys(("reshape", "squeeze", "transpose", "slice", "rev", "broadcast_in_dim", "copy"), _source),
    "dynamic_slice": _source,
    "concatenate": _moved,
    "pad": _moved,
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_and", "reduce_or"), _most),
    "reduce_sum": _total,
    "reduce_prod": _product,
}
