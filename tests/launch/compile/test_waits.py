"""What products read from registers stays there until they have read it: in machine code, step after step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from jaxpr2triton.launch.compile.waits import products_awaited
from jaxpr2triton.launch.cycles.sass import Instruction, instructions

SM_90 = target_named("sm_90")
STEP = """
$L1:
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2}, {%r3,%r4,%r5,%r6}, %rd1, %p1, 1, 1, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 3;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2}, {%r7,%r8,%r9,%r10}, %rd1, %p1, 1, 1, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 3;
	@%p2 bra $L1;
	wgmma.wait_group.sync.aligned 2;
"""


def test_the_last_products_of_a_step_are_waited_for() -> None:
    assert re.findall(r"aligned (\d);", products_awaited(STEP)) == ["3", "0", "2"]


def test_products_that_nobody_waits_for_are_waited_for_before_the_next_step() -> None:
    before, _, after = STEP.rpartition("wgmma.wait_group.sync.aligned 3;\n")
    lines = products_awaited(before + after).split("\n")
    (end,) = (number for number, line in enumerate(lines) if "bra" in line)
    assert lines[end - 1].strip() == "wgmma.wait_group.sync.aligned 0;"


def test_factors_in_shared_memory_are_left_alone() -> None:
    shared = re.sub(r"\{%r[37][^}]*\}", "%rd2", STEP)
    assert products_awaited(shared) == shared


def one_product(x: Any, w: Any, v: Any) -> Any:
    return jnp.exp(x) @ w


def two_products(x: Any, w: Any, v: Any) -> Any:
    return jnp.exp(x) @ w, jnp.tanh(x) @ v


@pytest.mark.compile
@pytest.mark.parametrize("fn", [one_product, two_products])
@pytest.mark.parametrize("size", [1024, 2048])
def test_no_factor_is_written_while_it_is_read(fn: Callable[..., Any], size: int) -> None:
    shape = jax.ShapeDtypeStruct((size, size), jnp.bfloat16)
    (kernel,) = j2t.transpile(fn, shape, shape, shape, contractions="triton", for_target="sm_90").kernels
    code, _ = machine_code(compile_kernel(kernel, SM_90).code, "sm_90a")
    found = instructions(code)
    steps = [
        [each for each in found if branch.target <= each.address <= branch.address]
        for branch in found
        if branch.target is not None and branch.target < branch.address
    ]
    with_products = [step for step in steps if any(each.kind == "HGMMA" for each in step)]
    assert with_products
    assert all(written_too_early(step + step) == [] for step in with_products)


def written_too_early(found: list[Instruction]) -> list[Instruction]:
    """The instructions that write what a product before them, which nobody has waited for, may still read."""
    under_way: list[set[int]] = []
    early = []
    for each in found:
        if each.kind == "HGMMA":
            _, left, *_ = each.operands.split(", ")
            first = int(left[1:]) if left.startswith("R") else None
            under_way.append(set() if first is None else set(range(first, first + 4)))
        elif each.name.startswith("WARPGROUP.DEPBAR"):
            left_over = int(each.operands.rpartition("0x")[2], 16)
            under_way = under_way[len(under_way) - min(left_over, len(under_way)) :]
        elif each.has_result and (target := re.match(r"R(\d+)\b", each.operands)):
            early += [each] if any(int(target[1]) in registers for registers in under_way) else []
    return early
