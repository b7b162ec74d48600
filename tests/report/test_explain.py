"""What a program became, in words and for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.ir.kernel import Buffer, Kernel, KernelAxis, Leftover, Role
from jaxpr2triton.report.explain import explain, explain_grad, explain_grad_json, explain_json, least_bytes

F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Program:
    kernels: tuple[Kernel, ...]
    leftovers: tuple[Leftover, ...]
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]


def kernel(name: str, rows: int, columns: int) -> Kernel:
    return Kernel(
        name=name,
        source=f"def {name}(): ...",
        inputs=(Buffer("x", (rows, columns), F32),),
        outputs=(Buffer("out", (rows,), F32),),
        axes=(KernelAxis("row", rows, Role.GRID, 4), KernelAxis("col", columns, Role.LANE, 128)),
        grid=(rows // 4, 1, 1),
        num_warps=4,
        num_stages=2,
        bytes_read=rows * columns * 4,
        bytes_written=rows * 4,
        flops=rows * columns,
    )


SORT = Leftover(
    "sort", "b:f32[100] = sort[num_keys=1]\n   a", "model.py:62 (loss)", "there is no rule for the primitive `sort`"
)
X = jax.ShapeDtypeStruct((4096, 100), jnp.float32)
ROW = jax.ShapeDtypeStruct((4096,), jnp.float32)
ALL_FUSED = Program((kernel("norms", 4096, 100),), (), (X,), (ROW,))
WITH_SORT = Program((kernel("norms", 4096, 100), kernel("more", 8, 100)), (SORT,), (X,), (ROW, ROW))


def test_one_kernel() -> None:
    assert explain(ALL_FUSED, "norms") == (
        "norms: (f32[4096,100]) → (f32[4096])\n"
        "  launches  1 kernel, nothing left to XLA\n"
        "  bytes     1,654,784 moved by the kernels; inputs and outputs are 1,654,784, 1.00 times that\n"
        "\n"
        "  kernel  axes                                        grid  warps  bytes read  written    flops\n"
        "  norms   row: grid 4096 by 4 | col: lane 100 of 128  1024      4   1,638,400   16,384  409,600"
    )


def test_kernels_and_leftovers() -> None:
    assert explain(WITH_SORT) == (
        "program: (f32[4096,100]) → (f32[4096], f32[4096])\n"
        "  launches  2 kernels, and XLA for 1 equation\n"
        "  bytes     1,658,016 moved by the kernels; inputs and outputs are 1,671,168\n"
        "\n"
        "  kernel  axes                                        grid  warps  bytes read  written    flops\n"
        "  norms   row: grid 4096 by 4 | col: lane 100 of 128  1024      4   1,638,400   16,384  409,600\n"
        "  more    row: grid 8 by 4 | col: lane 100 of 128     2         4       3,200       32      800\n"
        "\n"
        "  left to XLA\n"
        "    sort at model.py:62 (loss): there is no rule for the primitive `sort`\n"
        "      b:f32[100] = sort[num_keys=1] a"
    )


def test_a_program_without_kernels() -> None:
    assert explain(Program((), (SORT,), (X,), ())).splitlines()[1] == "  launches  0 kernels, and XLA for 1 equation"
    assert "kernel  axes" not in explain(Program((), (SORT,), (X,), ()))


def test_an_empty_program() -> None:
    empty = jax.ShapeDtypeStruct((0, 3), jnp.float32)
    assert explain(Program((), (), (empty,), ())) == (
        "program: (f32[0,3]) → ()\n"
        "  launches  0 kernels, nothing left to XLA\n"
        "  bytes     0 moved by the kernels; inputs and outputs are 0"
    )


def test_long_equations_are_cut_in_words_and_whole_for_programs() -> None:
    long = Leftover("sort", "b = sort " + "a " * 100, "model.py:1 (f)", "too long")
    text = explain(Program((), (long,), (X,), ())).splitlines()[-1].strip()
    assert (len(text), text[-1]) == (110, "…")
    assert explain_json(Program((), (long,), (X,), ()))["leftovers"][0]["equation"] == long.equation


def test_the_least_counts_every_input_and_output_once() -> None:
    key = jax.ShapeDtypeStruct((3,), jax.random.key(0).dtype)
    half = jax.ShapeDtypeStruct((5,), jnp.bfloat16)
    assert least_bytes(Program((), (), (key, half), (half,))) == 3 * 8 + 10 + 10


@dataclass(frozen=True)
class Residual:
    name: str
    source: str
    shape: tuple[int, ...]
    dtype: np.dtype
    where: str


KEPT = (Residual("x", "input", (4096, 100), F32, ""), Residual("mean", "new", (4096,), F32, "model.py:3 (norms)"))


def test_a_gradient_shows_what_is_kept() -> None:
    text = explain_grad(ALL_FUSED, WITH_SORT, KEPT, "norms")
    assert text.startswith(explain(ALL_FUSED, "norms, forward"))
    assert text.endswith(explain(WITH_SORT, "norms, backward"))
    assert (
        "\n\n"
        "norms keeps 2 values for its gradient: "
        "16,384 bytes written for it alone, 1,638,400 bytes of inputs and outputs\n"
        "  value  is     type               bytes  at\n"
        "  x      input  f32[4096,100]  1,638,400\n"
        "  mean   new    f32[4096]         16,384  model.py:3 (norms)\n"
        "\n"
    ) in text


def test_a_gradient_that_keeps_nothing() -> None:
    assert "\n\nprogram keeps 0 values for its gradient\n\n" in explain_grad(ALL_FUSED, ALL_FUSED, ())


def test_the_same_facts_for_programs() -> None:
    facts = json.loads(json.dumps(explain_json(WITH_SORT)))
    assert list(facts) == [
        "name", "inputs", "outputs", "bytes_read", "bytes_written", "bytes_least", "flops", "kernels", "leftovers",
    ]  # fmt: skip
    assert facts["bytes_read"] == 1_638_400 + 3_200
    assert facts["kernels"][1] == {
        "name": "more",
        "axes": [
            {"name": "row", "size": 8, "role": "grid", "block": 4, "text": "row: grid 8 by 4"},
            {"name": "col", "size": 100, "role": "lane", "block": 128, "text": "col: lane 100 of 128"},
        ],
        "grid": [2, 1, 1],
        "num_warps": 4,
        "num_stages": 2,
        "inputs": [{"name": "x", "type": "f32[8,100]"}],
        "outputs": [{"name": "out", "type": "f32[8]"}],
        "bytes_read": 3200,
        "bytes_written": 32,
        "flops": 800,
    }
    grad = json.loads(json.dumps(explain_grad_json(ALL_FUSED, WITH_SORT, KEPT[1:])))
    assert grad["residuals"] == [
        {"name": "mean", "source": "new", "type": "f32[4096]", "bytes": 16384, "where": "model.py:3 (norms)"}
    ]
    assert (grad["forward"]["name"], grad["backward"]["name"]) == ("program, forward", "program, backward")
