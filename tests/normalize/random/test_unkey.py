"""Programs of random numbers become integer arithmetic, and keep every bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from jax.sharding import PartitionSpec as P

from jaxpr2triton._compat import user_frame
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.normalize import normalize
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.random.threefry import threefry2x32
from jaxpr2triton.normalize.random.unkey import RANDOM, unkey
from jaxpr2triton.pipeline.compile import compile_jaxpr
from tests.normalize.passing import primitives_of, same_bits, traced
from tests.normalize.random.key_programs import (
    DRAWS,
    KEY,
    KEY_PROGRAMS,
    KEYS,
    LOOPS,
    MOST,
    RAW,
    RAWS,
    WIDE,
    nested,
    until_large,
)

PROGRAMS = {**DRAWS, **KEY_PROGRAMS, **LOOPS}
ROUNDED = {"gradient"}  # XLA compiles what surrounds the bits in another way
KEPT = {"gamma", "gamma, raw", "dirichlet"}


def results(function: Callable[..., Any], args: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(jax.jit(function)(*args))
    return [np.asarray(random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves]


def leftovers(jaxpr: Any, *, outermost: bool = True) -> set[str]:
    """What is still random in a program; the keys that come in and go out count only in bodies of loops."""
    found: set[str] = set()
    free = {"random_wrap", "random_unwrap"} if outermost else set()
    for eqn in jaxpr.eqns:
        found |= {eqn.primitive.name} & (RANDOM.keys() - free | {"random_gamma"})
        for inner in jex.jaxprs_in_params(eqn.params):
            found |= leftovers(getattr(inner, "jaxpr", inner), outermost=False)
    return found


def check(function: Callable[..., Any], args: Any, *, rounded: bool = False) -> jex.ClosedJaxpr:
    args = args if isinstance(args, tuple) else (args,)
    before = traced(function, *args)
    result = unkey(before)
    assert result.out_avals == before.out_avals
    assert result.in_avals == before.in_avals
    expected = results(function, args)
    actual = results(lambda *args: jax.core.eval_jaxpr(result.jaxpr, result.consts, *args), args)
    for one, other in zip(expected, actual, strict=True):
        if rounded:
            np.testing.assert_allclose(other, one, rtol=1e-6)
        else:
            assert same_bits(one, other), f"{one} became {other}"
    return result


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits(name: str) -> None:
    result = check(*PROGRAMS[name], rounded=name in ROUNDED)
    assert leftovers(result.jaxpr) <= ({"random_gamma"} if name in KEPT else set())


OLDER = [*(name for name in PROGRAMS if name.startswith(("bits", "normal", "split, "))), "permutation", "vmap of bits"]


@pytest.mark.parametrize("name", [*OLDER, "vmap of a computed index", "vmap of numbers", "scan", "nested, batch"])
def test_the_older_numbering(name: str) -> None:
    with jax.threefry_partitionable(False):
        result = check(*PROGRAMS[name])
        assert not leftovers(result.jaxpr)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("local", [True, False])
def test_64_bits(name: str, local: bool) -> None:
    with jax.enable_x64(True), jax.threefry_partitionable(local):
        assert not leftovers(check(*WIDE[name]).jaxpr)


@pytest.mark.parametrize(
    ("key", "counts", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_published_vectors(key: Any, counts: Any, expected: Any) -> None:
    words = [np.full(2, word, np.uint32) for word in (*key, *counts)]
    for result, word in zip(threefry2x32((words[0], words[1]), (words[2], words[3])), expected, strict=True):
        np.testing.assert_array_equal(result, np.full(2, word, np.uint32))


def test_programs_without_keys_are_returned_as_they_are() -> None:
    before = traced(lambda x: lax.scan(lambda c, x: (jnp.sin(c) + x, c), 0.0, x), MOST)
    assert unkey(before) is before


def test_arrays_of_too_many_elements_stay() -> None:
    before = traced(
        lambda k: random.bits(k, (1 << 17, 1 << 16), jnp.uint8), jax.eval_shape(lambda: random.split(KEY)[0])
    )
    assert [eqn.primitive.name for eqn in unkey(before).jaxpr.eqns][-1] == "random_bits"
    with jax.threefry_partitionable(False):
        before = traced(lambda k: random.split(k, (1 << 32))[5], jax.eval_shape(lambda: random.split(KEY)[0]))
        assert "random_split" in primitives_of(unkey(before))


def test_before_and_after() -> None:
    assert str(unkey(traced(lambda keys: keys[::-1], random.split(KEY)))) == (
        "{ lambda ; a:key<fry>[2]. let\n"
        "    b:u32[2,2] = random_unwrap a\n"
        "    c:u32[2,1] = slice[limit_indices=(2, 1) start_indices=(0, 0) strides=(1, 1)] b\n"
        "    d:u32[2] = squeeze[dimensions=(1,)] c\n"
        "    e:u32[2,1] = slice[limit_indices=(2, 2) start_indices=(0, 1) strides=(1, 1)] b\n"
        "    f:u32[2] = squeeze[dimensions=(1,)] e\n"
        "    g:u32[2] = rev[dimensions=(0,)] d\n"
        "    h:u32[2] = rev[dimensions=(0,)] f\n"
        "    i:u32[2,1] = broadcast_in_dim[broadcast_dimensions=(0,)] g\n"
        "    j:u32[2,1] = broadcast_in_dim[broadcast_dimensions=(0,)] h\n"
        "    k:u32[2,2] = concatenate[dimension=1] i j\n"
        "    l:key<fry>[2] = random_wrap[impl=fry] k\n"
        "  in (l,) }"
    )


@pytest.mark.parametrize("key", [KEY, RAW])
def test_a_loop_carries_words_and_computes_what_it_needs(key: Any) -> None:
    """All values are single numbers: nobody writes the array of keys that a split makes."""

    def step(key: Any, _: Any) -> Any:
        key, now = random.split(key)
        return key, random.normal(now)

    result = unkey(traced(lambda key: lax.scan(step, key, None, length=5)[1], key))
    (body,) = [eqn.params["jaxpr"].jaxpr for eqn in result.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert [str(var.aval) for var in body.invars] == ["uint32[]", "uint32[]"]
    assert {var.aval.size for eqn in body.eqns for var in eqn.outvars} == {1}
    assert len(body.eqns) < 3 * 125


KERNELS_LACK = {
    "gamma": {"random_gamma"},
    "gamma, raw": {"random_gamma"},
    "dirichlet": {"random_gamma"},
    "normal, none": {"broadcast_in_dim"},
}


@pytest.mark.parametrize("name", [*DRAWS, *KEY_PROGRAMS])
def test_kernels_can_hold_what_is_left(name: str) -> None:
    function, args = PROGRAMS[name]
    result = normalize(traced(function, *(args if isinstance(args, tuple) else (args,))))
    lacking = {eqn.primitive.name for eqn in result.jaxpr.eqns if why_not(eqn) is not None}
    assert lacking - {"random_wrap", "random_unwrap"} == KERNELS_LACK.get(name, set())


@pytest.mark.parametrize("name", ["normal", "fold in", *LOOPS])
def test_around_loops_that_stay(name: str) -> None:
    function, args = PROGRAMS[name]
    args = args if isinstance(args, tuple) else (args,)
    result = normalize(traced(function, *args), loops=False)
    keyed = {
        eqn.primitive.name
        for eqn in result.jaxpr.eqns
        if any(jnp.issubdtype(atom.aval.dtype, jax.dtypes.prng_key) for atom in (*eqn.invars, *eqn.outvars))
    }
    assert keyed <= {"random_wrap", "random_unwrap", "random_gamma", "scan", "while", "cond"}
    actual = results(lambda *args: jax.core.eval_jaxpr(result.jaxpr, result.consts, *args), args)
    for one, other in zip(results(function, args), actual, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("name", ["randint", "split, pairs, raw", "nested", "while, batch", "moves", "gamma"])
def test_again_changes_nothing(name: str) -> None:
    function, args = PROGRAMS[name]
    once = unkey(traced(function, *(args if isinstance(args, tuple) else (args,))))
    assert sorted(primitives_of(unkey(once))) == sorted(primitives_of(once))


@pytest.mark.parametrize("name", ["normal", "split", "nested", "nested, raw", "while, batch", "moves", "gamma"])
def test_lines_are_those_of_the_user(name: str) -> None:
    function, args = PROGRAMS[name]
    before = inline_calls(traced(function, *(args if isinstance(args, tuple) else (args,))))
    assert None not in {user_frame(eqn) for eqn in before.jaxpr.eqns}
    assert lines(unkey(before).jaxpr) <= lines(before.jaxpr)


def lines(jaxpr: Any) -> set[Any]:
    """Those of a program and of the bodies of its loops, but not those of calls, which may have none."""
    found = {user_frame(eqn) for eqn in jaxpr.eqns}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("scan", "while", "cond"):
            for inner in jex.jaxprs_in_params(eqn.params):
                found |= lines(getattr(inner, "jaxpr", inner))
    return found


def test_nothing_leaks() -> None:
    def function(key: Any, x: Any) -> Any:
        closed = unkey(traced(lambda key: nested(until_large(key))[1][0], key))
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, key)[0] * x

    with jax.checking_leaks():
        jax.jit(jax.vmap(jax.grad(lambda x, k: function(k, x).sum())))(MOST[:4], KEYS)


def test_inside_a_shard_map() -> None:
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    def user(keys: Any, raw: Any) -> Any:
        return jax.vmap(nested)(keys)[1][0], until_large(raw[0])[None], random.normal(random.fold_in(raw[0], 1), (1,))

    def changed(keys: Any, raw: Any) -> Any:
        closed = unkey(traced(user, keys, raw))
        return tuple(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, keys, raw))

    def sharded(function: Any) -> Any:
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P("i"), P("i")), out_specs=P("i")))

    for expected, actual in zip(sharded(user)(KEYS, RAWS), sharded(changed)(KEYS, RAWS), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "name",
    ["normal", "fold in", "split, computed index", "scan over a split", "scan with a constant key", "while, batch"],
)
def test_kernels(name: str) -> None:
    function, args = PROGRAMS[name]
    args = tuple(map(jnp.asarray, args)) if isinstance(args, tuple) else (args,)
    compiled = compile_jaxpr(traced(function, *args), "drawn")
    assert not compiled.left_to_xla
    expected = results(function, args)
    actual = results(lambda *args: compiled.run("interpret", False, *args), args)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
