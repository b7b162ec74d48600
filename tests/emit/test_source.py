"""The source of every kernel of the named programs is meant to be read: no copies, no dead lines, telling names."""

from __future__ import annotations

import ast
import builtins
import keyword
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import triton

import jaxpr2triton as j2t
from jaxpr2triton.emit.layout import WIDTH, text_of
from jaxpr2triton.emit.names import Names, comment
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.ir.tree import Comment, assign
from tests.compiling import LOOPING, RUNNABLE, compiled, halves_of, kernels_of
from tests.emit import reading
from tests.golden import functions as f

ROOT = Path(__file__).parents[2]


every_program = pytest.mark.parametrize("name", (*RUNNABLE, *LOOPING))


@every_program
def test_source_is_clean(name: str) -> None:
    for kernel in kernels_of(name):
        function = reading.function_of(kernel)
        assert reading.parameters(function) == [f"{buffer.name}_ptr" for buffer in kernel.buffers]
        assert set(reading.parameters(function)) <= reading.loaded(function), "an unused parameter"
        assert reading.dead(function) == set(), kernel.source
        assert reading.loaded_twice(function) == [], kernel.source
        assert kernel.source.endswith("\n") and "\t" not in kernel.source
        lines = kernel.source.splitlines()
        assert not [line for line in lines if line != line.rstrip() or len(line) > WIDTH]


@every_program
def test_nothing_is_written_that_need_not_be(name: str) -> None:
    for kernel in kernels_of(name):
        function = reading.function_of(kernel)
        assert reading.copies(function) == [], kernel.source
        assert reading.equal_lines(function) == [], kernel.source
        assert reading.lanes_twice(function) == [], kernel.source
        assert reading.clamps_repeated(function) == [], kernel.source
        assert reading.constants_computed(function) == [], kernel.source
        assert reading.tiles_copied_by_sums(function) == [], kernel.source
        assert not re.search(r"\+ 0\.0(?!\d)", kernel.source), kernel.source


@every_program
def test_a_number_is_counted_once(name: str) -> None:
    """`x_3` may have a successor `x_4`, but no `x_3_2`."""
    for kernel in kernels_of(name):
        names = reading.defined(reading.function_of(kernel))
        assert not [name for name in names if re.search(r"_\d+_\d+$", name)], kernel.source


@every_program
def test_names_hide_nothing(name: str) -> None:
    for kernel in kernels_of(name):
        function = reading.function_of(kernel)
        names = reading.defined(function) | set(reading.parameters(function))
        helpers = {n.name for n in ast.parse(kernel.source).body if isinstance(n, ast.FunctionDef)}
        assert not names & ({"tl", "triton", "libdevice", *dir(builtins), *keyword.kwlist} | helpers), kernel.source
        assert names.isdisjoint(helpers)


@every_program
def test_only_ragged_axes_are_masked(name: str) -> None:
    """A store has a mask exactly where its tile reaches beyond the array; that of a flag is what is asked."""
    for kernel in kernels_of(name):
        flags = {f"{buffer.name}_ptr" for buffer in kernel.outputs if buffer.is_flag}
        ragged = {axis.name for axis in kernel.axes if axis.block > 1 and axis.size % axis.block}
        function = reading.function_of(kernel)
        assert {n for n in reading.defined(function) if n.endswith("_ok")} <= {f"{axis}_ok" for axis in ragged}
        for store in reading.calls(function, "store"):
            masks = [word for word in store.keywords if word.arg == "mask"]
            used = {name for name in reading.loaded(store.args[0]) if name in ragged or name in flags}
            assert len(masks) == bool(used), ast.unparse(store)


@every_program
def test_imports_are_those_that_are_used(name: str) -> None:
    for kernel in kernels_of(name):
        assert kernel.source.startswith("import triton\nimport triton.language as tl\n")
        imported = "from triton.language.extra import libdevice\n" in kernel.source
        assert imported == ("libdevice." in kernel.source.replace("extra import libdevice", ""))
        assert kernel.source.count("@triton.jit\n") == kernel.source.count("\ndef ")


def header_of(kernel: Kernel) -> list[str]:
    """The comments before a kernel, each one's further lines joined to its first."""
    comments = "\n".join(line for line in kernel.source.splitlines() if line.startswith("# "))
    return re.sub(r"\n#   +(?=\S)", " ", comments).split("\n")


def axes_of(kernel: Kernel) -> Iterator[str]:
    """What the header says of each axis; in one warp, lanes of as many elements as others are those."""
    seen: dict[tuple[int, int], str] = {}
    for axis in kernel.axes:
        alike = axis.role is Role.LANE and axis.block > 1 and kernel.num_warps == 1
        first = seen.setdefault((axis.size, axis.block), axis.name) if alike else axis.name
        yield str(axis) if first == axis.name else f"{axis.name}: as {first}"


@every_program
def test_the_header_says_what_a_kernel_is(name: str) -> None:
    for kernel in kernels_of(name):
        header = header_of(kernel)
        programs = int(np.prod(kernel.grid))
        axes = " | ".join(axes_of(kernel)) or "one element"
        count, warps = f"{programs} program{'s' * (programs != 1)}", kernel.num_warps
        assert header[0] == f"# {axes}   ({count} of {warps} warp{'s' * (warps != 1)})"
        assert header[1].startswith("# reads  ") and header[2].startswith("# writes ")
        for buffer in kernel.inputs:
            assert f"{buffer.name} {buffer.dtype.name}[{','.join(map(str, buffer.shape))}]" in header[1]


