"""Fused functions inside of others: options that they name hold in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import NotFusible

A, B = np.random.default_rng(0).normal(size=(2, 64, 3)).astype(np.float32)


def filtered(a: Any, b: Any) -> Any:
    """In tiles of steps this has other roundings."""

    def step(c: Any, x: Any) -> Any:
        c = x[0] * c + x[1]
        return c, c

    return lax.scan(step, jnp.zeros(a.shape[1]), (a, b))[1]


def around(inner: Callable[..., Any]) -> Callable[..., Any]:
    def outer(a: Any, b: Any) -> Any:
        return jnp.sin(inner(a, b)) * 2

    return outer


def run(function: Callable[..., Any], **options: Any) -> Any:
    return np.asarray(j2t.fuse(function, backend="interpret", **options)(A, B))


def test_an_inner_exact_order_holds_in_it() -> None:
    exact = run(around(j2t.fuse(filtered, exact_order=True)))
    np.testing.assert_array_equal(exact, run(around(filtered), exact_order=True))
    assert (exact != run(around(filtered))).any()


def test_what_an_inner_function_does_not_name_is_as_around_it() -> None:
    inner = j2t.fuse(filtered, contractions="triton")
    np.testing.assert_array_equal(run(around(inner), exact_order=True), run(around(filtered), exact_order=True))
    assert not j2t.transpile(around(j2t.fuse(filtered)), A, B).leftovers
    same = j2t.transpile(around(j2t.fuse(filtered, exact_order=True)), A, B, exact_order=True)
    assert not same.leftovers and len(same.kernels) == 1


def test_an_inner_function_that_xla_runs() -> None:
    def product(a: Any, b: Any) -> Any:
        return a @ b.T

    by_xla = j2t.fuse(product, backend="xla")
    outer = around(lambda a, b: by_xla(a, b) + 1)
    (left,) = j2t.transpile(outer, A, B, contractions="triton").leftovers
    assert left.why == 'product is fused with options of its own (backend="xla"), so XLA runs it'
    np.testing.assert_allclose(run(outer), jax.jit(around(lambda a, b: a @ b.T + 1))(A, B), rtol=1e-5, atol=1e-5)


def test_an_inner_choice_of_roles_and_contractions_is_told() -> None:
    def weights(x: Any) -> Any:
        return jax.nn.softmax(x, -1)

    def squares(x: Any) -> Any:
        return x @ x.T

    first, second = j2t.fuse(weights, roles={"col": "loop"}), j2t.fuse(squares, contractions="triton")
    program = j2t.transpile(lambda x: second(first(x)) - 1, A)
    assert [left.why for left in program.leftovers] == [
        "weights is fused with options of its own (roles={'col': 'loop'}), so it has kernels of its own",
        'squares is fused with options of its own (contractions="triton"), so it has kernels of its own',
    ]
    with pytest.raises(j2t.errors.UserError, match="roles"):
        j2t.fuse(lambda x: j2t.fuse(jnp.tanh, roles={"col": "lane"})(x) + 1, backend="interpret")(A)


def test_strict_around_is_strict_inside() -> None:
    exact = j2t.fuse(filtered, exact_order=True)
    np.testing.assert_array_equal(run(around(exact), strict=True), run(around(filtered), exact_order=True))
    with pytest.raises(NotFusible) as refused:
        run(around(j2t.fuse(filtered, backend="xla")), strict=True)
    assert str(refused.value) == (
        "cannot compile `c:f32[64,3] = fused[name=filtered backend=xla strict=True] a b`: filtered is fused with "
        'options of its own (backend="xla"), so XLA runs it\n'
        "  at   test_inner_options.py:32 (outer)\n"
        "  try  leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs"
    )
    ordered = j2t.fuse(lambda x: jnp.linalg.qr(x)[1] + lax.top_k(x.reshape(-1), 3000)[0].sum(), strict=True)
    with pytest.raises(NotFusible):
        j2t.fuse(lambda x: ordered(x) + 1, backend="interpret")(np.ones((64, 64), np.float32))


@pytest.mark.parametrize("place", ["scan", "cond", "nested"])
def test_wherever_the_inner_function_is(place: str) -> None:
    def written(inner: Callable[..., Any]) -> Callable[..., Any]:
        def in_loop(a: Any, b: Any) -> Any:
            return lax.scan(lambda c, _: (inner(a, c) * 0.5, c.sum()), b, None, length=3)[0]

        def chosen(a: Any, b: Any) -> Any:
            return lax.cond(a[0, 0] > b[0, 0], inner, lambda a, b: a + b, a, b)

        def deeper(a: Any, b: Any) -> Any:
            return j2t.fuse(lambda a, b: inner(a, b) + 1)(a, b) * 2

        return {"scan": in_loop, "cond": chosen, "nested": deeper}[place]

    exact = run(written(j2t.fuse(filtered, exact_order=True)))
    np.testing.assert_array_equal(exact, run(written(filtered), exact_order=True))


def test_transformations_go_through_it() -> None:
    outer, plain = around(j2t.fuse(filtered, exact_order=True)), around(filtered)

    def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda a, b: function(a, b).sum(), (0, 1))

    inside = j2t.fuse(outer, backend="interpret")
    want = jax.jit(gradient(plain))(A, B)
    for got in (gradient(inside)(A, B), j2t.fuse(gradient(outer), backend="interpret")(A, B)):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    many = np.stack([A, A / 2]), np.stack([B, B + 1])
    np.testing.assert_allclose(jax.vmap(inside)(*many), jax.jit(jax.vmap(plain))(*many), rtol=1e-4, atol=1e-4)


def test_a_fused_function_is_shown_with_its_options() -> None:
    shown = j2t.transpile(j2t.fuse(filtered, exact_order=True), A, B).kernels
    assert [kernel.source for kernel in shown] == [
        kernel.source for kernel in j2t.transpile(filtered, A, B, exact_order=True).kernels
    ]
    assert shown[0].source != j2t.transpile(filtered, A, B).kernels[0].source


def test_what_an_inner_function_leaves_is_explained() -> None:
    text = j2t.transpile(around(j2t.fuse(filtered, exact_order=True)), A, B).explain()
    (line,) = [n for n, line in enumerate(text.splitlines()) if line == "  left to XLA"]
    assert text.splitlines()[line:][1:3] == [
        "    fused at test_inner_options.py:32 (outer): filtered is fused with options of its own",
        "        (exact_order=True), so it has kernels of its own",
    ]
