"""Why there are several kernels: each reason by a program that has it, noted where the program is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.kernel import Apart
from jaxpr2triton.plan.partition.cut_reasons import WORDS, needed_first
from jaxpr2triton.policy import COMMON, DEFAULT_POLICY
from tests.contraction_programs import PROGRAMS as CONTRACTIONS
from tests.policies import planned_with
from tests.programs import windows

OUTPUTS = DEFAULT_POLICY.groups.outputs


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def apart(fn: Callable[..., Any], *args: Any) -> tuple[Apart, ...]:
    def f(*args: Any) -> Any:
        return fn(*args)

    program = j2t.transpile(f, *args)
    found = program.summary.apart
    assert {each.kernel for each in found} == {kernel.name for kernel in program.kernels[1:]}
    return found


def sums(xs: Any, carry: Any) -> Any:
    return lax.scan(lambda c, x: (c * 0.9 + x, c), carry, xs)


def curved(xs: Any, carry: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c) + x, c), carry, xs)


def rolled(x: Any) -> Any:
    for _ in range(8):
        x = (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + x) * 0.3
    return x


def long(x: Any) -> Any:
    for _ in range(900):
        x = jnp.sin(x) * 1.001
    return x


ADDED_UP = "parts of a sum are made first, by many programs"
COPIES = "what is compared or looked up is one of its elements: it is one number wherever it is read"
WHOLE = "a sum over the whole array is needed first"
TAKEN_APART = "what one of them combines at once, the steps of the other one would take apart"
TOO_LITTLE = "they share too little input to be worth fusing"


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (
            lambda x: x / x.sum(),
            [floats(4096, 1024)],
            [("f_1", ("f_0",), True, ADDED_UP), ("f_2", ("f_1",), True, WHOLE)],
        ),
        (
            lambda x: jax.nn.softmax(x, 0) / jax.nn.softmax(x, 0).sum(1, keepdims=True),
            [floats(8192, 8192)],
            [("f_1", ("f_0",), True, "8,192 maxima are needed first")],
        ),
        (
            lambda x: jnp.tanh(windows(jnp.sin(x))),
            [floats(5000)],
            [("f_1", (), True, "`reduce_window_sum` stays with XLA and comes first")],
        ),
        (
            lambda x, w: jnp.tanh(jnp.sin(x) @ w + windows(jnp.sin(x))),
            [floats(8000, 8000), floats(8000, 8000)],
            [("f_1", (), True, "`dot_general` and `reduce_window_sum` stay with XLA and come first")],
        ),
        (
            lambda x, y: (jnp.sin(x), jnp.cos(y)),
            [floats(1000, 1000), floats(3000, 7000)],
            [("f_1", ("f_0",), False, "they read nothing in common")],
        ),
        (
            lambda x, y: (jnp.sin(x), jnp.cos(y)),
            [floats(8, 9), floats(7, 5)],
            [("f_1", ("f_0",), False, "they have different axes")],
        ),
        (lambda x, y: (x - y, jnp.exp(y)), [floats(300, 500), floats(500)], [("f_1", ("f_0",), False, TOO_LITTLE)]),
        (
            lambda a, b: (sums(a, a[0]), sums(b, b[0])),
            [floats(100, 16), floats(200, 16)],
            [("f_1", ("f_0",), False, "their loops have different steps or axes")],
        ),
        (
            lambda a: (jnp.cumsum(a, 0), curved(a, a[0])[1]),
            [floats(64, 4096)],
            [("f_1", ("f_0",), False, TAKEN_APART)],
        ),
        (lambda a: (jnp.cumsum(a, 0), curved(a, a[0])[1]), [floats(12, 4096)], []),  # a launch takes longer
        (
            lambda x: [x * k for k in range(2, OUTPUTS + 4)],
            [floats(64)],
            [("f_1", ("f_0",), False, f"a kernel writes {OUTPUTS} arrays at most")],
        ),
        (
            lambda x: jnp.sort(jnp.cos(x).sum(-1)),
            [floats(40, 300)],
            [("f_1", ("f_0",), True, COPIES)],
        ),
        (
            lambda x: (x - jnp.argmax(x, 0)).sum(1),
            [floats(8192, 8192)],
            [("f_1", ("f_0",), True, "8,192 places of maxima are needed first")],
        ),
        (
            lambda x: (x - jnp.argmin(x, 0)).sum(1),
            [floats(8192, 8192)],
            [("f_1", ("f_0",), True, "8,192 places of minima are needed first")],
        ),
        (
            lambda a: sums(a, a[0])[1].sum((0, 1)),
            [floats(30, 4096)],
            [("f_1", ("f_0",), True, "the loop has to be over first")],
        ),
    ],
)  # fmt: skip
def test_reasons(fn: Any, args: Any, expected: Any) -> None:
    found = [(each.kernel, each.others, each.waits, each.why) for each in apart(fn, *args)]
    assert found == expected


@pytest.mark.parametrize(
    ("most", "why"),
    [(4, "they would read too many arrays"), (5, "they would take more arguments than a kernel may have")],
)
def test_a_kernel_takes_so_many_arguments(most: int, why: str) -> None:
    def f(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return jnp.sin(x * a * b), jnp.cos(x * c * d)

    with planned_with(groups={"pointers": most}):
        assert [each.why for each in apart(f, *[floats(512, 512)] * 5)] == [why]


def test_a_contraction_beside_a_loop() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), x), x @ w

    (found,) = j2t.transpile(f, floats(64, 64), floats(64, 64), contractions="triton").summary.apart
    assert found.why == "one of them is a matrix product, the other one a loop"


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: jnp.argmax(x), "the place of a maximum over the whole array is needed first"),
        (lambda x: jnp.argmin(x), "the place of a minimum over the whole array is needed first"),
        (lambda x: x.min(0), "7 minima are needed first"),
    ],
)
def test_what_is_needed_first(fn: Any, why: str) -> None:
    (eqn,) = (eqn for eqn in equations(jax.make_jaxpr(fn)(floats(5, 7)).jaxpr) if eqn.primitive.name in WORDS)
    assert needed_first(eqn) == why


NO_LOOP = "a loop does not share the tiling of a matrix product"
BLOCKS = "the other output does not share the tiling of the matrix product"
AGAIN = "contractions would be made again and again, wherever they are wanted"
FEW = "fused, there would be too few programs or too many live values"


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("around_a_loop", [NO_LOOP, NO_LOOP]),
        ("linear_gradients", [AGAIN, BLOCKS]),
        ("products_and_their_sums", [ADDED_UP, FEW]),
    ],
)
def test_reasons_of_contractions(name: str, reasons: list[str]) -> None:
    (contraction,) = (each for each in CONTRACTIONS if each.name == name)
    made = j2t.transpile(contraction.whole(), *contraction.args(), contractions="triton")
    assert [each.why for each in made.summary.apart] == reasons


def test_a_computation_that_is_too_long() -> None:
    found = apart(long, floats(100))
    assert [each.others for each in found] == [("f",)] * len(found), "its parts are alike, and so one kernel"
    assert {each.why for each in found} == {"one kernel would be 1,799 computations long, and 1,500 are the most"}


def test_a_chain_of_products_that_is_too_long() -> None:
    def layers(x: Any, weights: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    args = floats(64, 64), [floats(64, 64)] * (COMMON.few + 1)
    (found,) = j2t.transpile(layers, *args, contractions="triton").summary.apart
    assert found.why == "a kernel chains at most 8 matrix products"


def test_the_line_that_makes_what_is_waited_for_is_given() -> None:
    found = apart(rolled, floats(1000, 100))
    assert {each.where for each in found} == {f"test_apart.py:{rolled.__code__.co_firstlineno + 2} (rolled)"}
    assert {each.why for each in found} == {"a value has too many consumers to be recomputed for each"}


def test_one_kernel_has_no_reasons() -> None:
    program = j2t.transpile(jax.nn.softmax, floats(64, 100))
    assert program.summary.apart == () and "several" not in program.explain()


def test_partition_shows_them() -> None:
    stage = j2t.transpile(lambda x: x / x.sum(), floats(4096, 1024)).stages["partition"]
    assert str(stage).count("apart=") == 2 and f"apart={WHOLE}" in str(stage)
