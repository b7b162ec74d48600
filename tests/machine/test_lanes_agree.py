"""Lanes that hold copies of a total hold the same bits: where it decides a loop or a branch, is an address or compared.

Thresholds are between the two totals that a warp would have, had the compiler fused products into its sums; and it is
shown that the machine notices such kernels.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.launch.machine.layout import Kind
from tests.compiling import differences
from tests.machine.cases import Case, cases_of
from tests.machine.totals import fused_totals, rounded_total

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
INPUTS = 20
Array = Any


@dataclass(frozen=True)
class Form:
    """What is summed up, and the factors of its last product; none that NumPy could tell if they are functions."""

    name: str
    terms: Callable[[Array, Array], Array]
    factors: Callable[[Array, Array], tuple[Array, Array]] | None = None

    def __str__(self) -> str:
        return self.name


FORMS = (
    Form("squares", lambda x, y: x * x, lambda x, y: (x, x)),
    Form("differences", lambda x, y: (x - y) * (x - y), lambda x, y: (x - y, x - y)),
    Form("products", lambda x, y: x * y, lambda x, y: (x, y)),
    Form("scaled", lambda x, y: x * 0.7, lambda x, y: (x, np.full_like(x, 0.7))),
    Form("quotients", lambda x, y: x / 3, None),
    Form("exponentials", lambda x, y: x * jnp.exp(y), None),
)
FLOATS = (np.float32, np.float64)
NARROW = (np.float16, ml_dtypes.bfloat16)
OFTEN = {"squares": np.float64, "products": ml_dtypes.bfloat16, "scaled": np.float16}
CASES = [
    (form, dtype)
    for form in FORMS
    for dtype in (*FLOATS, *NARROW)
    if DEEP or dtype == np.float32 or dtype == OFTEN.get(form.name)
]


def wide(x: Array) -> Array:
    """16 bits are summed up in 32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def total(form: Form, x: Array, y: Array) -> Array:
    return form.terms(wide(x), wide(y)).sum()


def halved_while_above(form: Form) -> Callable[..., Any]:
    def program(x: Array, y: Array, c: Array) -> Any:
        return lax.while_loop(lambda s: total(form, s[0], y) > c, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))

    return program


@dataclass(frozen=True)
class Drawn:
    x: np.ndarray
    y: np.ndarray
    c: np.generic
    between: bool  # two totals, of which `c` is the smaller one

    def of(self, case: Case) -> Case:
        return replace(case, inputs=tuple(np.asarray(getattr(self, buffer.name)) for buffer in case.kernel.inputs))


@functools.cache
def drawn(form: Form, dtype: Any) -> tuple[Drawn, ...]:
    """Numbers whose sums are positive, and a threshold between the two of them, if there are two."""
    rng, found = np.random.default_rng(7), []
    for tried in range(10 * INPUTS):
        x, y = rng.standard_normal((2, 32)).astype(dtype)
        widened = [z.astype(np.promote_types(dtype, np.float32)) for z in (x, y)]
        if form.factors:
            lower, upper = fused_totals(*form.factors(*widened))
        else:
            lower = upper = np.asarray(total(form, *widened))[()]
        if lower > 0.1 and (lower != upper or tried > 8 * INPUTS or not form.factors):
            found.append(Drawn(x, y, min(lower, upper).astype(widened[0].dtype), bool(lower != upper)))
    return tuple(found[:INPUTS])


def steps_of(form: Form, case: Drawn) -> int:
    """As often as a warp halves that adds up as shuffles do, and rounds each sum by itself."""
    assert form.factors
    x, y = (z.astype(case.c.dtype) for z in (case.x, case.y))
    for step in range(200):
        if not rounded_total(*form.factors(x, y)) > case.c:
            return step
        x = x * x.dtype.type(0.5)
    raise AssertionError("it goes on for ever")


def summed_plainly(case: Case) -> Case:
    """The kernel as it would be with additions that the compiler may fuse."""
    source, times = re.subn(r"        return libdevice\.add_rn.*", "        return a + b", case.kernel.source)
    assert times == 1
    return case.with_source(source)


@functools.cache
def loop_case(form: Form, dtype: Any) -> Case:
    with jax.enable_x64(dtype == np.float64):
        first = drawn(form, dtype)[0]
        (case,) = cases_of(str(form), halved_while_above(form), first.x, first.y, first.c)
    return case


def kinds_of(case: Case) -> set[Kind]:
    return {finding.kind for finding in case.run().findings}


@pytest.mark.parametrize(("form", "dtype"), CASES, ids=str)
def test_loops_end_for_all_lanes_at_once(form: Form, dtype: Any) -> None:
    """What the machine finds in fused kernels is an error."""
    program = halved_while_above(form)
    fused, plain = j2t.fuse(program, backend="machine", strict=True), jax.jit(program)
    with jax.enable_x64(dtype == np.float64):
        for one in drawn(form, dtype):
            (x, steps), (plain_x, plain_steps) = fused(one.x, one.y, one.c), plain(one.x, one.y, one.c)
            assert abs(int(steps) - int(plain_steps)) <= 1  # XLA adds up in another order
            assert steps != plain_steps or (x == plain_x).all()
            assert (np.asarray(x) == one.x * np.asarray(0.5 ** int(steps), one.x.dtype)).all()
            if form.factors:
                assert steps == steps_of(form, one)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(("form", "dtype"), CASES, ids=str)
