"""What is known before a program runs is decided then."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.loops.specialise import specialise_loops
from tests.normalize.passing import after, primitives_of, traced

X = np.arange(5, dtype=np.float32)


def test_before_and_after() -> None:
    def function(x: Any) -> Any:
        return lax.platform_dependent(x, tpu=jnp.sin, default=jnp.cos)

    assert str(after(specialise_loops, function, X)) == "{ lambda ; a:f32[5]. let b:f32[5] = cos a in (b,) }"


def test_platforms_that_kernels_run_on_are_not_decided() -> None:
    closed = traced(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X)
    assert "platform_index" in primitives_of(specialise_loops(closed))


def test_a_branch_that_is_known_is_taken() -> None:
    result = after(specialise_loops, lambda x: lax.switch(7, [jnp.sin, jnp.cos, jnp.tan], x), X)
    assert "cond" not in primitives_of(result)


def test_masks_are_made_inside_of_the_loops_that_read_them() -> None:
    def scanned(x: Any) -> Any:
        mask = jnp.arange(5) >= 2
        return lax.scan(lambda c, _: (jnp.where(mask, c * 2, c), None), x, None, length=3)[0]

    (eqn,) = remove_dead(after(specialise_loops, scanned, X)).jaxpr.eqns
    assert len(eqn.invars) == 1

    def repeated(x: Any) -> Any:
        mask = jnp.arange(5) >= 2
        return lax.while_loop(lambda c: c[mask.argmax()] < 99, lambda c: jnp.where(mask, c * 2, c), x)

    (loop,) = (eqn for eqn in after(specialise_loops, repeated, X).jaxpr.eqns if eqn.primitive.name == "while")
    assert loop.params["body_nconsts"] == 0


def test_real_work_stays_outside() -> None:
    closed = traced(lambda x: lax.scan(lambda c, _: (c + jnp.sin(x), None), x, None, length=3)[0], X)
    assert len(specialise_loops(closed).jaxpr.eqns) == len(closed.jaxpr.eqns)


def test_programs_without_loops_and_branches_are_returned_as_they_are() -> None:
    before = traced(jnp.sin, X)
    assert specialise_loops(before) is before
