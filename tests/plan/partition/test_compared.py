"""What is compared is one value: it is made at one place, in every plan, and a plan in which it is not is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.plan.partition import partition

RNG = np.random.default_rng(15)
EYE = 9 * np.eye(15, dtype=np.float32)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return jnp.asarray(RNG.normal(size=shape), dtype)


X, LONG = normal(15, 3), normal(40, 300)
NARROW = normal(15, 3, dtype=jnp.bfloat16)
WEIGHTS, ROWS = normal(40, 3), normal(40, 5)


def peaks(x: Any) -> Any:
    return (x @ x.T - EYE).max(-1)


def normed(x: Any) -> Any:
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def routed(weights: Any, x: Any) -> Any:
    """Rows by capacity: each goes to the buffer of its largest weight, as far as there is room."""
    p = jax.nn.softmax(weights)
    expert, gate = p.argmax(-1), p.max(-1)
    chosen = jax.nn.one_hot(expert, 3, dtype=jnp.int32)
    place = (jnp.cumsum(chosen, 0) * chosen).sum(-1) - 1
    room = jnp.zeros((3, 4, 5)).at[expert, place].add(x * gate[:, None], mode="drop")
    return room[expert, jnp.minimum(place, 3)] * gate[:, None]


def turning(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.cos(c) + x, None), x, None, length=3)[0]


def sorting(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sort(jnp.cos(c[:, None] * x).sum(-1)) / 2 + c, None), x, None, length=3)[0]


def soft(x: Any) -> Any:
    return jnp.tanh(x @ x.T) - 2 * jnp.eye(15)


def apart_from_itself(x: Any) -> Any:
    return jnp.where(jnp.eye(15, dtype=bool), -1e3, x @ x.T)


def own_place(x: Any) -> Any:
    def merge(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(first, one, other) for one, other in zip(a, b))

    place = lax.broadcasted_iota(np.int32, x.shape, 1)
    return lax.reduce((x, place), (np.float32(-np.inf), np.int32(2**31 - 1)), merge, (1,))[1]


Function = Callable[..., Any]
# Without the partition's care, several kernels would make what is compared, or one at several places.
MADE_ONCE: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "the gradient of a hard maximum over products": (jax.grad(lambda x: peaks(x).sum()), (X,)),
    "its square": (jax.grad(lambda x: (peaks(x) ** 2).sum()), (X,)),
    "the largest of all": (jax.grad(lambda x: peaks(x).max()), (X,)),
    "a contrastive loss": (
        jax.grad(lambda x: jax.nn.relu(1 + apart_from_itself(x).max(-1) - (x * x).sum(-1)).sum()),
        (X,),
    ),
    "the nearest neighbour by angle": (jax.grad(lambda x: peaks(normed(x)).sum()), (X,)),
    "sorted maxima": (jax.grad(lambda x: (jnp.sort(soft(x).max(-1)) * jnp.arange(15)).sum()), (X,)),
    "maxima and their places": (
        jax.grad(lambda x: (soft(x).max(-1) * jnp.cumsum(soft(x).argmax(-1))).sum()),
        (X,),
    ),
    "routing by capacity, a sum of few terms": (
        jax.grad(lambda weights, x: jnp.sin(routed(weights, x)).sum(), (0, 1)),
        (WEIGHTS, ROWS),
    ),
    "sorted products": (lambda x: jnp.sqrt(jnp.diff(jnp.sort((normed(x) @ normed(x).T).reshape(-1)))), (X,)),
    "a sum of many terms, sorted": (lambda x: jnp.sort(jnp.cos(x).sum(-1)), (LONG,)),
    "a row's sum, sorted with its rows": (lambda x: jnp.sort(jax.nn.softmax(x).reshape(-1)), (WEIGHTS,)),
    "products of products": (jax.grad(lambda x, w: peaks((x @ w) @ w.T).sum()), (X, normal(3, 5))),
    "windows of products": (
        jax.grad(lambda x: lax.reduce_window(x @ x.T, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID").sum()),
        (X,),
    ),
    "what a loop has made": (lambda x: jnp.sort(jnp.cos(turning(x)).sum(-1)), (LONG,)),
    "what a step makes": (sorting, (X[:9, 0],)),
    "16 bits": (jax.grad(lambda x: (x @ x.T).max(-1).astype(jnp.float32).sum()), (NARROW,)),
    "16 bits, sorted": (lambda x: jnp.sort(jax.nn.softmax(x).reshape(-1)), (NARROW,)),
    "two outputs": (
        lambda x: (jnp.sin(x).sum(-1).max(), jnp.broadcast_to(jnp.sin(x).sum(-1), (3, 40))),
        (normal(40, 30),),
    ),
    "a place and what lies there": (lambda x: ((x @ x.T).argmax(-1), (x @ x.T)[:, :4]), (X,)),
    "a place by a function of one's own": (lambda x: (own_place(x @ x.T), (x @ x.T)[:, :4]), (X,)),
    "in a branch": (
        lambda p, x: jax.grad(lambda x: lax.cond(p > 0, lambda x: peaks(x).sum(), jnp.sum, x))(x),
        (np.float32(1), X),
    ),
    "the largest of each row": (lambda x: jnp.where(x @ x.T >= lax.top_k(x @ x.T, 9)[0][:, -1:], x @ x.T, 0), (X,)),
    "the largest few of each column": (
        lambda x: jnp.where(jnp.tanh(x @ x.T) >= lax.top_k(jnp.tanh(x @ x.T).T, 3)[0][:, -1], x @ x.T, 0),
        (X,),
    ),
    "a median": (lambda x: (x @ x.T == jnp.median(x @ x.T, axis=-1, keepdims=True)).sum(-1), (X,)),
}


@pytest.mark.parametrize("name", MADE_ONCE)
def test_copies_that_are_compared_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, args = MADE_ONCE[name]
    monkeypatch.setattr(partition, "made_apart", lambda cuts, groups: [])
    with pytest.raises(CompilerBug, match="compares it with its copy"):
        j2t.transpile(function, *args, contractions="triton")


@pytest.mark.parametrize("name", MADE_ONCE)
def test_what_is_compared_is_one_value(name: str) -> None:
    function, args = MADE_ONCE[name]
    found = j2t.fuse(function, backend="interpret", contractions="triton")(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        rtol = 2e-2 if "16 bits" in name else 1e-3
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "name", ["the gradient of a hard maximum over products", "what a step makes", "sorted products"]
)
def test_on_the_machine(name: str) -> None:
    function, args = MADE_ONCE[name]
    found = j2t.fuse(function, backend="machine", contractions="triton")(*args)
    np.testing.assert_allclose(found, jax.jit(function)(*args), rtol=1e-3, atol=1e-3)


def test_a_step_keeps_what_it_compares() -> None:
    made = j2t.transpile(sorting, X[:9, 0], strict=True)
    assert len(made.kernels) == 1 and "kept_ptr" in made.source


def test_users_get_the_program_of_xla_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_RAISE", raising=False)
    monkeypatch.setattr(partition, "made_apart", lambda cuts, groups: [])
    with pytest.warns(j2t.BugWarning, match="a `dot_general` at .* is made by 2 kernels, and `eq` compares"):
        found = j2t.fuse(jax.grad(lambda x: peaks(x).sum()), backend="interpret")(X)
    np.testing.assert_allclose(found, jax.jit(jax.grad(lambda x: peaks(x).sum()))(X), rtol=1e-5)


def test_a_softmax_compares_nothing() -> None:
    """Nor does attention: both keep their kernels."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T / 4) @ v

    made = j2t.transpile(attention, *[normal(64, 16)] * 3, contractions="triton")
    assert len(made.kernels) == 1
    assert len(j2t.transpile(jax.grad(lambda x: jnp.sin(jax.nn.softmax(x)).sum()), LONG).kernels) == 1


