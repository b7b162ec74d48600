"""Comparing two functions: what agrees agrees, and what is wrong is found."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.cli.specs import parse_spec, random_arguments
from jaxpr2triton.report.check import (
    Checked,
    Comparison,
    compare,
    gradient_names,
    inexact_outputs,
    output_names,
    show_check,
    vjp_function,
    why_nothing,
)


def error(have: Any, want: Any) -> float:
    (result,) = compare(lambda: have, lambda: want, [(0, ())], ["value"])
    return result.error


def test_the_error_is_a_part_of_the_largest_value() -> None:
    want = jnp.array([100.0, 1.0])
    assert error(want, want) == 0
    assert error(want + jnp.array([0.0, 0.5]), want) == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("have", "want", "agrees"),
    [
        ([np.nan, 1], [np.nan, 1], True),
        ([np.inf, -np.inf, 1], [np.inf, -np.inf, 1], True),
        ([np.nan, 1], [0, 1], False),
        ([0, 1], [np.nan, 1], False),
        ([np.inf, 1], [-np.inf, 1], False),
        ([3e38, 1], [np.inf, 1], False),
        ([0.0, -0.0], [-0.0, 0.0], True),
        ([1e-30], [0.0], False),
        ([], [], True),
    ],
)
def test_special_values_stand_in_the_same_places(have: list[float], want: list[float], agrees: bool) -> None:
    found = error(jnp.array(have, jnp.float32), jnp.array(want, jnp.float32))
    assert (found == 0) is agrees
    assert agrees or found > 1e-3


@pytest.mark.parametrize("want", [jnp.zeros((2, 1)), jnp.zeros(2, jnp.float16)])
def test_shapes_and_dtypes_must_be_the_same(want: jax.Array) -> None:
    assert error(jnp.zeros(2), want) == np.inf


def test_integers_booleans_and_keys_must_be_equal() -> None:
    (result,) = compare(lambda: jnp.array([1, 2]), lambda: jnp.array([1, 3]), [(0, ())], ["value"])
    assert (result.allowed, result.agrees) == (0, False)
    assert error(jnp.array([True]), jnp.array([False])) >= 1
    assert error(jax.random.key(1), jax.random.key(1)) == 0
    assert error(jax.random.key(1), jax.random.key(2)) > 0


def test_coarse_inputs_allow_coarse_outputs() -> None:
    def allowed(dtype: Any) -> float:
        args = (jnp.ones(3, dtype),)
        (result,) = compare(lambda x: x.sum(), lambda x: x.sum(), [(0, args)], ["value"])
        return result.allowed

    assert [allowed(dtype) for dtype in (jnp.float32, jnp.float16, jnp.bfloat16)] == [5e-5, 1e-2, 6e-2]
    with jax.enable_x64(True):
        assert allowed(jnp.float64) == 1e-9


def test_the_worst_seed_is_told() -> None:
    draws = [(seed, (jnp.float32(seed),)) for seed in range(4)]
    (result,) = compare(lambda x: jnp.where(x == 2, x + 1, x), lambda x: x, draws, ["value"])
    assert (result.seed, result.error, result.agrees) == (2, 0.5, False)


def test_names_follow_the_trees() -> None:
    assert output_names(jnp.zeros(2)) == ["value"]
    assert output_names({"loss": 1.0, "aux": (2.0, 3.0)}) == ["value.aux.0", "value.aux.1", "value.loss"]
    specs = (parse_spec("{w: [f32[2], i32[]]}"), parse_spec("f32[3]"), parse_spec("f32[]"))
    assert gradient_names(specs, ("params", "x", "y"), (0, 2)) == ["gradient of params.w.0", "gradient of y"]


def test_gradients_are_those_of_jax() -> None:
    def function(params: Any, x: jax.Array) -> Any:
        return {"y": params["w"] * x, "n": x.astype(jnp.int32)}

    args = random_arguments((parse_spec("{w: f32[3], i: i32[3]}"), parse_spec("f32[3]")), 0)
    cotangents = inexact_outputs(function(*args))
    by_w, by_x = vjp_function(function, (0, 1))(args, cotangents)
    assert np.allclose(by_w, cotangents[0] * args[1])
    assert np.allclose(by_x, cotangents[0] * args[0]["w"])
    (only_x,) = vjp_function(function, (1,))(args, cotangents)
    assert np.array_equal(only_x, by_x)


VALUES = Checked(2, 3, 1, ("sort",))


def test_the_table_ends_with_a_verdict() -> None:
    good = Comparison("value", "f32[4]", 1.234e-6, 5e-5, 2)
    bad = Comparison("gradient of x", "f32[2,4]", np.inf, 5e-5, 0)
    parts = {"values": VALUES, "gradients": Checked(1, 5, 0)}
    assert show_check("f(f32[4])", [good, bad], parts) == (
        "f(f32[4])\n"
        "  array          type      error    allowed  worst seed\n"
        "  value          f32[4]    1.2e-06  5.0e-05           2  ok\n"
        "  gradient of x  f32[2,4]  inf      5.0e-05           0  WRONG\n"
        "values     2 kernels ran, with 3 of 4 equations (75%); left to XLA: sort\n"
        "gradients  1 kernel ran, with 5 of 5 equations (100%)\n"
        "MISMATCH in 1 of 2 arrays"
    )
    assert show_check("f(f32[4])", [good], parts).splitlines()[-2:] == [
        "values     2 kernels ran, with 3 of 4 equations (75%); left to XLA: sort",
        "all agree",
    ]


def test_the_verdict_of_nothing() -> None:
    good = Comparison("value", "f32[4]", 0.0, 5e-5, 0)
    none = Checked(0, 0, 3, ("sort", "sort", "gather"))
    assert why_nothing([good], VALUES) == ""
    assert show_check("f()", [good], {"values": none}).splitlines()[-2:] == [
        "values  no kernel ran; left to XLA: sort (2), gather",
        "NOTHING CHECKED: XLA was compared with itself",
    ]
    assert show_check("f()", [], {"values": VALUES}) == "f()\nNOTHING CHECKED: there are no results"
