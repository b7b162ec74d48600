"""Products join the terms that a thread adds up by itself, and nothing that lanes exchange."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import asm
from jaxpr2triton.launch.compile.join import products_joined
from jaxpr2triton.launch.cycles.model import cycles_of
from tests.compiling import differences
from tests.loop_programs import PROGRAMS
from tests.machine.cases import Case, cases_of, loop_cases

SM_90 = TARGETS["sm_90"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("mul.f32 %r3, %r1, %r2; add.rn.ftz.f32 %r5, %r4, %r3;", "fma.rn.f32 %r5, %r1, %r2, %r4;"),
        ("mul.f32 %r3, %r1, 0f3F000000; add.rn.f32 %r5, %r3, %r4;", "fma.rn.f32 %r5, %r1, 0f3F000000, %r4;"),
        ("mul.f64 %rd3, %rd1, %rd1; add.rn.f64 %rd5, %rd3, %rd4;", "fma.rn.f64 %rd5, %rd1, %rd1, %rd4;"),
        (
            "mul.f32 %r3, %r1, %r2; mul.f32 %r6, %r4, %r5; add.rn.f32 %r7, %r3, %r6; add.rn.f32 %r9, %r7, %r8;",
            "mul.f32 %r6, %r4, %r5; fma.rn.f32 %r7, %r1, %r2, %r6; add.rn.f32 %r9, %r7, %r8;",
        ),
        ("$L__tmp1:; mul.f32 %r3, %r1, %r2; $L__tmp2:; add.rn.f32 %r5, %r4, %r3;", None),
    ],
)
def test_what_is_joined(before: str, after: str | None) -> None:
    after = after or "$L__tmp1:; $L__tmp2:; fma.rn.f32 %r5, %r1, %r2, %r4;"
    assert products_joined(lines(before)) == lines(after)


@pytest.mark.parametrize(
    "text",
    [
        "mul.f32 %r3, %r1, %r2; shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; add.rn.f32 %r5, %r4, %r3;",
        "shfl.sync.bfly.b32 %r4, %r9, 16, 31, -1; mul.f32 %r3, %r1, %r2; add.rn.f32 %r5, %r4, %r3;",
        "shfl.sync.bfly.b32 %r4, %r9, 16, 31, -1; cvt.u64.u32 %rd4, %r4; mul.f64 %rd3, %rd1, %rd2; "
        "add.rn.f64 %rd5, %rd4, %rd3;",
        "mul.f32 %r3, %r1, %r2; add.rn.f32 %r5, %r4, %r3; st.global.b32 [ %rd1 + 0 ], { %r3 };",
        "mul.f32 %r3, %r1, %r2; mov.b32 %r1, %r6; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r3, %r1, %r2; ld.global.v2.b32 { %r6, %r2 }, [ %rd1 + 0 ]; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r3, %r1, %r2; { .reg .b32 t; mov.b32 t, %r6; mov.b32 %r1, t; }; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r3, %r1, %r2; $L__BB0_1:; add.rn.f32 %r5, %r4, %r3; @%p1 bra $L__BB0_1;",
        "mul.f32 %r3, %r1, %r2; @%p1 bra $L__BB0_2; add.rn.f32 %r5, %r4, %r3; $L__BB0_2:",
        "mul.rn.f32 %r3, %r1, %r2; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r3, %r1, %r2; add.rn.f32 %r5, %r3, %r3;",
        "mul.f32 %r3, %r1, %r2; add.rn.f64 %rd5, %rd4, %r3;",
        "mul.f32 %r3, %r1, %r2; add.rz.f32 %r5, %r4, %r3;",
    ],
)
def test_what_is_not(text: str) -> None:
    assert products_joined(lines(text)) == lines(text)


def lines(text: str) -> str:
    """One instruction, or a block in braces, a line."""
    return "\n".join(f"\t{each}" for each in re.findall(r"\{ \.reg[^}]*\}|\$\w+:|[@\w][^;]*;", text))


def steps(w: Any, h: Any) -> Any:
    return lax.scan(lambda h, _: (jnp.tanh(w @ h), h.sum()), h, None, length=100)


def test_a_thread_multiplies_and_adds_at_once() -> None:
    """And the machine finds no copies that differ."""
    rng = np.random.default_rng(0)
    w, h = rng.standard_normal((64, 64)).astype(np.float32) / 8, rng.standard_normal(64).astype(np.float32)
    (case,) = cases_of("steps", steps, w, h)
    assert joined(case) > 16
    for warps in (1, 2, 4):
        assert case.with_warps(warps).run().findings == ()
    found = j2t.fuse(steps, backend="machine", strict=True)(w, h)
    assert differences(jax.tree.leaves(found), jax.tree.leaves(jax.jit(steps)(w, h)), 1e-5) == []


def joined(case: Case) -> int:
    return asm(case.kernel, SM_90, "ptx").count("fma.rn.f32")


def summed_plainly(case: Case) -> Case:
    own = r"    a = a \* -1\.0 \* -1\.0\n(?:    .*\n)*?    return tl\.inline_asm.*"
    source, times = re.subn(own, "    return a + b", case.kernel.source)
    assert times == 1
    return case.with_source(source)


def cases_named(name: str) -> list[Case]:
    (program,) = (program for program in PROGRAMS if program.name == name)
    return [*loop_cases(program)]


@pytest.mark.parametrize("name", ["steps", "kalman"])
def test_sums_cost_no_more_than_plain_ones(name: str) -> None:
    own = cases_of("steps", steps, np.ones((64, 64), np.float32), np.ones(64, np.float32))
    for case in own if name == "steps" else cases_named(name):
        if "add_rn" in case.kernel.source:
            ours, plain = (cycles_of(each.kernel, SM_90).whole for each in (case, summed_plainly(case)))
            assert ours is not None and plain is not None and ours < 1.03 * plain


@pytest.mark.parametrize("name", ["kalman", "inferences"])
def test_no_sum_is_computed_again_in_another_layout(name: str) -> None:
    """It would be another order, and another value."""
    for case in cases_named(name):
        asked, made = (asm(case.kernel, SM_90, stage).count('"tt.reduce"') for stage in ("ttir", "ttgir"))
        assert asked == made > 0
