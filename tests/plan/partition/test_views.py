"""What only renames an array that is in memory launches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton import fuse, transpile

X = np.linspace(0.5, 1.5, 12, dtype=np.float32)[:, None]


def checked(x: Any, wrong: Any) -> Any:
    """As libraries check: the one branch raises, the other hands on what there is."""

    def fails(x: Any) -> Any:
        return jax.pure_callback(lambda x: 1 / 0, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return jax.lax.cond(wrong, fails, lambda x: x, jnp.sin(x))


@pytest.mark.parametrize("rename", [lambda x: x[:, 0], lambda x: x.reshape(3, 4)], ids=["squeeze", "reshape"])
def test_nothing_follows_a_check(rename: Callable[[Any], Any]) -> None:
    def fn(x: Any) -> Any:
        return rename(checked(x, jnp.any(x > 2)))

    program = transpile(fn, X)
    assert [left.primitive for left in program.leftovers] == ["cond"]
    assert len(program.kernels) == len(transpile(lambda x: checked(x, jnp.any(x > 2)), X).kernels)
    np.testing.assert_allclose(fuse(fn, backend="interpret")(X), rename(np.sin(X)), rtol=1e-6)
