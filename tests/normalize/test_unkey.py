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
from jaxpr2triton.normalize import normalize
from jaxpr2triton.normalize.inline import inline_calls
from jaxpr2triton.normalize.threefry import threefry2x32
from jaxpr2triton.normalize.unkey import RANDOM, unkey
from jaxpr2triton.pipeline import compile_jaxpr
from jaxpr2triton.rules.coverage import why_not
from tests.normalize.passing import primitives_of, same_bits, traced

KEY, RAW = random.key(3), random.PRNGKey(3)
KEYS, RAWS = random.split(KEY, 4), random.split(RAW, 4)
INDEX = np.array([1, 0, 3])
MOST = np.arange(5, dtype=np.float32)


def pair(key: Any) -> Any:
    one, other = random.split(key)
    return one, other


DRAWS: dict[str, tuple[Callable[..., Any], Any]] = {
    "normal": (lambda k: random.normal(k, (7, 3)), KEY),
    "normal, raw": (lambda k: random.normal(k, (7, 3)), RAW),
    "normal, one": (lambda k: random.normal(k), KEY),
    "normal, axes of 1": (lambda k: random.normal(k, (1, 3, 1)) + random.normal(k, (1, 1)), KEY),
    "normal, none": (lambda k: random.normal(k, (0, 3)), KEY),
    "normal, 16 bits": (lambda k: (random.normal(k, (5,), jnp.bfloat16), random.normal(k, (), jnp.float16)), KEY),
    "uniform": (lambda k: random.uniform(k, (5,), minval=-2.0, maxval=3.0), KEY),
    "bits": (lambda k: [random.bits(k, (5, 3), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bits, one": (lambda k: [random.bits(k, (), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bits, even": (lambda k: [random.bits(k, (2, 4), jnp.dtype(f"uint{w}")) for w in (8, 16, 32)], KEY),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, (9,)), KEY),
    "categorical": (lambda k, x: random.categorical(k, x, shape=(6,)), (KEY, MOST)),
    "categorical without replacement": (lambda k, x: random.categorical(k, x, shape=(3,), replace=False), (KEY, MOST)),
    "randint": (lambda k: random.randint(k, (8,), 0, 100), KEY),
    "randint, 8 bits": (lambda k: random.randint(k, (3,), 0, 100, jnp.int8), KEY),
    "choice": (lambda k, x: random.choice(k, x, (3,)), (KEY, MOST)),
    "choice, weighted": (lambda k, x: random.choice(k, x, (3,), p=x / 10), (KEY, MOST)),
    "permutation": (lambda k: random.permutation(k, 10), KEY),
    "exponential": (lambda k: random.exponential(k, (3,)), KEY),
    "gumbel": (lambda k: random.gumbel(k, (3,)), KEY),
    "truncated normal": (lambda k: random.truncated_normal(k, -1.0, 1.0, (3,)), KEY),
    "laplace, cauchy, rademacher": (
        lambda k: (random.laplace(k, (3,)), random.cauchy(k, (2,)), random.rademacher(k, (4,))),
        KEY,
    ),
}
KEY_PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "seed": (lambda s: random.key(s), 42),
    "seeds": (lambda s: (random.PRNGKey(s), jax.vmap(random.key)(jnp.stack([s, -s]))), -42),
    "known seed": (lambda x: random.normal(random.key(17), (3,)) + x, 1.0),
    "split": (lambda k: random.split(k), KEY),
    "split, raw": (lambda k: random.split(k, 3), RAW),
    "split, one": (lambda k: (random.split(k, 1), random.split(k, 1)[0]), KEY),
    "split, axes": (lambda k: (random.split(k, (2, 3)), random.split(k, (2, 3))[1, 2]), KEY),
    "split, pairs": (pair, KEY),
    "split, pairs, raw": (pair, RAW),
    "split, rest": (lambda k: random.split(k, 5)[1:], KEY),
    "split, strides": (lambda k: random.split(k, 5)[1::2], KEY),
    "split, many": (lambda k: random.split(k, 5)[-1], KEY),
    "split, computed index": (lambda k, i: random.split(k, 5)[i], (KEY, -2)),
    "split, computed index, raw": (lambda k, i: random.split(k, 5)[i], (RAW, 2)),
    "split, computed indices": (lambda k, i: random.split(k, 5)[i], (KEY, INDEX)),
    "split, too large an index": (lambda k, i: lax.dynamic_index_in_dim(random.split(k, 5), i), (KEY, 7)),
    "split of splits": (lambda k: random.split(random.split(k, 3)[1], 2)[0], KEY),
    "fold in": (lambda k: (random.fold_in(k, 17), random.fold_in(k, -1 & 0xFFFFFFFF)), KEY),
    "fold in, raw": (lambda k, i: random.fold_in(k, i), (RAW, -3)),
    "fold in, small": (lambda k, i: random.fold_in(k, i), (KEY, np.int8(-3))),
    "clone": (lambda k: random.clone(k), KEY),
    "wrap": (lambda k: random.normal(random.wrap_key_data(k)), RAW),
    "data": (lambda k: random.key_data(k) + 1, KEY),
    "the same": (lambda k, x: (k, x), (KEY, 1.0)),
    "vmap of split": (jax.vmap(lambda k: random.split(k, 3)[1]), KEYS),
    "vmap of split, raw": (jax.vmap(pair), RAWS),
    "vmap of a computed index": (jax.vmap(lambda k: random.split(k, 3)[jnp.argmax(random.bits(k, (3,)))]), KEYS),
    "vmap of keys and numbers": (jax.vmap(random.fold_in), (KEYS, jnp.arange(4))),
    "vmap of keys": (jax.vmap(random.fold_in, (0, None)), (KEYS, 5)),
    "vmap of numbers": (jax.vmap(random.fold_in, (None, 0)), (KEY, jnp.arange(4))),
    "vmap twice": (jax.vmap(jax.vmap(random.fold_in, (None, 0)), (0, None)), (KEYS, jnp.arange(3))),
    "vmap of normal": (jax.vmap(lambda k: random.normal(k, (3, 2))), KEYS),
    "vmap of normal, raw": (jax.vmap(lambda k: random.normal(k, ())), RAWS),
    "vmap of bits": (jax.vmap(lambda k: random.bits(k, (5,), jnp.uint8)), KEYS),
    "indices": (lambda k: random.normal(k[2]) + random.normal(k[-1]), KEYS),
    "computed index": (lambda k, i: k[i], (KEYS, 2)),
    "computed indices": (lambda k, i: (k[i], k.at[i].get(mode="clip")), (KEYS, INDEX)),
    "set": (lambda k, one: k.at[1].set(one), (KEYS, KEY)),
    "set, computed": (lambda k, one, i: k.at[i].set(one), (KEYS, KEY, 2)),
    "update": (lambda k, one, i: lax.dynamic_update_index_in_dim(k, one, i, 0), (KEYS, KEY, 2)),
    "moves": (
        lambda k: (k.reshape(2, 2).T, k[::-1], k[None], jnp.concatenate([k, k[1:2]]), jnp.stack([k[0], k[1]])),
        KEYS,
    ),
    "moves, raw": (
        lambda k: jax.vmap(random.split)(
            jnp.concatenate([k[::-1], k[1:2], k.reshape(2, 2, 2).swapaxes(0, 1).reshape(4, 2), k[0][None]])
        ),
        RAWS,
    ),
    "halves": (lambda k: jnp.split(k, 2), KEYS),
    "broadcast": (lambda k: jnp.broadcast_to(k, (2, 3)), KEY),
    "select": (lambda k, p, q: (jnp.where(p, k[0], k[1]), jnp.where(q, k[:3], k[1:])), (KEYS, True, INDEX > 0)),
    "select, raw": (lambda k, p: random.split(jnp.where(p, k[0], k[1])), (RAWS, False)),
    "equal": (lambda k: (k == k[::-1], k != k[0]), random.split(KEY, 3)),
    "barrier": (lambda k: lax.optimization_barrier((random.fold_in(k, 1), 2.0)), KEY),
    "jit": (lambda k: jax.jit(pair)(jax.jit(random.split)(k)[0]), KEY),
    "checkpoint": (lambda k: jax.checkpoint(random.normal)(k), KEY),
    "gradient": (lambda k, s: jax.grad(lambda s: (s * random.normal(k, (3,))).sum() ** 2)(s), (KEY, 2.0)),
    "gamma": (lambda k: random.gamma(random.fold_in(k, 1), 2.0, (3,)), KEY),
    "gamma, raw": (lambda k: random.gamma(k, 2.0, (3,)), RAW),
    "dirichlet": (lambda k: random.dirichlet(k, jnp.ones(3)), KEY),
    "multivariate normal": (lambda k: random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2)), KEY),
}


