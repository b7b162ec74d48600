"""How many instructions functions are, which the estimate of loops goes by: as many as their machine code has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

# those that loops have most; the others take minutes
COUNTED: dict[str, Callable[[Any], Any]] = {"exp": jnp.exp, "logistic": lax.logistic, "tanh": jnp.tanh}


def instructions(function: Callable[[Any], Any], times: int) -> float:
    """Of a step that calls a function so many times, each on what the one before has made."""

    def step(_: Any, x: Any) -> Any:
        for _ in range(times):
            x = function(x) * x + 0.25  # not affine
        return x

    def run(x: Any) -> Any:
        return lax.fori_loop(0, 1000, step, x)

    (kernel,) = j2t.transpile(run, jax.ShapeDtypeStruct((4096,), jnp.float32)).kernels
    return cycles_of(kernel, TARGETS["sm_90"]).loops[0].instructions


@pytest.mark.compile
@pytest.mark.parametrize("name", COUNTED)
def test_a_function_is_as_many_instructions_as_its_row_says(name: str) -> None:
    """Slow ways for large arguments are not counted, and neither is what two of them have in common."""
    found = instructions(COUNTED[name], 2) - instructions(COUNTED[name], 1)
    row = TABLE[name]
    assert isinstance(row, Pointwise)
    weight = row.weight
    assert weight / 1.5 - 2 <= found <= 1.5 * weight + 3
