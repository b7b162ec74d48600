"""Long sums of a thread are made in several parts; what is short, read on the way or comes from other lanes is not."""

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
from jaxpr2triton.launch.compile.alone import with_all_registers
from jaxpr2triton.launch.compile.compile import asm
from jaxpr2triton.launch.compile.join import products_joined
from jaxpr2triton.launch.compile.parted import sums_parted
from tests.compiling import differences
from tests.machine.cases import cases_of

SM_90 = TARGETS["sm_90"]


def code(text: str, registers: int = 30) -> str:
    lines = [f"\t.reg .b32 \t%r<{registers}>;", *(f"\t{each.strip()};" for each in text.split(";") if each.strip())]
    return "\n".join(lines)


def chain(terms: int, first: int = 1, result: int = 20) -> str:
    """%r1 + %r2 + …, the sums so far in %r20 and those after it."""
    sums = [f"%r{first}", *(f"%r{result + n}" for n in range(terms - 1))]
    return "; ".join(f"add.rn.f32 {sums[n + 1]}, {sums[n]}, %r{first + n + 1}" for n in range(terms - 1))


def test_a_sum_in_two_parts() -> None:
    store = "; st.global.b32 [%rd1], %r22"
    parted = "add.rn.f32 %r30, %r1, %r3; add.rn.f32 %r31, %r2, %r4; add.rn.f32 %r22, %r30, %r31"
    assert sums_parted(code(chain(4) + store), 2) == code(parted + store, 32)


@pytest.mark.parametrize(
    ("terms", "latency", "parts"), [(7, 4, 1), (8, 4, 2), (15, 4, 3), (16, 4, 4), (64, 4, 4), (64, 8, 8), (4, 2, 2)]
)
def test_as_many_parts_as_a_result_takes_cycles(terms: int, latency: int, parts: int) -> None:
    assert depth(sums_parted(code(chain(terms, 1, 100), 200), latency), 98 + terms) == (
        terms - 1 if parts == 1 else pytest.approx(-(-terms // parts) - 1 + (parts - 1).bit_length(), abs=1)
    )


def test_sums_beside_each_other_have_fewer_parts() -> None:
    one, other = chain(16, 1, 100), chain(16, 20, 200)
    together = sums_parted(code(f"{one}; {other}", 300), 4)
    assert [depth(together, last) for last in (114, 214)] == [8, 8]
    apart = sums_parted(code(f"{one}; bar.sync 0; {other}", 300), 4)
    assert [depth(apart, last) for last in (114, 214)] == [5, 5]


def test_two_products_are_two_terms() -> None:
    """And each is joined with the sum that it goes into."""
    terms = "; ".join(
        f"mul.f32 %r{20 + n}, %r1, %r{40 + n}; fma.rn.f32 %r{n + 2}, %r{60 + n}, %r1, %r{20 + n}" for n in range(8)
    )
    made = products_joined(sums_parted(code(f"{terms}; {chain(8, 2, 100)}", 200), 4))
    assert (made.count("fma.rn"), made.count("mul."), made.count("add.")) == (14, 2, 1)
    assert depth(made, 106) == 8


@pytest.mark.parametrize(
    "text",
    [
        chain(3),
        chain(16, 1, 100) + "; st.global.b32 [%rd1], %r107",
        "shfl.sync.bfly.b32 %r4, %r90, 16, 31, -1; " + chain(16, 1, 100),
        chain(16, 1, 100).replace("add.rn", "add"),
        chain(16, 1, 100).replace("; ", "; @%p1 ", 15).replace("; @%p1 add", "; @%p1 bra $L__1; add", 15),
    ],
)
def test_what_is_left_alone(text: str) -> None:
    before = code(text, 200)
    assert sums_parted(before, 8) == before


def depth(text: str, register: int) -> int:
    """How many additions one after the other lead to it."""
    found: dict[str, int] = {}
    for result, operands in re.findall(r"(?:add|fma)\.rn\S* (%r\d+), ([^;]*);", text):
        found[result] = 1 + max(found.get(each, 0) for each in operands.split(", "))
    return found[f"%r{register}"]


def steps(w: Any, h: Any) -> Any:
    return lax.scan(lambda h, _: (jnp.tanh(h @ w), h.sum()), h, None, length=20)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_add_in_parts(dtype: Any) -> None:
    """And the machine finds no copies that differ."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == np.float64):
        w, h = (rng.standard_normal(shape).astype(dtype) / 8 for shape in ((64, 64), (64,)))
        (case,) = cases_of("steps", steps, w, h)
        for warps in (1, 2, 4):
            assert case.with_warps(warps).run().findings == ()
        found = j2t.fuse(steps, backend="machine", strict=True)(w, h)
        assert differences(jax.tree.leaves(found), jax.tree.leaves(jax.jit(steps)(w, h)), 1e-5) == []


def test_a_program_that_is_alone_has_all_registers() -> None:
    text = ".visible .entry steps(\n\t.param .u64 a\n)\n.reqntid 64\n{\n"
    assert with_all_registers(text) == text  # its lanes exchange nothing
    text += "\tld.shared.b32 %r1, [%r2];\n"
    assert with_all_registers(text) == text.replace(".reqntid 64\n", ".reqntid 64\n.minnctapersm 1\n")


def test_few_programs_are_alone() -> None:
    w, h = np.ones((16, 16), np.float32), np.ones((4096, 16), np.float32)
    for rows, alone in ((100, True), (4096, False)):
        (case,) = cases_of("rows", lambda w, h: jax.vmap(lambda h: steps(w, h)[0])(h), w, h[:rows])
        assert (".minnctapersm 1" in asm(case.kernel, SM_90, "ptx")) == alone
