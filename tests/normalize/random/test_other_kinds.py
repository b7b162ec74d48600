"""Keys of other kinds than JAX's default one, a user's own too, become words like these, and keep every bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import jaxpr2triton as j2t
from jaxpr2triton.normalize.random.unkey import RANDOM, unkey
from jaxpr2triton.shards.walks import walk_of
from tests.normalize.passing import primitives_of, traced
from tests.normalize.random.key_programs import scan_of_keys, until_large

RNG = np.random.default_rng(7)
EDGE = np.array([0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)  # the next count is carried beyond it


def mixed(key: Any, more: Any) -> Any:
    return (key * np.uint32(747796405) + jnp.asarray(more, np.uint32)) ^ (key >> 5)


def own_split(key: Any, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    return jax.vmap(lambda n: mixed(key, n))(jnp.arange(1, count + 1, dtype=np.uint32)).reshape(*shape, 3)


def own_bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
    counts = jnp.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return mixed(key[0] ^ key[1], counts * key[2]).astype(f"uint{width}")


OWN = jax.extend.random.define_prng_impl(
    key_shape=(3,),
    seed=lambda seed: mixed(jnp.array([1, 2, 3], np.uint32), seed),
    split=own_split,
    random_bits=own_bits,
    fold_in=mixed,
    name="a test's own",
    tag="own",
)
IMPLEMENTATIONS = {"rbg": "rbg", "unsafe_rbg": "unsafe_rbg", "own": OWN}


def a_branch(key: Any) -> Any:
    return lax.cond(random.bits(key) % 2 == 0, random.clone, lambda k: random.fold_in(k, 5), key)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "draws": lambda k: (random.normal(k, (7, 3)), random.uniform(k), random.bernoulli(k, 0.3, (5,))),
    "narrow": lambda k: [random.bits(k, (5, 3), jnp.dtype(f"uint{width}")) for width in (8, 16)],
    "splits": lambda k: (random.split(k), random.split(k, (2, 3))[1, 2], random.split(k, 5)[1::2]),
    "folded": lambda k: (random.fold_in(k, 17), jax.vmap(random.fold_in, (None, 0))(k, jnp.arange(3))),
    "moved": lambda k: jnp.concatenate([random.split(k, 3)[::-1], k[None]]).reshape(2, 2).T,
    "compared": lambda k: (random.split(k) == random.split(k)[::-1], random.split(k, 2) != k),
    "words": lambda k: random.key_data(random.split(k))[:, 1] + 1,
    "batch": lambda k: jax.vmap(lambda k: random.normal(random.split(k)[1], (3,)))(random.split(k, 4)),
    "scan": lambda k: scan_of_keys(random.split(k)[1]),
    "while": until_large,
    "branch": a_branch,
}


def of_kind(kind: str) -> Any:
    return random.key(3, impl=IMPLEMENTATIONS[kind])


def plain(tree: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [np.asarray(random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves]


def same(function: Callable[..., Any], *args: Any) -> Any:
    result = unkey(traced(function, *args))
    for got, want in zip(plain(jax.jit(jax.extend.core.jaxpr_as_fun(result))(*args)), plain(jax.jit(function)(*args))):
        np.testing.assert_array_equal(got, want)
    return result


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_every_bit_is_kept_and_only_words_are_left(kind: str, name: str) -> None:
    result = same(PROGRAMS[name], of_kind(kind))
    assert not set(primitives_of(result)) & RANDOM.keys() - {"random_wrap", "random_unwrap"}


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_seeds(kind: str) -> None:
    same(lambda seed: random.key(seed, impl=IMPLEMENTATIONS[kind]), np.int32(42))


def test_what_carries_raw_words_that_are_made_keys_carries_words() -> None:
    def step(raw: Any, _: Any) -> Any:
        key, now = random.split(random.wrap_key_data(raw, impl="rbg"))
        return random.key_data(key), random.normal(now)

    result = same(lambda raw: lax.scan(step, raw, None, length=5), random.key_data(of_kind("rbg")))
    (body,) = [eqn.params["jaxpr"].jaxpr for eqn in result.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert [str(var.aval) for var in body.invars] == ["uint32[]"] * 4


SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "uint8": ((5,),),
    "uint16": ((5,),),
    "uint32": ((), (7,), (4, 3), (3, 5), (2, 0)),
    "uint64": ((), (3, 5)),
}


@pytest.mark.parametrize(("dtype", "shape"), [(dtype, shape) for dtype, shapes in SHAPES.items() for shape in shapes])
def test_generated_bits(dtype: str, shape: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        for state in (EDGE, RNG.integers(0, 1 << 63, 2).astype(np.uint64)):

            def draw(state: Any) -> Any:
                ways = [lax.RandomAlgorithm.RNG_DEFAULT, lax.RandomAlgorithm.RNG_THREE_FRY]
                return [tuple(lax.rng_bit_generator(state, shape, dtype=dtype, algorithm=way)) for way in ways]

            assert "rng_bit_generator" not in primitives_of(same(draw, state))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_a_loop_that_draws_is_one_kernel(kind: str, backend: str) -> None:
    def noisy(key: Any, x: Any) -> Any:
        def step(state: tuple[Any, Any], _: Any) -> Any:
            key, now = random.split(state[0])
            x = 0.9 * state[1] + random.normal(now, state[1].shape)
            return (key, x), x.sum()

        (key, x), sums = lax.scan(step, (key, x), None, length=4)
        return random.key_data(key), x, sums

    key, x = of_kind(kind), np.linspace(-1, 1, 6, dtype=np.float32)
    program = j2t.transpile(noisy, key, x)
    assert len(program.kernels) == 1 and not program.leftovers
    for got, want in zip(j2t.fuse(noisy, backend=backend)(key, x), jax.jit(noisy)(key, x)):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_one_hash_gives_four_numbers() -> None:
    program = j2t.transpile(lambda key: random.bits(key, (64,)), of_kind("rbg"))
    (kernel,) = program.kernels
    assert kernel.source.count("= _philox(") == 1


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_some_of_the_four_numbers_of_a_hash_are_drawn(count: int, backend: str) -> None:
    """Whoever calls a function names all that it gives, also what nobody wants."""

    def draw(key: Any) -> Any:
        def step(key: Any, _: Any) -> Any:
            key, now = random.split(key)
            return key, random.normal(now, (count,))

        return random.normal(key, (count,)), lax.scan(step, key, None, length=3)[1]

    for kind in ("rbg", "unsafe_rbg"):
        for got, want in zip(j2t.fuse(draw, backend=backend)(of_kind(kind)), jax.jit(draw)(of_kind(kind))):
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_what_nobody_wants_of_a_hash_has_a_name_too() -> None:
    program = j2t.transpile(lambda key: random.bits(key, (3,)), of_kind("rbg"))
    (kernel,) = program.kernels
    assert "word, word_2, word_3, spare = _philox(" in kernel.source


def test_a_batch_of_keys_that_share_a_draw_is_not_split_over_devices() -> None:
    for kind, apart in (("rbg", 0), (None, 1)):
        keys = random.split(random.key(3, impl=kind), 4)
        (draw,) = [e for e in traced(jax.vmap(lambda k: random.bits(k, (3,))), keys).jaxpr.eqns if "bits" in str(e)]
        assert len(walk_of(draw).together) == apart