FLAGSHIPS: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (f.layer_norm, [(6, 40), (40,), (40,)]),
    (f.softmax, [(4, 20_000)]),
    (f.rotary, [(2, 3, 5, 8), (5, 8), (5, 8)]),
    (f.adam, [(100,)] * 4),
]
PRINT_ALL = "from tests.emit.test_source import all_sources; print(all_sources(), end='')"


def all_sources() -> str:
    texts = []
    for fn, shapes in FLAGSHIPS:
        avals = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
        texts.append(j2t.transpile(fn, *avals).source)
        texts.append(j2t.transpile(fn, *avals, grad=tuple(range(len(avals)))).source)
    texts.extend(kernel.source for kernel in kernels_of("lstm_bf16"))
    return "\n".join(texts)


def test_the_same_text_every_time() -> None:
    """Also in another process, where sets are in another order."""
    first = all_sources()
    assert first == all_sources()
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRINT_ALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == first


@pytest.mark.parametrize("name", RUNNABLE)
def test_all_kernels_of_a_program_are_one_module(name: str, tmp_path: Path) -> None:
    (program,) = {half.program for half in halves_of(name)}
    with jax.enable_x64("x64" in program.tags):
        found = j2t.transpile(program.fn, *program.args(np.random.default_rng()))
    path = tmp_path / "kernels.py"
    path.write_text(found.source)
    defined = [node.name for node in ast.parse(found.source).body if isinstance(node, ast.FunctionDef)]
    assert len(defined) == len(set(defined)), "two functions of one name"
    assert found.source.count("import triton\n") == 1
    module = runpy.run_path(str(path))
    assert all(isinstance(module[kernel.name], triton.JITFunction) for kernel in found.kernels)


# names


def test_names_come_from_the_users_lines() -> None:
    (kernel,) = compiled(f.layer_norm, *(np.ones(s, np.float32) for s in ((6, 40), (40,), (40,)))).kernels
    names = reading.defined(reading.function_of(kernel))
    assert {"x", "scale", "bias", "mean", "row", "col"} <= names


def shaped(*shapes: tuple[int, ...]) -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]


def test_outputs_are_named_after_what_they_hold() -> None:
    weights = dict(zip("wub", shaped((3, 16), (4, 16), (16,))))
    (kernel,) = j2t.transpile(f.lstm, weights, *shaped((2, 4), (2, 4), (5, 2, 3))).kernels
    assert [buffer.name for buffer in kernel.outputs] == ["h_out", "c_out", "hs"]
    (kernel,) = j2t.transpile(f.softmax, *shaped((4, 5))).kernels
    assert [buffer.name for buffer in kernel.outputs] == ["out"]


def test_carried_values_and_cotangents_have_names_of_their_own() -> None:
    weights = dict(zip("wub", shaped((16, 128), (32, 128), (128,))))
    (kernel,) = j2t.transpile(f.lstm, weights, *shaped((8, 32), (8, 32), (5, 8, 16))).kernels
    assert {"h", "c"} <= reading.defined(reading.function_of(kernel)) and "h_2 =" not in kernel.source
    backwards = jax.grad(f.smoothed, (0, 1))
    (kernel,) = j2t.transpile(backwards, *shaped((64,), (64,), (5, 64))).kernels
    names = reading.defined(reading.function_of(kernel))
    assert {"level", "error", "total", "d_error"} <= names and "level_2" not in names


def nasty(tl: Any, triton: Any, program: Any, row: Any, out: Any, libdevice: Any) -> Any:
    max = tl.max(-1, keepdims=True) + triton  # the name of a built-in function
    float = jnp.exp(tl - max) * program
    row_ok = float + row * out
    return jnp.arctan2(row_ok, libdevice)


def test_the_users_names_may_be_anything() -> None:
    args = [np.random.default_rng().random((6, 40)).astype(np.float32) for _ in range(6)]
    made = compiled(nasty, *args)
    for kernel in made.kernels:
        names = reading.defined(reading.function_of(kernel))
        assert not names & {"tl", "triton", "libdevice", "max", "float"}
        assert len({buffer.name for buffer in (*kernel.inputs, *kernel.outputs)}) == 7
    np.testing.assert_allclose(made.run("interpret", False, *args)[0], nasty(*args), rtol=1e-5)


def test_names_are_handed_out_once() -> None:
    names = Names(["col", "col_ok"])
    assert [names.new(wish, 0) for wish in ("x", "x", "col", "max", "lambda", "tl")] == [
        *("x", "x_2", "col_2", "max_2", "lambda_2", "tl_2")
    ]
    names.enter()
    assert (names.new("x", 1), names.new("y", 1)) == ("x_3", "y")
    names.leave()
    names.enter()
    assert names.new("y", 1) == "y", "free again in the next loop"
    names.leave()
    assert names.new("y", 0) == "y_2", "what is written around the loops may stand before them"


def test_a_comment_is_one_line() -> None:
    assert comment(None) is None


@pytest.mark.parametrize("depth", [0, 80, WIDTH - 4, WIDTH, 2 * WIDTH])
def test_a_comment_is_one_however_deep_it_stands(depth: int) -> None:
    lines = text_of([Comment("# of a line in a file of the user's"), assign("x", 1)], " " * depth)
    assert [line.strip()[:1] for line in lines] == ["#", "x"]
    assert len(lines[0]) <= max(WIDTH, depth + 4)
