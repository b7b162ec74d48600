"""Contractions that no step waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxpr2triton.normalize.passes import normalize
from tests.loop_programs.recurrent import gru, lstm
from tests.normalize.passing import traced


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


@pytest.mark.parametrize(("cell", "gates"), [(lstm, 4), (gru, 3)])
@pytest.mark.parametrize("features", [32, 96, 1024])
def test_no_step_of_a_gradient_projects_back_to_features(cell: Any, gates: int, features: int) -> None:
    """The gradient of all gates is stored for that of the weights in any case, however few features there are."""
    hidden, steps, batch = 128, 512, 64
    params = dict(w=shaped(features, gates * hidden), u=shaped(hidden, gates * hidden), b=shaped(gates * hidden))

    def loss(params: Any, xs: Any, h: Any) -> Any:
        return (cell(params, xs, h)[1] ** 2).sum()

    gradient = traced(jax.grad(loss, (0, 1, 2)), params, shaped(steps, batch, features), shaped(batch, hidden))
    made = normalize(gradient, apart=True)
    loops = [eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan"]
    sizes = {dim for eqn in loops for each in eqn.params["jaxpr"].jaxpr.eqns for dim in dims_of_products(each)}
    assert len(loops) == 2 and sizes == {batch, hidden, gates * hidden}


def dims_of_products(eqn: Any) -> Iterator[int]:
    if eqn.primitive.name == "dot_general":
        yield from (size for atom in (*eqn.invars, *eqn.outvars) for size in atom.aval.shape)
