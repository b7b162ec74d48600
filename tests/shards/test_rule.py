"""What XLA's partitioner is told about a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.front.devices import Splittable, splittable
from jaxpr2triton.shards.rule import Rule

X = np.ones((16, 32), np.float32)


@pytest.mark.parametrize(
    ("fn", "rule"),
    [
        (jnp.exp, Rule("s0 s1 -> s0 s1", (), {})),
        (lambda x: x.sum(0), Rule("s0 s1 -> s1", (), {})),
        (lambda x: x.T @ x, Rule("s0 w0 -> w1 w2", ("w0", "w1", "w2"), {})),
        (lambda x: jnp.cumsum(x, 0), Rule("s0 s1 -> s0 s1", ("s0",), {})),
        (lambda x: x.reshape(512), Rule("s0 w0 -> (s0 w1)", ("w0", "w1"), {"w1": 32})),
        (lambda x: (x.reshape(64, 8), x[:, 0]), Rule("s0 w0 -> (s0 w1) w2, s0", ("w0", "w1", "w2"), {"w1": 4})),
        (lambda x: (x, 1.0), Rule("s0 s1 -> s0 s1, ", (), {})),
        (lambda x: (jnp.cumsum(x, 0), x * 2), Rule("w0 s0 -> w1 s0, w2 s0", ("w0", "w1", "w2"), {})),
        (lambda x: jnp.cumsum(x, 0).sum(0), Rule("w0 s0 -> s0", ("w0",), {})),
    ],
)
def test_rules(fn: Callable[..., Any], rule: Rule) -> None:
    found = splittable(jax.make_jaxpr(fn)(X))
    assert isinstance(found, Splittable)
    assert found.rule == rule


def test_where_nothing_goes_on_there_is_no_rule() -> None:
    assert splittable(jax.make_jaxpr(lambda x: jnp.sort(x, 0).reshape(512))(X)) is None


def test_a_key_is_its_words() -> None:
    keys = jax.random.split(jax.random.key(0), 16)
    found = splittable(jax.make_jaxpr(jax.vmap(jax.random.uniform))(keys))
    assert isinstance(found, Splittable)
    assert found.rule == Rule("s0 w0 -> s0", ("w0",), {})
