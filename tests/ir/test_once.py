"""What is found out about a jaxpr is found out once, and forgotten with it."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxpr2triton.ir.evaluate import needed, needed_in
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.once import Without, makers_of, once


def program() -> Any:
    return jax.make_jaxpr(lambda x, y: (jnp.sin(x) * y, jnp.cos(jnp.exp(y))))(1.0, 2.0).jaxpr


def test_it_is_found_once() -> None:
    asked = []

    @once
    def length(jaxpr: Any) -> int:
        asked.append(None)
        return len(jaxpr.eqns)

    one, other = program(), program()
    assert (length(one), length(one), length(other)) == (4, 4, 4)
    assert len(asked) == 2


def test_it_is_forgotten() -> None:
    jaxpr = program()
    makers_of(jaxpr)
    seen = weakref.ref(jaxpr)
    del jaxpr
    gc.collect()
    assert seen() is None


def test_what_is_needed() -> None:
    jaxpr = program()
    for targets, given in ((jaxpr.outvars, ()), (jaxpr.outvars[1:], ()), (jaxpr.outvars, jaxpr.eqns[0].outvars)):
        assert needed_in(jaxpr, targets, given) == needed(jaxpr.eqns, targets, given)
    assert needed_in(jaxpr, jaxpr.outvars, (), among={1}) == [jaxpr.eqns[1]]


def test_without() -> None:
    whole = {"a": 1, "b": 2}
    rest = Without(whole, ["b", "c"])
    assert (dict(rest), len(rest), "b" in rest, rest["a"]) == ({"a": 1}, 1, False, 1)
    with pytest.raises(KeyError):
        rest["b"]
    whole["d"] = 3
    assert "d" in rest


def test_a_remembered_hash_is_not_pickled() -> None:
    index = of_axis(Axis("i", 4))
    hash(index)
    copy = pickle.loads(pickle.dumps(index))
    assert copy == index
    assert "_hash" not in copy.__dict__
