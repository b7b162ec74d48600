"""Equations that return their operand are not written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import primitives

from jaxpr2triton.normalize.calls.identities import drop_identities
from tests.normalize.passing import after, primitives_of, traced

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _convert(x: Any, weak: bool = False) -> Any:
    return primitives.convert_element_type_p.bind(x, new_dtype=np.dtype(x.dtype), weak_type=weak, sharding=None)


IDENTITIES: dict[str, Callable[[Any], Any]] = {
    "stop_gradient": lax.stop_gradient,
    "copy": jnp.copy,
    "name": lambda x: checkpoint_name(x, "saved"),
    "optimization_barrier": lax.optimization_barrier,
    "several at once": lambda x: sum(lax.optimization_barrier((x, x + 1))),
    "convert_element_type": _convert,
    "transpose": lambda x: primitives.transpose_p.bind(x, permutation=(0, 1)),
    "reshape": lambda x: primitives.reshape_p.bind(x, new_sizes=(2, 3), dimensions=None, sharding=None),
    "broadcast_in_dim": lambda x: primitives.broadcast_in_dim_p.bind(
        x, shape=(2, 3), broadcast_dimensions=(0, 1), sharding=None
    ),
    "slice": lambda x: primitives.slice_p.bind(x, start_indices=(0, 0), limit_indices=(2, 3), strides=(1, 1)),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (1, 0), (2, 3)),
    "squeeze": lambda x: primitives.squeeze_p.bind(x, dimensions=()),
    "pad": lambda x: lax.pad(x, np.float32(0), [(0, 0, 0)] * 2),
    "rev": lambda x: lax.rev(x[None], (0,)),
    "reduce_sum": lambda x: primitives.reduce_sum_p.bind(x, axes=(), out_sharding=None),
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 23),
    "device_put": jax.device_put,
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name: str) -> None:
    function = IDENTITIES[name]
    left = primitives_of(after(drop_identities, lambda x: jnp.sin(function(x)), X))
    assert [primitive for primitive in left if primitive not in ("add", "broadcast_in_dim")] == ["sin"]


def test_before_and_after() -> None:
    assert str(after(drop_identities, lambda x: jnp.sin(lax.stop_gradient(x).T.T[:, :]), X)) == (
        "{ lambda ; a:f32[2,3]. let\n"
        "    b:f32[3,2] = transpose[permutation=(1, 0)] a\n"
        "    c:f32[2,3] = transpose[permutation=(1, 0)] b\n"
        "    d:f32[2,3] = sin c\n"
        "  in (d,) }"
    )


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: lax.reduce_precision(x, 5, 10), "reduce_precision"),
        (lambda x: x[:, ::2], "slice"),
        (lambda x: x.T, "transpose"),
        (lambda x: lax.rev(x, (0,)), "rev"),
        (lambda x: lax.pad(x, np.float32(0), [(1, 0, 0)] * 2), "pad"),
        (lambda x: x.astype(jnp.bfloat16), "convert_element_type"),
        (lambda x: jax.device_put(x, jax.devices()[0]), "device_put"),
    ],
)
def test_what_does_something_stays(function: Callable[[Any], Any], kept: str) -> None:
    assert kept in primitives_of(after(drop_identities, lambda x: function(lax.stop_gradient(x)), X))


@pytest.mark.parametrize("weak", [True, False])
def test_the_weak_type_of_an_output_is_kept(weak: bool) -> None:
    result = after(drop_identities, lambda x: _convert(x, weak), 1.5 if not weak else X)
    assert result.out_avals[0].weak_type is weak
    assert primitives_of(result) == ["convert_element_type"]


def test_a_program_of_nothing_but_its_operand() -> None:
    assert str(after(drop_identities, lax.stop_gradient, X)) == "{ lambda ; a:f32[2,3]. let  in (a,) }"


def test_programs_without_identities_are_returned_as_they_are() -> None:
    before = traced(jnp.sin, X)
    assert drop_identities(before) is before
