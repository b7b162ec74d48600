"""Which axes are shardable, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.cli.coverage import IMPLEMENTED, covered
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS
from jaxpr2triton.shards import walks
from jaxpr2triton.shards.flow import Classes
from jaxpr2triton.shards.shardable_axes import divided

X = np.ones((16, 6), np.float32)


def slid(x: Any) -> Any:
    """Sixteen images of six pixels and one channel."""
    return lax.conv_general_dilated(x[:, None], jnp.ones((2, 1, 3)), (1,), "VALID")


def mixed(x: Any) -> Any:
    """One image of six pixels and sixteen channels."""
    return lax.conv_general_dilated(x[None], jnp.ones((2, 16, 3)), (1,), "VALID")


def meeting(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c * x).sum(0) * c, jnp.ones(6))


def printing_in_order(x: Any) -> Any:
    jax.debug.print("{}", x[0, 0], ordered=True)
    return x * 2


def printing_in_a_loop(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        jax.debug.print("{}", c[0, 0])
        return jnp.sin(c), None

    return lax.scan(step, x, None, length=2)[0]


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: jax.nn.softmax(x, 1), ""),
        (lambda x: x - x.mean(0), ""),
        (lambda x: x.reshape(96) * 2, ""),
        (lambda x: x.reshape(4, 4, 6) * 2, ""),
        (lambda x: x.reshape(3, 32), "there is no number of parts that divides it"),
        (lambda x: x @ x.T, "the value would be split along two of its dimensions"),
        (lambda x: jnp.sort(x, 1), ""),
        (lambda x: x + jnp.arange(16.0)[:, None], ""),
        (lambda x: jnp.sort(x, 0), "`sort` needs it whole"),
        (lambda x: jnp.cumsum(x, 0), "`cumsum` needs it whole"),
        (lambda x: x[::-1], "`rev` needs it whole"),
        (lambda x: x[1:] - x[:-1], "`slice` needs it whole"),
        (lambda x: lax.associative_scan(jnp.add, x, axis=1), ""),
        (lambda x: (x > 0).any(0), ""),
        (lambda x: jnp.bitwise_or.reduce(x.astype(jnp.int32), 0), "`reduce_or` needs it whole"),
        (lambda x: x.argmax(0), "`argmax` needs it whole"),
        (lambda x: lax.linalg.lu_pivots_to_permutation(x.astype(jnp.int32), 6), ""),
        (slid, ""),
        (mixed, ""),
        (lambda x: slid(x.T), "`conv_general_dilated` needs it whole"),
        (lambda x: x.at[:, 2].max(0.0), ""),
        (lambda x: jnp.fft.fft(x, axis=0).real, "`fft` stays with XLA, which splits it as it likes"),
        (lambda x: lax.scan(lambda c, r: (jnp.sin(c + r), c * 2), jnp.ones(6), x)[1], "a loop goes along it"),
        (meeting, "sharding needs a collective in every step of a loop, at `mul`"),
        (printing_in_a_loop, "a loop in it has side effects"),
        (printing_in_order, "its side effects are in order"),
    ],
)
def test_the_first_axis(fn: Callable[..., Any], why: str) -> None:
    found = divided(jax.make_jaxpr(fn)(X))
    (first,) = [each for each in found if any(place.endswith("x[0]") or place == "arg0[0]" for place in each.places)]
    assert first.why_whole == why


def test_constants_are_whole_unless_they_are_hoisted() -> None:
    closed = jax.make_jaxpr(lambda x: x + jnp.asarray(X))(X)
    assert set(Classes(closed.jaxpr).why.values()) == {"it is a constant of the program"}
    assert {each.why_whole for each in divided(closed)} == {""}


def test_what_is_split_together() -> None:
    def scaled(x: Any, scale: Any, t: Any) -> dict[str, Any]:
        return {"y": (x - x.mean(-1, keepdims=True)) * scale, "sums": jnp.cumsum(t)}

    program = j2t.transpile(scaled, X, X[0], X[:, 0])
    assert program.explain(why=True).splitlines()[-4:] == [
        "  over several devices",
        "    x[0], y[0]: shardable",
        "    x[1], scale[0], y[1]: shardable, with one all-reduce",
        "    t[0], sums[0]: replicated: `cumsum` needs it whole",
    ]
    facts = program.explain_json()["devices"]
    assert [each["split"] for each in facts] == [True, True, False]


def test_nothing_that_a_kernel_can_do_is_left_to_xla_on_several_devices() -> None:
    known = {*walks._PAIRED, *walks._WRITTEN_OUT, *TABLE, *DECOMPOSITIONS, *LOOPS}
    known |= {"dot_general", "iota", "cond", "while"}
    named_axes = {"pmax", "pmin", "psum", "all_gather", "axis_index"}  # of a vmap, which is gone by then
    assert set(covered()) - known - named_axes - set(IMPLEMENTED) == set()