def scan_of_keys(key: Any) -> Any:
    def step(key: Any, _: Any) -> Any:
        key, now = random.split(key)
        return key, random.normal(now, (2,))

    return lax.scan(step, key, None, length=5)


def drifting(key: Any) -> Any:
    def step(state: Any) -> Any:
        i, key, x = state
        key, now = random.split(key)
        return i + 1, key, x + random.normal(now)

    return lax.while_loop(lambda state: state[0] < 4, step, (0, key, 0.0))


def until_large(key: Any) -> Any:
    return lax.while_loop(lambda key: random.uniform(key) < 0.8, lambda key: random.split(key)[0], key)


def nested(key: Any) -> Any:
    def inner(i: Any, key: Any) -> Any:
        return random.fold_in(key, i)

    def outer(key: Any, x: Any) -> Any:
        key = lax.cond(x > 1, lambda k: random.split(k)[1], lambda k: lax.fori_loop(0, 3, inner, k), key)
        return key, (random.uniform(key), key)

    return lax.scan(outer, key, jnp.arange(4.0), reverse=True)


LOOPS: dict[str, tuple[Callable[..., Any], Any]] = {
    "scan": (scan_of_keys, KEY),
    "scan, raw": (scan_of_keys, RAW),
    "scan, unrolled": (lambda k: lax.scan(lambda k, x: (random.fold_in(k, x), k), k, jnp.arange(5), unroll=2), KEY),
    "scan over keys": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), random.split(k)), 0.0, k), KEYS),
    "scan over keys, raw": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), random.split(k)), 0.0, k), RAWS),
    "scan over a split": (lambda k: lax.scan(lambda c, k: (c + random.normal(k), c), 0.0, random.split(k, 3)), KEY),
    "scan with a constant key": (
        lambda k, x: lax.scan(lambda c, i: (c + x[1] * random.normal(random.fold_in(k, i)), c), x[0], jnp.arange(3)),
        (KEY, MOST),
    ),
    "while": (drifting, KEY),
    "while, raw": (drifting, RAW),
    "while, key in the condition": (until_large, KEY),
    "while, batch": (jax.vmap(until_large), KEYS),
    "while, batch, raw": (jax.vmap(until_large), RAWS),
    "while, constant keys": (
        lambda k: lax.while_loop(
            lambda s: (s[0] < 9) & (random.uniform(k[0]) > 0),
            lambda s: (s[0] + 1, s[1] + random.normal(k[1])),
            (0, 0.0),
        ),
        KEYS,
    ),
    "fori": (
        lambda k, n, x: lax.fori_loop(0, n, lambda i, c: c + random.normal(random.fold_in(k, i), (5,)), x),
        (KEY, 4, MOST),
    ),
    "cond": (lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k), (KEY, True)),
    "cond, raw": (lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k), (RAW, True)),
    "cond, batch": (
        jax.vmap(lambda k, p: lax.cond(p, lambda k: random.split(k)[0], lambda k: k, k)),
        (KEYS, MOST[1:] > 2),
    ),
    "switch": (lambda k, i: lax.switch(i, [lambda k: random.normal(k), lambda k: 1.0, random.uniform], k), (KEY, 2)),
    "nested": (nested, KEY),
    "nested, raw": (nested, RAW),
    "nested, batch": (jax.vmap(nested), KEYS),
    "gradient of a scan": (
        jax.grad(lambda w, k: lax.scan(lambda c, k: (c * w + random.normal(k), None), 1.0, k)[0]),
        (0.5, KEYS),
    ),
    "weak types": (lambda k: lax.scan(lambda c, k: (c + 1.0, random.normal(k)), 0.0, k), KEYS),
}
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


