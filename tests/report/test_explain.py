"""What a program became, in words and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.ir.kernel import (
    Alone,
    Apart,
    Buffer,
    Choice,
    Divided,
    Estimate,
    Kernel,
    KernelAxis,
    Launches,
    Leftover,
    Residual,
    Role,
)
from jaxpr2triton.ir.recorded import Recorded, RecordedAxis
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from jaxpr2triton.report.explain import explain, explain_grad, explain_grad_json, explain_json, least_bytes

F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Program:
    kernels: tuple[Kernel, ...]
    leftovers: tuple[Leftover, ...]
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]
    apart: tuple[Apart, ...] = ()
    alone: Alone = Alone(3)
    steps: tuple[str, ...] = ()
    divided: tuple[Divided, ...] = ()
    policy: Policy = DEFAULT_POLICY
    schedules: tuple[Recorded, ...] = ()


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
    "sort",
    "b:f32[100] = sort[num_keys=1]\n   a",
    "model.py:62 (loss)",
    "there is no rule for the primitive `sort`",
    nbytes=800,
    microseconds=6.5,
)
X = jax.ShapeDtypeStruct((4096, 100), jnp.float32)
ROW = jax.ShapeDtypeStruct((4096,), jnp.float32)
ALL_FUSED = Program((kernel("norms", 4096, 100),), (), (X,), (ROW,))
AXES = RecordedAxis("row", 8, "grid", 4), RecordedAxis("col", 100, "lane", 128)
MORE = Recorded("0f", "more", AXES, 4, 2, None, False)
KERNELS = kernel("norms", 4096, 100), kernel("more", 8, 100)
WITH_SORT = Program(KERNELS, (SORT,), (X,), (ROW, ROW), schedules=(MORE,))


def test_one_kernel() -> None:
    assert explain(ALL_FUSED, "norms") == (
        "norms: (f32[4096,100]) → (f32[4096])\n"
        "  launches  1 kernel, nothing left to XLA\n"
        "  XLA alone about 3 launches\n"
        "  bytes     1,654,784 moved by the kernels; inputs and outputs are 1,654,784, 1.00x the minimum\n"
        "\n"
        "  kernel  axes                                        grid  warps  bytes read  written    flops\n"
        "  norms   row: grid 4096 by 4 | col: lane 100 of 128  1024      4   1,638,400   16,384  409,600"
    )


def test_kernels_and_leftovers() -> None:
    assert explain(WITH_SORT) == (
        "program: (f32[4096,100]) → (f32[4096], f32[4096])\n"
        "  launches  2 kernels, and XLA for 1 equation\n"
        "  XLA alone about 3 launches\n"
        "  bytes     1,658,016 moved by the kernels, at least 800 by XLA; inputs and outputs are 1,671,168\n"
        "\n"
        "  kernel  axes                                        grid  warps  bytes read  written    flops\n"
        "  norms   row: grid 4096 by 4 | col: lane 100 of 128  1024      4   1,638,400   16,384  409,600\n"
        "  more    row: grid 8 by 4 | col: lane 100 of 128     2         4       3,200       32      800\n"
        "\n"
        "  left to XLA\n"
        "    sort at model.py:62 (loss): there is no rule for the primitive `sort`\n"
        "      b:f32[100] = sort[num_keys=1] a"
    )


def test_what_a_loop_costs() -> None:
    """In a kernel by the estimate that its schedule was chosen for, and with XLA in launches."""
    chosen = Estimate(instructions=174, barriers=0, kept=148, programs=64, processors=132, cycles=1520)
    other = Estimate(instructions=87, barriers=10, kept=74, programs=64, processors=132, cycles=1756)
    norms = replace(kernel("norms", 4096, 100), choice=Choice(chosen, "row: grid 4096 by 8, 2 warps", other))
    alone = replace(kernel("alone", 8, 100), choice=Choice(chosen))
    left = replace(SORT, primitive="scan", launches=Launches(3, 1000), microseconds=12_345.0)
    nested = replace(SORT, primitive="scan", launches=Launches(5, 10), microseconds=None)
    endless = replace(SORT, primitive="while", launches=Launches(1, None), microseconds=None)
    program = Program((norms, kernel("more", 8, 100), alone), (left, nested, endless), (X,), (ROW,))
    assert explain(program).splitlines()[9:] == [
        "",
        "  a step, estimated  instructions  barriers  kept  programs  cycles  next best",
        "  norms                       174         0   148        64   1,520  1,756 with row: grid 4096 by 8,",
        "                                                                     2 warps",
        "  alone                       174         0   148        64   1,520  -",
        "",
        "  left to XLA",
        "    scan at model.py:62 (loss): there is no rule for the primitive `sort`",
        "      XLA: 3 launches a step, 3,000 in all, about 12,000 µs",
        "      b:f32[100] = sort[num_keys=1] a",
        "    scan at model.py:62 (loss): there is no rule for the primitive `sort`",
        "      XLA: 5 launches a step, 50 in all, if each `while` in it has 2 steps",
        "      b:f32[100] = sort[num_keys=1] a",
        "    while at model.py:62 (loss): there is no rule for the primitive `sort`",
        "      XLA: 1 launch a step",
        "      b:f32[100] = sort[num_keys=1] a",
    ]
    facts = json.loads(json.dumps(explain_json(program)))
    assert facts["kernels"][0]["estimate"]["next_best"]["with"] == "row: grid 4096 by 8, 2 warps"
    assert facts["kernels"][2]["estimate"] == {**asdict(chosen), "next_best": None, "compiled": []}
    assert [each["launches"] for each in facts["leftovers"]] == [
        {"a_step": 3, "steps": 1000, "in_all": 3000},
        {"a_step": 5, "steps": 10, "in_all": 50},
        {"a_step": 1, "steps": None, "in_all": None},
    ]


def test_a_program_without_kernels() -> None:
    assert explain(Program((), (SORT,), (X,), ())).splitlines()[1] == "  launches  0 kernels, and XLA for 1 equation"
    assert "kernel  axes" not in explain(Program((), (SORT,), (X,), ()))


def test_an_empty_program() -> None:
    empty = jax.ShapeDtypeStruct((0, 3), jnp.float32)
    assert explain(Program((), (), (empty,), ())) == (
        "program: (f32[0,3]) → ()\n  launches  0 kernels, nothing left to XLA\n  bytes     inputs and outputs are 0"
    )


def test_long_equations_are_cut_in_words_and_whole_for_programs() -> None:
    long = Leftover("sort", "b = sort " + "a " * 100, "model.py:1 (f)", "too long")
    text = explain(Program((), (long,), (X,), ())).splitlines()[-1].strip()
    assert (len(text), text[-1]) == (94, "…")
    assert explain_json(Program((), (long,), (X,), ()))["leftovers"][0]["equation"] == long.equation


def test_leftovers_of_one_kind_are_one_entry() -> None:
    """599 products at five lines are not 1,198 lines; those with another reason are another entry."""
    products = [
        Leftover("dot_general", f"v{n}:f32[8,8] = dot_general a b", f"model.py:{n % 5 + 10} (step)", "it is large")
        for n in range(599)
    ]
    loop = replace(SORT, primitive="scan", launches=Launches(3, 1000), microseconds=4500.0)
    other = replace(products[0], where="", why="it is small")
    program = Program((), (*products[:300], SORT, loop, *products[300:], loop, other), (X,), ())
    assert explain(program).splitlines()[3:] == [
        "",
        "  left to XLA",
        "    599 x dot_general at model.py:10 (step), model.py:11 (step), model.py:12 (step) and 2 more",
        "        places: it is large",
        "      such as v0:f32[8,8] = dot_general a b",
        "    sort at model.py:62 (loss): there is no rule for the primitive `sort`",
        "      b:f32[100] = sort[num_keys=1] a",
        "    2 x scan at model.py:62 (loss): there is no rule for the primitive `sort`",
        "      XLA: 3 launches a step, 3,000 in all, about 4,500 µs of each",
        "      such as b:f32[100] = sort[num_keys=1] a",
        "    dot_general at an unknown line: it is small",
        "      v0:f32[8,8] = dot_general a b",
    ]
    assert len(explain_json(program)["leftovers"]) == 603


def test_many_inputs_are_a_few_lines() -> None:
    equal = Program((), (), (X,) * 400 + (ROW, ROW), (X,) * 3)
    assert explain(equal).splitlines()[0] == (
        "program: (400 x f32[4096,100], f32[4096], f32[4096]) → (3 x f32[4096,100])"
    )
    different = Program((), (), tuple(jax.ShapeDtypeStruct((n, 1000), jnp.float32) for n in range(300)), (X,))
    lines = explain(different).splitlines()
    assert lines[0].startswith("program: (f32[0,1000], f32[1,1000],") and max(map(len, lines)) <= 100
    assert lines[1].endswith("f32[7,1000], and 292 more) → (f32[4096,100])")
    assert len(explain_json(different)["inputs"]) == 300


def test_no_line_is_longer_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = tuple(KernelAxis(f"axis{n}", 1000 + n, Role.LANE, 1024) for n in range(9))
    wide = replace(kernel("transformer_training_step_bwd_117", 4096, 100), axes=axes)
    why = Leftover("sort", "b = sort " + "a " * 100, "model.py:1 (f)", "there is " + "very " * 30 + "much to say")
    program = Program((wide,), (why,), (X,) * 5, (ROW,))
    for columns, longest in (("", 100), ("100", 100), ("80", 80), ("160", 160), ("no number", 100), ("1000", 1000)):
        monkeypatch.setenv("COLUMNS", columns)
        text = explain_grad(program, program, KEPT, "transformer_training_step_with_a_long_name")
        assert max(map(len, text.splitlines())) <= longest
    assert " | ".join(map(str, axes)) in text
    monkeypatch.setenv("COLUMNS", "100")
    assert explain(Program((wide,), (), (X,), (ROW,))).splitlines()[5:9] == [
        "  kernel                             axes                  grid  warps  bytes read  written    flops",
        "  transformer_training_step_bwd_117  axis0: lane 1000 of   1024      4   1,638,400   16,384  409,600",
        "                                     1024 |",
        "                                     axis1: lane 1001 of",
    ]


def test_kernels_that_are_likely_to_be_slow() -> None:
    """Few programs that do much, and steps that take far longer than their operations; nothing is said of others."""
    one = replace(kernel("one", 4096, 1000), grid=(1, 1, 1))
    steps = KernelAxis("t", 1000, Role.LOOP, 1)
    slow = Choice(Estimate(instructions=174, barriers=0, kept=9000, programs=64, processors=132, cycles=500_000))
    fast = Choice(Estimate(instructions=174, barriers=0, kept=90, programs=64, processors=132, cycles=7_000))
    spilling = replace(kernel("spilling", 256, 4000), axes=(steps,), choice=slow)
    endless = replace(spilling, name="endless", axes=(replace(steps, unbounded=True),))
    small = replace(kernel("small", 8, 100), grid=(1, 1, 1))
    kernels = (one, spilling, endless, replace(spilling, choice=fast), small, kernel("many", 4096, 1000))
    program = Program(kernels, (), (X,), (ROW,))
    assert explain(program).splitlines()[-4:] == [
        "",
        "  warning: one is 1 program for 132 processors, with 16,400,384 bytes to move and 4,096,000",
        "      operations: about 77 µs",
        "  warning: spilling is estimated to take 500,000 cycles a step, and its operations alone some 1",
    ]
    assert [len(each["warnings"]) for each in explain_json(program)["kernels"]] == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(("programs", "warns"), [(8, True), (33, True), (34, False), (4096, False)])
def test_programs_that_leave_most_processors_idle(programs: int, warns: bool) -> None:
    """A quarter of the processors and less, where what is left undone by the others takes longer than 10 µs."""
    long = replace(kernel("long", 4096, 4000), grid=(programs, 1, 1))
    short = replace(kernel("short", 64, 4000), grid=(programs, 1, 1))
    text = " ".join(explain(Program((long, short), (), (X,), (ROW,))).split())
    assert (f"warning: long is {programs} programs for 132 processors, with " in text) == warns
    assert "short is" not in text


def test_a_title_instead_of_a_name() -> None:
    assert explain(ALL_FUSED, "lambda", "lambda at model.py:3").startswith("lambda at model.py:3: (f32[4096,100])")
    text = explain_grad(ALL_FUSED, ALL_FUSED, (), "lambda", "lambda at model.py:3")
    assert "lambda at model.py:3, backward: " in text and "\n\nlambda at model.py:3 keeps 0 values" in text


def test_the_least_counts_every_input_and_output_once() -> None:
    key = jax.ShapeDtypeStruct((3,), jax.random.key(0).dtype)
    half = jax.ShapeDtypeStruct((5,), jnp.bfloat16)
    assert least_bytes(Program((), (), (key, half), (half,))) == 3 * 8 + 10 + 10


KEPT = (Residual("x", "input", (4096, 100), F32, ""), Residual("mean", "new", (4096,), F32, "model.py:3 (norms)"))


def test_a_gradient_shows_what_is_kept() -> None:
    text = explain_grad(ALL_FUSED, WITH_SORT, KEPT, "norms")
    assert text.startswith(explain(ALL_FUSED, "norms, forward"))
    assert text.endswith(explain(WITH_SORT, "norms, backward"))
    assert (
        "\n\n"
        "norms keeps 2 values for its gradient: "
        "16,384 bytes written for it alone, 1,638,400 bytes of inputs\n"
        "    and outputs\n"
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
        "name", "inputs", "outputs", "bytes_read", "bytes_written", "bytes_asked", "bytes_least", "bytes_by_xla",
        "microseconds", "flops", "xla_alone", "kernels", "steps", "devices", "apart", "leftovers",
    ]  # fmt: skip
    assert facts["bytes_read"] == 1_638_400 + 3_200
    assert facts["kernels"][1] == {
        "name": "more",
        "launches": 1,
        "axes": [
            {"name": "row", "size": 8, "role": "grid", "block": 4, "text": "row: grid 8 by 4"},
            {"name": "col", "size": 100, "role": "lane", "block": 128, "text": "col: lane 100 of 128"},
        ],
        "grid": [2, 1, 1],
        "num_warps": 4,
        "num_stages": 2,
        "inputs": [{"name": "x", "type": "f32[8,100]"}],
        "outputs": [{"name": "out", "type": "f32[8]"}],
        "flags": [],
        "kept": [],
        "bytes_read": 3200,
        "bytes_written": 32,
        "bytes_asked": 0,
        "flops": 800,
        "where": [],
        "estimate": None,
        "warnings": [],
        "microseconds": facts["kernels"][1]["microseconds"],
        "schedule": MORE.to_json(),
    }
    assert facts["kernels"][0]["schedule"] is None
    assert 3.0 < facts["kernels"][1]["microseconds"] < facts["kernels"][0]["microseconds"] < facts["microseconds"] - 6
    grad = json.loads(json.dumps(explain_grad_json(ALL_FUSED, WITH_SORT, KEPT[1:])))
    assert grad["residuals"] == [
        {"name": "mean", "source": "new", "type": "f32[4096]", "bytes": 16384, "where": "model.py:3 (norms)"}
    ]
    assert (grad["forward"]["name"], grad["backward"]["name"]) == ("program, forward", "program, backward")
