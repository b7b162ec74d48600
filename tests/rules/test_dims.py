"""Which dimensions go on in a result: what is read off the rows is what JAX computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.region import chunked_p, flagged_p
from jaxpr2triton.ir.windows import windowed
from jaxpr2triton.rules.dims import Dims, dims_of, is_elementwise
from jaxpr2triton.rules.indexing import TABLE as INDEXING
from jaxpr2triton.rules.rows import TABLE
from tests.programs import windows

Shape = tuple[int, ...]


def equation(fn: Callable[..., Any], *shapes: Shape) -> Any:
    (eqn,) = jax.make_jaxpr(fn)(*(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)).jaxpr.eqns
    return eqn


def spelled(dims: Dims) -> str:
    """`0.1 → 0` for the first operand's last dimension, `~` where it is not read at the same index."""
    kept = [f"{k.operand}.{k.dim} {'→' if k.exact else '~'} {k.place}" for k in dims.kept]
    return ", ".join(kept + [f"new {place}" for place in sorted(dims.fresh)])


EQUATIONS: list[tuple[Callable[..., Any], list[Shape], str]] = [
    (lambda x, y: x * y, [(3, 4), (3, 4)], "0.0 → 0, 0.1 → 1, 1.0 → 0, 1.1 → 1"),
    (lambda low, x: lax.clamp(low, x, 1.0), [(), (3,)], "1.0 → 0"),
    (lambda x: x.T, [(3, 4)], "0.0 → 1, 0.1 → 0"),
    (lambda x: lax.broadcast_in_dim(x, (3, 4), (1,)), [(4,)], "0.0 → 1, new 0"),
    (lambda x: lax.broadcast_in_dim(x, (3, 4), (0, 1)), [(3, 1)], "0.0 → 0, new 1"),
    (lambda x: lax.squeeze(x, (-2,)), [(3, 1, 4)], "0.0 → 0, 0.2 → 1"),
    (lambda x: lax.reshape(x, (3, 2, 2)), [(3, 4)], "0.0 → 0"),
    (lambda x: lax.reshape(x, (6, 4)), [(2, 3, 4)], "0.2 → 1"),
    (lambda x: lax.reshape(x, (12,)), [(3, 4)], ""),
    (lambda x: lax.slice(x, (0, 1), (3, 3)), [(3, 4)], "0.0 → 0"),
    (lambda x: lax.slice(x, (0, 0), (3, 4), (2, 1)), [(3, 4)], "0.1 → 1"),
    (lambda x: lax.rev(x, (0,)), [(3, 4)], "0.0 ~ 0, 0.1 → 1"),
    (lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, 2, 0)]), [(3, 4)], "0.0 → 0"),
    (lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, -1, 0)]), [(3, 4)], "0.0 → 0, 0.1 ~ 1"),
    (lambda x, y: lax.concatenate([x, y], 0), [(3, 4), (2, 4)], "0.1 → 1, 1.1 → 1"),
    (lambda x: lax.reduce_max(x, (0,)), [(3, 4)], "0.1 → 0"),
    (lambda x: lax.argmin(x, 1, np.int32), [(3, 4)], "0.0 → 0"),
    (
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
        [(2, 3, 4), (2, 4, 5)],
        "0.0 → 0, 1.0 → 0, 0.1 → 1, 1.2 → 2",
    ),
    (lambda x: chunked_p.bind(x, dim=0, size=2), [(3, 4)], "0.0 → 0, 0.1 → 1"),
    (lambda x: windowed(x, 0, 3, 2, 3), [(7, 4)], "0.1 → 2"),
    (flagged_p.bind, [(3, 4)], "0.0 → 0, 0.1 → 1"),
    (lambda: lax.iota(np.float32, 3), [], "new 0"),
]


@pytest.mark.parametrize(("fn", "shapes", "expected"), EQUATIONS)
def test_read_off(fn: Callable[..., Any], shapes: list[Shape], expected: str) -> None:
    dims = dims_of(equation(fn, *shapes))
    assert dims is not None
    assert spelled(dims) == expected


@pytest.mark.parametrize(("fn", "shapes", "expected"), EQUATIONS)
def test_it_is_what_jax_computes(fn: Callable[..., Any], shapes: list[Shape], expected: str) -> None:
    """A change at one index of a dimension changes the result at that index of the one it goes on as, or nothing."""
    dims = dims_of(equation(fn, *shapes))
    assert dims is not None
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.1, 0.9, shape).astype(np.float32) for shape in shapes]
    before = np.asarray(fn(*args))
    for kept in (kept for kept in dims.kept if kept.exact):
        for index in range(shapes[kept.operand][kept.dim]):
            changed = [arg.copy() for arg in args]
            np.moveaxis(changed[kept.operand], kept.dim, 0)[index] += 5.0
            differs = np.moveaxis(np.asarray(fn(*changed)) != before, kept.place, 0)
            assert not np.delete(differs, index, axis=0).any()


def test_every_row_says_it() -> None:
    """Each primitive that moves values is among the examples; a reduction or a sort is not taken for elementwise."""
    seen = {equation(fn, *shapes).primitive.name for fn, shapes, _ in EQUATIONS}
    assert seen >= INDEXING.keys()
    assert all(not is_elementwise(name) for name in TABLE if name.startswith("reduce_"))
    assert is_elementwise("add") and is_elementwise("logistic") and not is_elementwise("sort")


def test_what_has_no_row_is_not_known() -> None:
    assert dims_of(equation(windows, (4,))) is None
    assert dims_of(equation(lambda x: jnp.sort(x), (4,)).params["jaxpr"].eqns[0]) is None