def test_it_would_be_noticed_if_they_did_not(form: Form, dtype: Any, warps: int) -> None:
    case = loop_case(form, dtype).with_warps(warps)
    plain = summed_plainly(case)
    for one in drawn(form, dtype):
        assert kinds_of(one.of(case)) == set()
        assert not one.between or Kind.COPIES_CHOOSE in kinds_of(one.of(plain))


def test_there_are_thresholds_between_two_totals() -> None:
    found = {(str(form), np.dtype(dtype).name): sum(one.between for one in drawn(form, dtype)) for form, dtype in CASES}
    for form in ("squares", "differences", "products", "scaled"):
        assert found[form, "float32"] == INPUTS
    assert found["squares", "float64"] == found["scaled", "float16"] == INPUTS


PRODUCTS = FORMS[2]


def chosen(x: Array, y: Array, c: Array) -> Array:
    return lax.cond(total(PRODUCTS, x, y) > c, lambda x: x * 3, lambda x: x + 1, x)


def compared(x: Array, y: Array, c: Array) -> Array:
    return jnp.where(total(PRODUCTS, x, y) == c, x, y)


def largest(x: Array, y: Array, c: Array) -> Array:
    return jnp.argmax(jnp.stack([c, total(PRODUCTS, x, y), c - 1]))


def gathered(x: Array, y: Array, c: Array) -> Array:
    place = ((total(PRODUCTS, x, y) - c) * 2**20).astype(jnp.int32)
    return x[jnp.clip(place + 5, 0, 31)]


def two_at_once(x: Array, y: Array, c: Array) -> Array:
    def going(state: Any) -> Array:
        return ((state[0] * state[0]).sum() > c) & ((state[0] * y).sum() > c)

    return lax.while_loop(going, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))


def in_a_scan(x: Array, y: Array, c: Array) -> Array:
    def step(x: Array, _: None) -> Any:
        value = total(PRODUCTS, x, y)
        return lax.cond(value > c, lambda x: x * 0.5, lambda x: x + 0.1, x), value

    return lax.scan(step, x, None, length=4)


def gradients(x: Array, y: Array, c: Array) -> Any:
    def loss(x: Array, y: Array) -> Array:
        last, totals = in_a_scan(x, y, c)
        return (last * last).sum() + totals.sum()

    return jax.grad(loss, argnums=(0, 1))(x, y)


DECIDED = {
    **{chosen: Kind.COPIES_CHOOSE, compared: Kind.COPIES_CHOOSE, largest: Kind.COPIES_CHOOSE},
    **{gathered: Kind.COPIES_ADDRESS, two_at_once: Kind.COPIES_CHOOSE},
    **{in_a_scan: Kind.COPIES_CHOOSE, gradients: Kind.COPIES_CHOOSE},
}


@pytest.mark.parametrize("dtype", FLOATS if DEEP else FLOATS[:1])
@pytest.mark.parametrize("program", DECIDED)
def test_what_else_a_total_decides(program: Callable[..., Any], dtype: Any) -> None:
    """XLA, which adds up in another order, decides the same where the threshold is away from both totals."""
    draws = drawn(PRODUCTS, dtype)
    with jax.enable_x64(dtype == np.float64):
        (case,) = cases_of(program.__name__, program, draws[0].x, draws[0].y, draws[0].c)
        for one in draws:
            for warps in (1, 4):
                wide = one.of(case.with_warps(warps))
                assert kinds_of(wide) == set()
                assert DECIDED[program] in kinds_of(summed_plainly(wide))
        for far in (replace(one, c=one.c * dtype(part)) for one in draws[:4] for part in (0.9, 1.1)):
            expected = jax.tree.leaves(jax.jit(program)(far.x, far.y, far.c))
            found = j2t.fuse(program, backend="machine", strict=True)(far.x, far.y, far.c)
            assert differences(jax.tree.leaves(found), expected, 1e-5) == []


@pytest.mark.parametrize("dtype", FLOATS if DEEP else FLOATS[:1])
@pytest.mark.parametrize("form", [form for form in FORMS if form.name in ("squares", "products", "scaled")], ids=str)
def test_sums_over_several_warps(form: Form, dtype: Any) -> None:
    """Older compilers store the part of a warp from one lane, newer ones from all."""
    rng = np.random.default_rng(3)
    with jax.enable_x64(dtype == np.float64):
        x, y = rng.standard_normal((2, 128)).astype(dtype)
        (case,) = cases_of(str(form), halved_while_above(form), x, y, dtype(0.1))
        case = case.with_warps(4)
        for _ in range(INPUTS):
            x, y = rng.standard_normal((2, 128)).astype(dtype)
            assert kinds_of(Drawn(x, y, dtype(0.1), False).of(case)) == set()
