"""Carried values that begin alike: Triton would not carry one that takes the value of the other."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit.distinct import with_distinct_starts
from jaxpr2triton.emit.layout import text_of
from tests.emit.reading import body_of

RANDOM = np.random.default_rng(0).normal(size=(4,)).astype(np.float32)
BOTH = pytest.mark.parametrize("backend", ["interpret", "machine"])


def last_two(x: Any) -> Any:
    return lax.scan(lambda c, _: ((c[1], jnp.sin(c[1]) + 1.0), None), (x, x), None, length=5)[0]


def last_three(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda _, c: (c[1], c[2], c[0] * 0.5 + c[2]), (x, x, x))


def last_of_rows(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        old, new = carry
        return (new, new + row), old

    return lax.scan(step, (x[0], x[0]), x)


def one_by_two_names(x: Any) -> Any:
    """Nothing that a step does changes anything."""
    return lax.scan(lambda c, row: ((c[1], c[1]), row), (x[0], x[0]), x)


def within_each_other(x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        last, total = carry
        one, other = lax.fori_loop(0, 3, lambda _, c: (c[1], jnp.cos(c[1])), (last, x))
        return (one, total + other), None

    return lax.scan(step, (x, x), None, length=3)[0]


PROGRAMS = (last_two, last_three, last_of_rows, one_by_two_names, within_each_other)


@BOTH
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_that_begin_alike(program: Callable[..., Any], backend: str) -> None:
    x = np.stack([RANDOM] * 3) if program in (last_of_rows, one_by_two_names) else RANDOM
    found = j2t.fuse(program, backend=backend, strict=True)(x)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-6), found, jax.jit(program)(x))


@BOTH
@pytest.mark.parametrize("program", [last_two, last_three, last_of_rows], ids=lambda program: program.__name__)
def test_their_gradients(program: Callable[..., Any], backend: str) -> None:
    def loss(x: Any) -> Any:
        return sum(jnp.sum(jnp.cos(each)) for each in jax.tree.leaves(program(x)))

    x = np.stack([RANDOM] * 3) if program is last_of_rows else RANDOM
    found = jax.grad(j2t.fuse(loss, backend=backend, strict=True))(x)
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(x), rtol=1e-5, atol=1e-6)


def changed(before: str) -> str:
    return "\n".join(text_of(with_distinct_starts(body_of(textwrap.dedent(before))), ""))


def test_one_of_two_gets_a_start_of_its_own() -> None:
    before = """
        b = a
        for t in range(5):
            a, b = b, f(b)
    """
    assert changed(before).splitlines()[0] == "b = tl.where(True, a, a)"


def test_a_copy_that_no_loop_carries_beside_its_original_stays() -> None:
    before = """
        b = a
        for t in range(5):
            b = f(b, a)
        c, d = a, e
        while d:
            c, d = d, f(c)
    """
    assert changed(before) == textwrap.dedent(before).strip()


def test_a_copy_of_a_copy_made_in_a_loop_around() -> None:
    before = """
        b = a
        for t in range(5):
            c, d = (b, a)
            for u in range(5):
                c, d = (d, f(d))
            b = c
    """
    assert "    c, d = tl.where(True, b, b), a" in changed(before).splitlines()


def test_a_copy_made_in_a_branch() -> None:
    before = """
        a = f(p)
        if p:
            b = a
        else:
            b = a
        for t in range(5):
            a, b = (b, f(b))
    """
    assert changed(before).count("tl.where(True, a, a)") == 2


def test_a_copy_made_before_a_branch_that_leaves_it_alone() -> None:
    before = """
        a = f(p)
        b = a
        if p:
            c = f(a)
        else:
            c = a
        for t in range(5):
            a, b = (b, f(b))
    """
    assert changed(before).splitlines()[1] == "b = tl.where(True, a, a)"


def test_one_that_takes_the_value_of_the_other_in_a_branch() -> None:
    before = """
        b = a
        while p(b):
            if q(a, b):
                c = f(b)
            else:
                c = f(a)
                b = a
            a = b
            b = c
    """
    assert changed(before).splitlines()[0] == "b = tl.where(True, a, a)"


def test_a_copy_from_before_a_branch() -> None:
    """Both sides of it have that copy."""
    before = """
        b = a
        if c:
            c = f(c)
        for t in range(2):
            a = f(a)
            b = d
    """
    assert changed(before).splitlines()[0] == "b = tl.where(True, a, a)"
