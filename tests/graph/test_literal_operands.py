"""A number written in a program can stand wherever a scalar can: as an operand of any equation, in a loop too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

X = np.linspace(-1, 1, 6, dtype=np.float32)
SCALAR = (((), ()), ((), ()))

USES: dict[str, Callable[[Any], Any]] = {
    "product_from_the_left": lambda c: c + lax.dot_general(jnp.float32(0.5), c, SCALAR),
    "product_from_the_right": lambda c: c - lax.dot_general(c, jnp.float32(0.5), SCALAR),
    "product_of_two": lambda c: c * lax.dot_general(jnp.float32(0.5), jnp.float32(3), SCALAR),
    "product_of_a_sum": lambda c: c * lax.dot_general(jnp.float32(0.5), c.sum(), SCALAR),
    "product_with_what_is_filled": lambda c: c * jnp.dot(jnp.full(6, 0.5), c),
    "outer_product": lambda c: c + jnp.outer(jnp.full(6, 0.5), c).sum(0) / 6,
    "sum_over_nothing": lambda c: c + lax.reduce_sum(jnp.float32(0.5), axes=()),
    "max_over_nothing": lambda c: c * lax.reduce_max(jnp.float32(0.5), axes=()),
    "sum_of_what_is_filled": lambda c: c + jnp.full(6, 0.5).sum() / 8,
    "max_of_what_is_filled": lambda c: c * jnp.full(6, 0.5).max(),
    "mean_of_what_is_filled": lambda c: c * jnp.full((6, 3), 0.5).mean(1),
    "largest_of_what_is_filled": lambda c: c + jnp.argmax(jnp.full(6, 0.5)),
    "running_sum_of_what_is_filled": lambda c: c + jnp.cumsum(jnp.full(6, 0.25)),
    "reshaped": lambda c: c + lax.reshape(jnp.float32(0.5), (1,)),
    "transposed": lambda c: c + lax.transpose_p.bind(jnp.float32(0.5), permutation=()),
    "padded": lambda c: lax.pad(c, jnp.float32(0.5), ((-1, 1, 0),)),
    "joined": lambda c: jnp.concatenate([c[:3], jnp.full(3, 0.5)]) * c,
    "chosen": lambda c: lax.select_n(c > 0, jnp.full(6, 0.5), c),
    "clamped": lambda c: lax.clamp(jnp.float32(-0.5), c * 2, jnp.float32(0.5)),
    "read_at": lambda c: c + lax.dynamic_index_in_dim(c, 2, keepdims=False),
    "written_at": lambda c: lax.dynamic_update_index_in_dim(c, jnp.float32(0.5), 2, 0),
    "gathered": lambda c: c + jnp.full(6, 0.5)[jnp.argmax(c)],
    "scattered": lambda c: c.at[jnp.argmax(c)].add(0.5),
    "compared": lambda c: jnp.where(jnp.full(6, 0.5) == jnp.full(6, 0.5).max(), c * 0.5, c),
    "carried_after": lambda c: jnp.full(6, 0.5) * lax.dot_general(jnp.float32(2), jnp.float32(3), SCALAR),
}


def stepwise(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (use(c), c.sum()), x, None, length=3)


def while_there(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, use(s[1])), (0, x))


AROUND = {"alone": lambda use: use, "scan": stepwise, "while": while_there}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("use", USES)
def test_a_literal_as_an_operand(use: str, around: str) -> None:
    function = AROUND[around](USES[use])
    jax.tree.map(close, j2t.fuse(function, backend="interpret")(X), jax.jit(function)(X))
    left = [leftover for leftover in j2t.transpile(function, X).leftovers if "no kernel" in leftover.why]
    assert not left


@pytest.mark.parametrize("use", USES)
def test_the_gradient_of_a_literal_as_an_operand(use: str) -> None:
    function = stepwise(USES[use])
    gradient = jax.grad(lambda x: sum(map(jnp.sum, function(x))))
    close(jax.grad(lambda x: sum(map(jnp.sum, j2t.fuse(function, backend="interpret")(x))))(X), jax.jit(gradient)(X))


def test_a_literal_in_a_product_of_a_loop() -> None:
    """The gradient of a dot product with itself multiplies with the number 1."""

    def descended(x: Any) -> Any:
        return lax.scan(lambda c, _: (c - 0.1 * jax.grad(lambda p: jnp.dot(p, p))(c), None), x, None, length=4)[0]

    program = j2t.transpile(descended, X)
    assert len(program.compiled.kernels) == 1 and not program.leftovers
    (scan,) = (eqn for eqn in program.compiled.stages["trace"].jaxpr.eqns if eqn.primitive.name == "scan")
    products = [eqn for eqn in scan.params["jaxpr"].jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert any(isinstance(atom, jex.Literal) for eqn in products for atom in eqn.invars)
    close(j2t.fuse(descended, backend="interpret")(X), jax.jit(descended)(X))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