@pytest.mark.parametrize("found", [lambda v: v.astype(jnp.int32).max((0, 1)), lambda v: (v > 0).any()])
def test_no_gradient_asks_for_the_greatest_of_whole_numbers_again(found: Any) -> None:
    """A kernel may round a value of 16 bits for memory, and go on with all of its digits for something else."""

    def function(x: jax.Array) -> Any:
        shifted = x + jnp.bfloat16(0.5)
        windows = jax.lax.reduce_window(shifted, -jnp.inf, jax.lax.max, (1, 1, 2), (1, 2, 1), "SAME")
        sums = jnp.sum(jnp.exp(x - jnp.max(x, 0, keepdims=True)) / 3, 0, dtype=x.dtype)
        return sums, windows.reshape(13, -1), jnp.sinh(jnp.tanh(shifted)).reshape(117, 1, 7), found(windows)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(13, 63, 1))).astype(jnp.bfloat16)
    for ours, theirs in zip(j2t.fuse(function, backend="interpret")(x), jax.jit(function)(x), strict=True):
        np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), rtol=2e-2)


def test_what_is_put_out_twice_in_16_bits_is_written_once() -> None:
    """Made again of a sum that lies in memory, it would be rounded otherwise than in the kernel that adds up."""

    def function(x: jax.Array, y: jax.Array) -> Any:
        least = jnp.min(jnp.tanh(y[:, None] + x[None]), 1)
        return jax.lax.concatenate([x, least + jax.lax.iota(jnp.bfloat16, 31)], 0), least

    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=size)).astype(jnp.bfloat16) for size in (16, 31)]
    found = jax.jvp(j2t.fuse(function, backend="interpret"), args, args)[1]
    assert (found[0][16:] == found[1]).all()


def test_a_carried_value_of_a_loop_whose_end_nobody_reads() -> None:
    """It decides how long another loop runs."""

    def function(x: jax.Array, y: jax.Array, n: jax.Array) -> jax.Array:
        def step(carry: Any) -> Any:
            i, c = carry
            inner = jax.lax.while_loop(lambda t: t[0] < c, lambda t: (t[0] + 1, y), (jnp.int32(0), x))
            return i + 1, (c + (jnp.mean(inner[1]) > 0.25) * 3).astype(jnp.int32) & 7

        return jax.lax.while_loop(lambda t: t[0] < 0, step, (jnp.int32(0), n))[1]

    args = normal(1, 5), normal(1, 5), jnp.int32(4)
    assert j2t.fuse(function, backend="interpret")(*args) == jax.jit(function)(*args)