WIDE: dict[str, tuple[Callable[..., Any], Any]] = {
    "normal": (lambda k: random.normal(k, (3, 2)), KEY),
    "normal, one": (lambda k: random.normal(k, dtype=jnp.float64), RAW),
    "bits": (lambda k: (random.bits(k, (5,), jnp.uint64), random.bits(k, (4,), jnp.uint64)), KEY),
    "bits, one": (lambda k: random.bits(k, (1,), jnp.uint64), KEY),
    "randint": (lambda k: random.randint(k, (3,), -(1 << 40), 1 << 40), KEY),
    "seeds": (lambda s, t, u: [random.key(s), random.key(t), random.key(u)], (-42, 1 << 40, np.int16(-5))),
    "fold in": (lambda k, i: random.fold_in(k, i), (KEY, -(1 << 33) - 7)),
    "index": (lambda k, i: random.split(k, 5)[i], (KEY, np.int64(3))),
    "scan": (scan_of_keys, KEY),
    "while": (drifting, KEY),
}


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


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_other_keys_pass_unharmed(impl: str) -> None:
    key = random.key(1, impl=impl)
    before = traced(lambda k: scan_of_keys(random.split(k)[1]), key)
    assert unkey(before) is before
    check(lambda k, mine: (random.normal(k, (2,)), random.normal(mine, (2,)), random.split(k)), (key, KEY))


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
    """All values are scalars: nobody writes the array of keys that a split makes."""

    def step(key: Any, _: Any) -> Any:
        key, now = random.split(key)
        return key, random.normal(now)

    result = unkey(traced(lambda key: lax.scan(step, key, None, length=5)[1], key))
    (body,) = [eqn.params["jaxpr"].jaxpr for eqn in result.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert [str(var.aval) for var in body.invars] == ["uint32[]", "uint32[]"]
    assert {var.aval.shape for eqn in body.eqns for var in eqn.outvars} == {()}
    assert len(body.eqns) < 3 * 125


KERNELS_LACK = {
    "categorical without replacement": {"top_k"},
    "choice, weighted": {"cumsum"},
    "permutation": {"sort"},
    "gamma": {"random_gamma"},
    "gamma, raw": {"random_gamma"},
    "dirichlet": {"random_gamma"},
    "multivariate normal": {"cholesky", "dot_general"},
    "normal, none": {"broadcast_in_dim"},
}


@pytest.mark.parametrize("name", [*DRAWS, *KEY_PROGRAMS])
def test_kernels_can_hold_what_is_left(name: str) -> None:
    function, args = PROGRAMS[name]
    result = normalize(traced(function, *(args if isinstance(args, tuple) else (args,))))
    lacking = {eqn.primitive.name for eqn in result.jaxpr.eqns if why_not(eqn) is not None}
    assert lacking - {"random_wrap", "random_unwrap"} == KERNELS_LACK.get(name, set())


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
    assert {left.primitive for left in compiled.leftovers} <= {"random_wrap", "random_unwrap"}
    expected = results(function, args)
    actual = results(lambda *args: compiled.run("interpret", False, *args), args)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
