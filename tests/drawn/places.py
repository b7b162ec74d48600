"""Draws gathers and scatters with every sort of dimension numbers, windows, modes and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.drawn.choices import Choices

SCATTERS: Mapping[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter_add": lax.scatter_add,
    "scatter_sub": lax.scatter_sub,
    "scatter_mul": lax.scatter_mul,
    "scatter_min": lax.scatter_min,
    "scatter_max": lax.scatter_max,
}
APPLIED: Mapping[str, Callable[[Any], Any]] = {
    "double": lambda x: x + x,
    "affine": lambda x: x * 2 - 1,
    "largest": lambda x: jnp.maximum(x, jnp.asarray(1, x.dtype)),
    "nothing": lambda x: x,
    "three": lambda x: jnp.asarray(3, x.dtype),
    "tanh": jnp.tanh,
}
NAMES = ("gather", *SCATTERS, *APPLIED)
FLOATS = ("float32", "bfloat16", "float16", "float64")
DTYPES = (*FLOATS, "int32", "uint8", "int8", "uint32", "bool")
ARITHMETIC = ("scatter_add", "scatter_sub", "scatter_mul", "double", "affine", "largest", "three")
INDICES = ("int32", "uint8", "int8", "uint16", "int16", "uint32", "int64", "uint64")
MODES = ("fill", "clip", "promise_in_bounds")


@dataclass(frozen=True)
class Case:
    """One equation and what it is tried with."""

    name: str
    operand: tuple[int, ...]
    window: tuple[int, ...]  # 1 along batching dimensions
    dropped: tuple[int, ...]
    indexed: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    lead: tuple[int, ...]
    window_dims: tuple[int, ...]  # of the updates, or of the result of a gather
    dtype: str
    index_dtype: str
    mode: str
    even: tuple[tuple[int, int], ...] | None  # (start, step) of each component, if the program itself knows the places
    unique: bool
    batched: tuple[bool, bool, bool]  # operand, indices, updates
    seed: int

    @property
    def updates(self) -> tuple[int, ...]:
        windows = iter(w for d, w in enumerate(self.window) if d not in (*self.dropped, *self.batching))
        lead = iter(self.lead)
        rank = len(self.lead) + len(self.window_dims)
        return tuple(next(windows) if d in self.window_dims else next(lead) for d in range(rank))

    @property
    def count(self) -> int:
        return math.prod(size for d, size in enumerate(self.lead) if d not in self.indices_batching)


def drawn_case(choices: Choices, names: tuple[str, ...] = NAMES) -> Case:
    number, pick = choices.number, choices.pick
    name = pick(names)
    operand = tuple(number(1, 5) for _ in range(number(1, 3)))
    kinds = [pick(("indexed", "indexed", "window", "batch")) for _ in operand]
    if name != "gather" and "indexed" not in kinds:  # where there is no index at all, XLA's CPU mistakes the place
        kinds[0] = "indexed"
    batching = tuple(d for d, kind in enumerate(kinds) if kind == "batch")
    indexed = shuffled(choices, [d for d, kind in enumerate(kinds) if kind == "indexed"])
    dropped, window = [], []
    for d, size in enumerate(operand):
        if d in batching or pick((True, False)):
            window.append(1)
            dropped += [] if d in batching else [d]
        else:
            window.append(number(1, size))
    free = [number(1, 4) for _ in range(number(0, 2))]
    slots = shuffled(choices, range(len(batching) + len(free)))
    indices_batching = slots[: len(batching)]
    sizes = dict(zip(slots, [*(operand[d] for d in batching), *free]))
    lead = tuple(sizes[slot] for slot in range(len(slots)))
    windows = len(operand) - len(dropped) - len(batching)
    window_dims = tuple(sorted(shuffled(choices, range(len(lead) + windows))[:windows]))
    even = tuple((number(-1, 3), number(-1, 2)) for _ in indexed) if pick((False, False, True)) else None
    dtypes = DTYPES[:-1] if name in ARITHMETIC else FLOATS if name == "tanh" else DTYPES
    case = Case(
        name,
        operand,
        tuple(window),
        tuple(dropped),
        indexed,
        batching,
        indices_batching,
        lead,
        window_dims,
        pick(dtypes),
        pick(INDICES),
        pick(MODES),
        even,
        False,
        (pick((False, True)), pick((False, True)), pick((False, True))),
        number(0, 999),
    )
    return Case(**{**vars(case), "unique": case.count == 1 and pick((False, True))})


def shuffled(choices: Choices, items: Any) -> tuple[int, ...]:
    left, found = list(items), []
    while left:
        found.append(left.pop(choices.number(0, len(left) - 1)))
    return tuple(found)


def equation(case: Case) -> Callable[..., Any]:
    """(operand, indices, updates) → the result."""
    how: dict[str, Any] = {"mode": case.mode, "unique_indices": case.unique}
    batching: dict[str, Any] = {"operand_batching_dims": case.batching}
    if case.name == "gather":
        numbers = lax.GatherDimensionNumbers(
            case.window_dims, case.dropped, case.indexed, start_indices_batching_dims=case.indices_batching, **batching
        )
        return lambda x, k, u: lax.gather(x, places(case, k), numbers, case.window, **how)
    spread = lax.ScatterDimensionNumbers(
        case.window_dims, case.dropped, case.indexed, scatter_indices_batching_dims=case.indices_batching, **batching
    )
    if case.name in SCATTERS:
        return lambda x, k, u: SCATTERS[case.name](x, places(case, k), u, spread, **how)
    apply = partial(lax.scatter_apply, func=APPLIED[case.name], update_shape=case.updates)
    return lambda x, k, u: apply(x, places(case, k), dimension_numbers=spread, **how)


def places(case: Case, indices: Any) -> Any:
    """The indices, or others that the program itself computes of nothing."""
    if case.even is None:
        return indices
    free = [d for d in range(len(case.lead)) if d not in case.indices_batching]
    if not case.indexed:
        return jnp.zeros((*case.lead, 0), case.index_dtype)
    along = lax.broadcasted_iota(np.int32, case.lead, free[-1]) if free else jnp.zeros(case.lead, np.int32)
    return jnp.stack([start + step * along for start, step in case.even], -1)


def arguments(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of which sums and products are exact; indices inside, near, and far away."""
    rng = np.random.default_rng(case.seed)

    def some(*shape: int) -> np.ndarray:
        numbers = rng.choice([-2, -1, 0.5, 1, 2, 3], shape) if case.dtype in FLOATS else rng.integers(0, 100, shape)
        return numbers.astype(jnp.dtype(case.dtype))

    batches = [(2,) if batched else () for batched in case.batched]
    limits = np.iinfo(case.index_dtype)
    columns = []
    for d in case.indexed:
        last = case.operand[d] - case.window[d]
        shape = (*batches[1], *case.lead)
        inside = rng.integers(0, last + 1, shape)
        around = rng.integers(max(limits.min, -2), last + 3, shape)
        largest = limits.max // 2 + 1 if limits.max < 1 << 32 else 1 << 31  # JAX drops what is above 32 bits
        lowest = limits.min if limits.max < 1 << 32 else limits.max
        far = rng.choice(np.array([lowest, limits.max, largest], case.index_dtype), shape)
        which = rng.choice([0, 0, 1, 1, 2], shape) if case.mode != "promise_in_bounds" else np.zeros(shape, int)
        columns.append(np.choose(which, [x.astype(case.index_dtype) for x in (inside, around, far)]))
    empty = np.zeros((*batches[1], *case.lead, 0), case.index_dtype)
    indices = np.stack(columns, -1) if columns else empty
    return some(*batches[0], *case.operand), indices, some(*batches[2], *case.updates)


def programs(case: Case) -> Mapping[str, Callable[..., Any]]:
    """The equation, its batch, and its gradients where JAX has some."""
    one = equation(case)
    axes = tuple(0 if batched else None for batched in case.batched)
    whole = jax.vmap(one, axes) if any(case.batched) else one
    found = {"value": whole}
    divides_by_zero = case.name in ("scatter_min", "scatter_max") and case.mode == "clip"  # JAX's own rule does
    if case.dtype in FLOATS and case.name not in APPLIED and not divides_by_zero:

        def loss(x: Any, k: Any, u: Any) -> Any:
            result = whole(x, k, u)
            return (result * (lax.iota(np.int32, result.size).reshape(result.shape) % 3 - 1).astype(result.dtype)).sum()

        found["gradients"] = jax.grad(loss, (0, 2))
    return found
