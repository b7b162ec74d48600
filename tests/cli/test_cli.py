"""The command line: results on standard output, every complaint in one line, exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jaxpr2triton.cli import main, request
from jaxpr2triton.cli.options import COMMANDS
from jaxpr2triton.errors import BackendError
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile import nvidia_tools

CHECKOUT = Path(__file__).parents[2]
MODEL = """
import jax
import jax.numpy as jnp
import jaxpr2triton as j2t

def softmax(x):
    return jax.nn.softmax(x, axis=-1)

def scaled(x, scale, *, power=1):
    return (x * scale) ** power

def tree(params, x):
    return {"y": params["w"] * x + params["b"], "n": params["n"] + 1}

def rows(x):
    return jax.lax.reduce_window(x, x.dtype.type(0), jax.lax.add, (4097,), (1,), "SAME") * 2

def broken(x):
    y = x + 1
    raise ValueError(f"no {y.ndim} dimensions, please")

class Net:
    @staticmethod
    def apply(x):
        return jnp.tanh(x)

fused = j2t.fuse(scaled, static_argnames="power")

def example():
    return jnp.arange(4.0), jnp.float32(2.0)

def seeded(seed):
    return jax.random.normal(jax.random.key(seed), (4,)), jnp.float32(seed)

def failing_example():
    return 1 / 0

def one():
    return jnp.ones(4)

def printing(x):
    jax.debug.print("{}", x)
    return x

class Scale:
    def __init__(self, by=3):
        self.by = by

    def times(self, x):
        return x * self.by

    @classmethod
    def plus(cls, x):
        return x + 1

    def __call__(self, x):
        return x - self.by

class Given:
    def __init__(self, by):
        self.by = by

    def times(self, x):
        return x * self.by

scale = Scale(5)
scale.inner = Given(2)

def only_windows(x):
    return jax.lax.reduce_window(x, x.dtype.type(0), jax.lax.add, (4097,), (1,), "SAME")

def nothing(x):
    return None

def stepwise(x):
    return jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: c * 2, x)

def leaving(x):
    raise SystemExit(5)

def branching(x):
    if x.sum() > 0:
        return x
    return -x

def calling_back(x):
    return jax.pure_callback(lambda x: 1 / 0, x, x)

def counting(x):
    total = jax.new_ref(x)
    return total[...]

def truth(x):
    return x > 0
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


class Run:
    """What one command line gave."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        self.code = main.main(words)
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err


# ------------------------------------------------------------------------------------------------- dump
def test_dump_prints_a_module_and_nothing_else(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "dump", "model.py:softmax", "f32[8,100]")
    assert (run.code, run.err) == (0, "")
    assert run.out.count("def softmax(x_ptr, out_ptr):") == 1
    assert "\x1b" not in run.out
    compile(run.out, "kernels.py", "exec")


def test_dump_writes_a_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = Run(capsys, "dump", "model.py:softmax", "f32[8,100]").out
    run = Run(capsys, "dump", "model.py:softmax", "-o", "kernels.py", "f32[8,100]")
    assert (run.code, run.out, run.err) == (0, "", "")
    assert (model / "kernels.py").read_text() == printed


def test_dump_notes_what_is_left_to_xla(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "dump", "model.py:rows", "f32[8]")
    assert run.code == 0
    assert run.err == "jaxpr2triton: left to XLA: 1 equation; `jaxpr2triton explain` tells which and why\n"


def test_dump_with_a_gradient_prints_both_programs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "dump", "model.py:softmax", "f32[8,100]", "--grad")
    assert run.code == 0
    assert "def softmax_fwd" in run.out
    assert "def softmax_bwd" in run.out


def test_vmap_adds_an_axis(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batched = Run(capsys, "explain", "model.py:softmax", "f32[100]", "--vmap", "8")
    assert batched.code == 0
    assert batched.out.splitlines()[0] == "softmax: (f32[8,100]) → (f32[8,100])"


@pytest.mark.compile
@pytest.mark.parametrize(("target", "warps"), [("sm_90", 8), ("gfx942", 4)])
@pytest.mark.parametrize("command", ["dump", "show --stage schedule", "explain"])
def test_what_is_asked_for_a_target_is_planned_for_it(
    model: Path, capsys: pytest.CaptureFixture[str], command: str, target: str, warps: int
) -> None:
    run = Run(capsys, *command.split(), "model.py:softmax", "f32[4096,4000]", "--target", target)
    assert run.code == 0
    assert {"dump": f"of {warps} warps", "show": f"warps {warps}"}.get(command.split()[0], f" {warps} ") in run.out


@pytest.mark.parametrize(("target", "kind", "sign"), [("sm_80", "ptx", ".target sm_80"), ("gfx942", "llir", "amdgpu")])
def test_assembly_needs_no_device(
    model: Path, capsys: pytest.CaptureFixture[str], target: str, kind: str, sign: str
) -> None:
    run = Run(capsys, "dump", "model.py:softmax", "f32[8,100]", "--target", target, "--asm", kind)
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines()[0].endswith(f" for {target}")
    assert sign in run.out


# ---------------------------------------------------------------------------------------- show, explain
@pytest.mark.parametrize("stage", ["trace", "normalize", "partition", "schedule", "graph"])
def test_show_prints_every_stage(model: Path, capsys: pytest.CaptureFixture[str], stage: str) -> None:
    run = Run(capsys, "show", "model.py:softmax", "f32[8,100]", "--stage", stage)
    assert (run.code, run.err) == (0, "")
    assert "100" in run.out
    both = Run(capsys, "show", "model.py:softmax", "f32[8,100]", "--stage", stage, "--grad")
    assert both.out.startswith("# forward\n")
    assert "\n# backward\n" in both.out


def test_explain_in_words_and_for_programs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = Run(capsys, "explain", "model.py:softmax", "f32[8,100]")
    assert (words.code, words.err) == (0, "")
    assert words.out.splitlines()[:4] == [
        "softmax: (f32[8,100]) → (f32[8,100])",
        "  launches  1 kernel, nothing left to XLA",
        "  XLA alone about 3 launches",
        "  bytes     6,400 moved by the kernels; inputs and outputs are 6,400, 1.00x the minimum",
    ]
    facts = json.loads(Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--json").out)
    assert (facts["name"], len(facts["kernels"]), facts["leftovers"]) == ("softmax", 1, [])
    grad = json.loads(Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--json", "--grad=0").out)
    assert list(grad) == ["forward", "backward", "residuals"]
    assert "how it was planned" not in words.out
    assert Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--why").out.startswith(
        words.out + "\n  how it was planned\n"
    )


@pytest.mark.compile
def test_explain_with_cycles(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", "model.py:softmax", "f32[8,100]", "--target", "sm_90")
    plain, run = Run(capsys, *words), Run(capsys, *words, "--cycles")
    assert (run.code, run.err) == (0, "") and run.out.startswith(plain.out)
    header, row, *_ = run.out[len(plain.out) :].strip().splitlines()
    assert header.split() == ["modelled", "steps", "cycles", "from", "DRAM", "µs", "bound", "by", "error"]
    assert row.split()[0] == "softmax" and row.endswith("±40 %")
    assert max(map(len, run.out.splitlines())) <= 100
    facts = json.loads(Run(capsys, *words, "--cycles", "--json").out)
    assert facts["kernels"][0]["cycles"]["whole"] > 100 and facts["kernels"][0]["cycles"]["target"] == "sm_90"
    pair = Run(capsys, *words, "--cycles", "--grad=0").out
    assert pair.count("  modelled  ") == 2 and "\n  softmax_bwd  " in pair


def test_cycles_are_modelled_for_some_targets(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--cycles", "--target", "gfx942")
    message = "jaxpr2triton: cycles are not modelled for gfx942; try one of sm_80, sm_90\n"
    assert (run.code, run.out, run.err) == (2, "", message)


@pytest.mark.compile
def test_cycles_need_the_tools_of_triton(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise BackendError(f"this build of Triton does not bring {name} along")

    monkeypatch.setattr(nvidia_tools, "_tool", missing)
    run = Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--cycles", "--target", "sm_90")
    assert (run.code, run.out, run.err) == (2, "", "jaxpr2triton: this build of Triton does not bring ptxas along\n")


def test_roles(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("model.py:softmax", "f32[8,100]", "--role", "col=loop", "--role", "softmax.row=grid")
    assert "row: grid 8 | col: loop 100 by 64" in Run(capsys, "explain", *words).out
    assert Run(capsys, "check", *words, "--seeds", "1").code == 0


def test_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "import jax, jax.numpy as jnp", "def f(x): return jax.lax.fori_loop(0, 100, lambda _, x: jnp.sin(x), x)"
    (tmp_path / "loop.py").write_text("\n".join(lines))
    words = ("loop.py:f", "f32[8]", "--grad", "--checkpoint")
    assert "320 bytes written for it alone" in Run(capsys, "explain", *words, "sqrt").out
    assert "160 bytes written for it alone" in Run(capsys, "explain", *words, "5").out
    complaint = "--checkpoint: expected sqrt or a positive number, found 'cube'"
    assert complaint in Run(capsys, "explain", *words, "cube").err


def test_positions_of_gradients_may_stand_apart(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", "model.py:scaled", "f32[8]", "f32[8]", "--json")
    apart = Run(capsys, *words, "--grad", "1", "--static", "power=2").out
    assert apart == Run(capsys, *words, "--grad=1", "--static", "power=2").out
    assert Run(capsys, *words[:-1], "--grad", "f32[]").err.startswith("jaxpr2triton: scaled(x, scale, *, power=1)")


def test_a_loop_without_a_gradient_has_its_line_where_mistakes_are_left_to_xla(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the second attempt is the one that is told, and it has to know the line as well."""
    monkeypatch.delenv("J2T_RAISE")
    run = Run(capsys, "dump", "model.py:stepwise", "f32[8]", "--grad")
    assert " at model.py:76 (stepwise); try a `lax.scan` as long as" in run.err and run.code == 2


def test_arguments_may_be_given_as_shapes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is made of them for `explain`, and random numbers for `check`, others for each seed."""
    shapes = """
import jax, jax.numpy as jnp
def huge():
    return jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.float32)
def two(seed):
    return jax.ShapeDtypeStruct((8,), jnp.float32), {"w": jax.ShapeDtypeStruct((8,), jnp.float32), "k": float(seed)}
def softmax(x):
    return jax.nn.softmax(x)
def g(x, params):
    return x * params["w"] + params["k"]
"""
    (model / "shapes.py").write_text(shapes)
    run = Run(capsys, "explain", "shapes.py:softmax", "--args", "shapes.py:huge")
    assert run.out.startswith("softmax: (f32[1048576,1048576]) → ")
    run = Run(capsys, "check", "shapes.py:g", "--args", "shapes.py:two", "--seeds", "2")
    assert run.out.startswith("g(f32[8], {k: f32[], w: f32[8]}) in Triton's interpreter, 2 seeds")
    example = request._example("shapes.py:two")
    first, second = example.draw(0), example.draw(1)
    assert first[1]["k"] == 0 and second[1]["k"] == 1
    drawn = [first[0], first[1]["w"], second[0], second[1]["w"]]
    assert len({float(each[0]) for each in drawn}) == 4


def test_explain_says_why_something_is_left(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "explain", "model.py:rows", "f32[8]")
    said = " ".join(run.out.split())
    assert "reduce_window_sum at model.py:16 (rows): its windows have 4,097 elements, and each of no more than" in said


# ------------------------------------------------------------------------------------------------ check
def check_rows(text: str) -> list[tuple[str, str, str]]:
    """(array, type, verdict) of every line of the table."""
    lines = [line.split("  ") for line in text.splitlines()[2:] if line.startswith("  ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return [(row[0], row[1], row[-1]) for row in cells]


def test_check_compares_values_and_gradients(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "check", "model.py:tree", "{w: f32[4], b: f32[4], n: i32[]}", "f32[4]", "--seeds", "2")
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines()[0] == (
        "tree({b: f32[4], n: i32[], w: f32[4]}, f32[4]) in Triton's interpreter, 2 seeds"
    )
    assert check_rows(run.out) == [
        ("value.n", "i32[]", "ok"),
        ("value.y", "f32[4]", "ok"),
        ("gradient of params.b", "f32[4]", "ok"),
        ("gradient of params.w", "f32[4]", "ok"),
        ("gradient of x", "f32[4]", "ok"),
    ]
    assert run.out.splitlines()[-1] == "all agree"


def test_check_takes_static_arguments_classes_and_fused_functions(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["model.py:scaled", "f32[4]", "f32[4]", "--static", "power=3"], ["model.py:Net.apply", "f64[3]"]):
        assert Run(capsys, "check", *words, "--seeds", "1").code == 0
    assert Run(capsys, "check", "model.py:fused", "f32[4]", "f32[4]", "--static", "power=2", "--seeds", "1").code == 0
    assert not jax.config.jax_enable_x64, "a SPEC of 64 bits changes nothing outside its command"


def test_check_of_some_gradients_only(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "check", "model.py:scaled", "f32[4]", "f32[4]", "--grad=1", "--seeds", "1")
    assert [row[0] for row in check_rows(run.out)] == ["value", "gradient of scale"]


def test_check_with_example_arguments(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = Run(capsys, "check", "model.py:scaled", "--args", "model.py:example")
    assert fixed.code == 0
    assert fixed.err == "jaxpr2triton: model.py:example takes no `seed`, so its arguments are tried once\n"
    assert fixed.out.startswith("scaled(f32[4], f32[]) in Triton's interpreter, 1 seed\n")
    seeded = Run(capsys, "check", "model.py:scaled", "--args", "model.py:seeded", "--seeds", "2")
    assert (seeded.code, seeded.err) == (0, "")
    single = Run(capsys, "check", "model.py:softmax", "--args", "model.py:one", "--vmap", "3", "--seeds", "1")
    assert single.out.startswith("softmax(f32[3,4]) in")


def test_check_says_when_there_is_no_gradient(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "check", "model.py:rows", "i32[8]", "--seeds", "1")
    assert (run.code, run.err) == (0, "jaxpr2triton: no gradients to check: no argument is a float\n")


def test_check_says_when_there_is_nothing_to_differentiate(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "check", "model.py:truth", "f32[8]", "--seeds", "1")
    assert (run.code, run.err) == (0, "jaxpr2triton: no gradients to check: no output is a float\n")
    run = Run(capsys, "check", "model.py:stepwise", "f32[8]", "--seeds", "1")
    assert run.err.startswith(
        "jaxpr2triton: no gradients to check: JAX says Reverse-mode differentiation does not work"
    )


def test_check_of_what_is_compiled(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_TARGET", "sm_80")  # what the command says there, no other test sees
    run = Run(capsys, "check", "model.py:truth", "f32[8]", "--seeds", "1", "--compiled", "--target", "sm_90")
    lines = run.out.splitlines()
    assert (run.code, lines[0]) == (0, "truth(f32[8]) in the PTX simulator, 1 seed")
    assert "compiled for sm_90, and run with every access checked" in lines
    assert lines[-1] == "all agree"


def test_check_says_what_ran(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "check", "model.py:softmax", "f32[8,10]", "--seeds", "1")
    values, gradients, verdict = run.out.splitlines()[-3:]
    assert values == "values     1 kernel ran, with 7 of 7 equations (100%)"
    assert re.fullmatch(r"gradients  2 kernels ran, with (\d+) of \1 equations \(100%\)", gradients)
    assert verdict == "all agree"
    partly = Run(capsys, "check", "model.py:rows", "i32[8]", "--seeds", "1").out.splitlines()
    ran = "values     1 kernel ran, with 1 of 2 equations (50%); left to XLA: reduce_window_sum"
    assert partly[-2:] == [ran, "all agree"]


NOT_RUN = "values     no kernel ran"


@pytest.mark.parametrize(
    ("words", "ran", "verdict"),
    [
        ("only_windows f32[8]", f"{NOT_RUN}; left to XLA: reduce_window_sum", "XLA was compared with itself"),
        ("only_windows i32[8]", f"{NOT_RUN}; left to XLA: reduce_window_sum", "XLA was compared with itself"),
        ("counting f32[8]", NOT_RUN, "XLA was compared with itself"),
        ("printing f32[8]", f"{NOT_RUN}; left to XLA: debug_print", "XLA was compared with itself"),
        ("nothing f32[8]", "", "there are no results"),
    ],
)
def test_check_of_nothing_is_no_success(
    model: Path, capsys: pytest.CaptureFixture[str], words: str, ran: str, verdict: str
) -> None:
    function, spec = words.split()
    run = Run(capsys, "check", f"model.py:{function}", spec, "--seeds", "1")
    assert run.code == 1
    assert run.out.splitlines()[-1] == f"NOTHING CHECKED: {verdict}"
    assert not ran or ran in run.out.splitlines()
    assert run.err.endswith("jaxpr2triton: there was nothing to check; --allow-none takes that for success\n")
    allowed = Run(capsys, "check", f"model.py:{function}", spec, "--seeds", "1", "--allow-none")
    assert (allowed.code, allowed.out) == (0, run.out)


def test_check_exits_1_on_a_mismatch(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.api, "fuse", lambda function, **options: lambda x: function(x) * 1.001)
    run = Run(capsys, "check", "model.py:softmax", "f32[8,10]")
    assert run.code == 1
    assert [row[2] for row in check_rows(run.out)] == ["WRONG", "WRONG"]
    assert run.out.splitlines()[-1] == "MISMATCH in 2 of 2 arrays"


# ----------------------------------------------------------------------------------------------- errors
METHOD = (
    "Given.times in model.py is a method, and Given() is no instance: missing a required argument: 'by'; try give an "
    "instance a name in model.py, as in `net = Given(...)`, and take net.times"
)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "expected a command: dump, show, explain, check; try jaxpr2triton --help"),
        (
            "dmp model.py:softmax",
            "there is no command dmp; is it dump?; try one of dump, show, explain, check, or jaxpr2triton --help",
        ),
        ("dump", "expected FILE.py:FUNCTION; try jaxpr2triton dump --help"),
        ("dump model.py", "expected FILE.py:FUNCTION, found 'model.py'"),
        ("dump modle.py:softmax f32[8]", "no such file: modle.py"),
        ("dump model.py:softmx f32[8]", "there is no softmx in model.py; is it softmax?"),
        ("dump model.py:softmax f32[8", "bad SPEC 'f32[8': expected ',' or ']', found the end at column 6"),
        (
            "dump model.py:scaled f32[8]",
            "scaled(x, scale, *, power=1) in model.py does not fit 1 argument: missing a required argument: 'scale'",
        ),
        (
            "dump model.py:softmax f32[8] f32[8]",
            "softmax(x) in model.py does not fit 2 arguments: too many positional arguments",
        ),
        (
            "dump model.py:scaled f32[8] f32[8] --static poer=2",
            "--static poer: scaled(x, scale, *, power=1) in model.py has no argument poer; is it power?",
        ),
        ("dump model.py:broken f32[8]", "broken cannot be traced: ValueError: no 1 dimensions, please (model.py:20)"),
        (
            "dump model.py:softmax f32[8] --target sm_91",
            f"unknown target 'sm_91'; try one of {', '.join(TARGETS)}",
        ),
        (
            "dump model.py:softmax f32[8] --target gfx942 --asm ptx",
            "there is no ptx for gfx942; try one of ttir, ttgir, llir, amdgcn",
        ),
        (
            "dump model.py:softmax f32[8] --asm pdf",
            "argument --asm: invalid choice: 'pdf' (choose from 'amdgcn', 'llir', 'ptx', 'sass', 'ttgir', "
            "'ttir'); try jaxpr2triton dump --help",
        ),
        ("dump model.py:softmax f32[8] -o no/such/file", "cannot write no/such/file: No such file or directory"),
        (
            "dump model.py:softmax f32[8] --grad=x",
            "argument --grad: expected positions such as 0,1, found 'x'; try jaxpr2triton dump --help",
        ),
        ("dump model.py:softmax f32[8] --grad=1", "--grad=1: the arguments of softmax are numbered from 0 to 0"),
        ("dump model.py:softmax i32[8] --grad", "--grad: no argument of softmax is made of floats"),
        (
            "dump model.py:softmax f32[8] --vmap 0",
            "argument --vmap: expected a positive number, found '0'; try jaxpr2triton dump --help",
        ),
        (
            "dump model.py:softmax f32[8] --role 3",
            "argument --role: expected AXIS=ROLE, found '3'; try jaxpr2triton dump --help",
        ),
        ("dump model.py:softmax f32[8] --role k=lane", 'roles: there is no axis "k": softmax has col'),
        (
            "dump model.py:softmax f32[8] --role col=grid",
            "roles: axis col of kernel softmax cannot be grid: elements along it meet, so one program has to have all "
            "of them; try another role, or another axis of col (8, lane)",
        ),
        (
            "dump model.py:softmax f32[8] --static 3",
            "argument --static: expected NAME=VALUE, found '3'; try jaxpr2triton dump --help",
        ),
        ("dump model.py:softmax f32[8] --args model.py:one", "give SPECs or --args, not both"),
        ("dump model.py:softmax --args model.py:none", "there is no none in model.py; is it one?"),
        (
            "dump model.py:softmax --args model.py:failing_example",
            "failing_example failed: ZeroDivisionError: division by zero (model.py:36)",
        ),
        (
            "dump model.py:counting f32[8]",
            "cannot compile `new_ref`: it has side effects, so the whole function stays with XLA at "
            "model.py:90 (counting); try take the side effect out of the function, or call it through `fuse`",
        ),
        ("dump model.py:softmax ", "softmax(x) in model.py does not fit 0 arguments: missing a required argument: 'x'"),
        ("dump model.py:Given.times f32[8]", METHOD),
        ("dump model.py:scale. f32[8]", "expected a name after the last dot of scale. in model.py"),
        ("dump model.py:scale.by f32[8]", "scale.by in model.py is not a function but of type int"),
        ("dump model.py:leaving f32[8]", "leaving cannot be traced: SystemExit: 5 (model.py:79)"),
        (
            "dump model.py:softmax f32[8] --role col=wide",
            "roles: 'wide' is not a role; try one of grid, lane, loop, unroll",
        ),
        ("dump model.py:softmax f32[8] --role zzz=lane", 'roles: there is no axis "zzz": softmax has col'),
        ("check model.py:softmax f32[8] --role zzz=lane", 'roles: there is no axis "zzz": softmax has col'),
        (
            "check model.py:calling_back f32[8]",
            "calling_back fails with plain JAX: ZeroDivisionError: division by zero",
        ),
        ("check model.py:softmax f32[999999999999]", "there is not enough memory"),
        (
            "dump model.py:stepwise f32[8] --grad",
            "stepwise cannot be differentiated: ValueError: Reverse-mode differentiation does not work for "
            "lax.while_loop or lax.fori_loop with dynamic start/stop values. Try using lax.scan, or using fori_loop "
            "with static start/stop. at model.py:76 (stepwise); try a `lax.scan` as long as the loop may ever run, or "
            "a `fori_loop` with static bounds",
        ),
        ("explain broken.py:f f32[8]", "cannot load broken.py: SyntaxError: expected ':' (broken.py:3)"),
        ("explain failing.py:f f32[8]", "cannot load failing.py: RuntimeError: too early (failing.py:4)"),
        ("show model.py:softmax f32[8]", "the following arguments are required: --stage; try jaxpr2triton show --help"),
        (
            "explain model.py:softmax f32[8] --jsn",
            "unrecognized arguments: --jsn; is it --json?; try jaxpr2triton explain --help",
        ),
        (
            "explain model.py:softmax f32[8] --grad 0 --checkpoint all",
            "argument --checkpoint: expected sqrt or a positive number, found 'all'; try jaxpr2triton explain --help",
        ),
        (
            "explain model.py:softmax f32[8] --schedule none.json",
            "argument --schedule: none.json is neither estimate nor compile, nor a file; "
            "try jaxpr2triton explain --help",
        ),
        ("dump model.py:softmax f32[8] --grad 0,2", "--grad=2: the arguments of softmax are numbered from 0 to 0"),
        ("check model.py:softmax f32[8] --json", "unrecognized arguments: --json; try jaxpr2triton check --help"),
        (
            "explain bad.py:f f32[8]",
            "cannot load bad.py: ModuleNotFoundError: No module named 'no_such_module' (bad.py:1)",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    (model / "bad.py").write_text("import no_such_module\n")
    (model / "broken.py").write_text("import sys\n\ndef f(x)\n    return x\n")
    (model / "failing.py").write_text(
        "import sys\nprint('early')\ndef early():\n    raise RuntimeError('too early')\nearly()\n"
    )
    run = Run(capsys, *line.split())
    # argparse of Python 3.12 writes choices without quotes
    assert run.err.splitlines()[-1].replace("'", "") == f"jaxpr2triton: {complaint}".replace("'", "")
    assert run.err.count("jaxpr2triton: ") == 1
    assert (run.code, run.out) == (2, "")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["dump", ""], "expected FILE.py:FUNCTION, found ''"),
        (
            ["dump", "model.py:softmax", ""],
            "bad SPEC '': expected an array such as f32[8,4], or one of ( [ {, found the end",
        ),
        (["dump", "model.py:softmax", "f32[8]", "-o", ""], "argument -o: expected a name, found ''"),
        (["dump", "model.py:softmax", "f32[8]", "--target", ""], "argument --target: expected a name, found ''"),
        (["dump", "model.py:softmax", "--args", ""], "argument --args: expected a name, found ''"),
        (["dump", "model.py:softmax", "f32[8]", "--role", "=lane"], "roles: '' is not the name of an axis"),
        (
            ["dump", "model.py:softmax", "f32[99999999999999999999]"],
            "bad SPEC 'f32[99999999999999999999]': expected a size",
        ),
        (
            ["dump", "model.py:softmax", "f32[8]", "--vmap", "9" * 30],
            "argument --vmap: expected a positive number, found",
        ),
    ],
)
def test_empty_and_enormous_words(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    run = Run(capsys, *words)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"jaxpr2triton: {complaint}")


def test_a_tracing_error_is_that_of_jax(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "explain", "model.py:branching", "f32[8]")
    assert run.code == 2
    assert run.err.startswith("jaxpr2triton: branching cannot be traced: TracerBoolConversionError: Attempted boolean ")
    assert f"while tracing the function branching at {model}/model.py:81 for jit." in run.err
    assert run.err.endswith("(model.py:82)\n")


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("Scale.times", "times"),
        ("Scale.plus", "plus"),
        ("scale.times", "times"),
        ("scale.inner.times", "times"),
        ("scale", "Scale"),
        ("Net.apply", "apply"),
        ("jnp.tanh", "tanh"),
    ],
)
def test_methods_of_classes_and_instances(
    model: Path, capsys: pytest.CaptureFixture[str], name: str, kernel: str
) -> None:
    run = Run(capsys, "dump", f"model.py:{name}", "f32[8]")
    assert (run.code, run.err) == (0, "")
    assert f"def {kernel}(x_ptr, out_ptr):" in run.out


def test_what_a_module_prints_is_no_result(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "loud.py").write_text("print('loading')\ndef f(x):\n    print('tracing')\n    return x * 2\n")
    run = Run(capsys, "explain", "loud.py:f", "f32[8]", "--json")
    assert json.loads(run.out)["name"] == "f"
    assert set(run.err.split()) == {"loading", "tracing"}
    assert "print" not in Run(capsys, "dump", "loud.py:f", "f32[8]").out


@pytest.mark.parametrize("command", ["dump", "explain", "check"])
def test_a_misspelt_knob_is_an_error_of_every_command(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("J2T_FOO", "1")
    run = Run(capsys, command, "model.py:softmax", "f32[8]")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("jaxpr2triton: unknown environment variable J2T_FOO; known are J2T_BACKEND, ")


def test_lines_are_as_long_as_columns_says(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("model.py:softmax", "f32[8,100]", "--grad")
    whole = Run(capsys, "explain", *words).out
    assert max(map(len, whole.splitlines())) > 60, "without a terminal lines are left alone"
    monkeypatch.setenv("COLUMNS", "60")
    narrow = Run(capsys, "explain", *words).out
    assert max(map(len, narrow.splitlines())) <= 60
    assert sorted(narrow.split()) == sorted(whole.split())  # cells are folded within their column
    assert json.loads(Run(capsys, "explain", *words, "--json").out)
    assert max(map(len, Run(capsys, "check", *words, "--seeds", "1").out.splitlines())) <= 60


def test_ctrl_c_is_130(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "long.py").write_text("raise KeyboardInterrupt\n")
    run = Run(capsys, "explain", "long.py:f", "f32[8]")
    assert (run.code, run.out, run.err) == (130, "", "")


def test_debug_shows_the_traceback(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "dump", "model.py:broken", "f32[8]", "--debug")
    assert run.code == 2
    assert run.err.startswith("Traceback (most recent call last):\n")
    assert "y.ndim" in run.err
    assert run.err.splitlines()[-1].startswith("jaxpr2triton: broken cannot be traced: ")


def test_example_arguments_of_something_without_a_signature(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "odd.py").write_text("made = dict\n")
    run = Run(capsys, "explain", "model.py:softmax", "--args", "odd.py:made")
    assert run.code == 2 and run.err.startswith("jaxpr2triton: made has no signature: ValueError: ")


def test_too_little_memory_is_said_in_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main.api, "transpile", full)
    run = Run(capsys, "dump", "model.py:softmax", "f32[8]")
    assert (run.code, run.out, run.err) == (2, "", "jaxpr2triton: there is not enough memory\n")


def test_a_failure_of_ours_says_so(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("row")

    monkeypatch.setattr(main.api, "transpile", fail)
    run = Run(capsys, "dump", "model.py:softmax", "f32[8]")
    assert (run.code, run.out) == (3, "")
    assert run.err == "jaxpr2triton: internal error: KeyError: 'row' (--debug shows the traceback)\n"


def test_what_this_computer_refuses_is_no_failure_of_ours(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a temporary folder on a full disk."""

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "kernel.ptx")

    monkeypatch.setattr(nvidia_tools.Path, "write_text", full)
    run = Run(capsys, "explain", "model.py:softmax", "f32[8,100]", "--cycles", "--target", "sm_90")
    says = "jaxpr2triton: this computer refuses: OSError: [Errno 28] No space left on device: 'kernel.ptx'\n"
    assert (run.code, run.out, run.err.splitlines(True)[-1]) == (2, "", says)


@pytest.mark.parametrize("module", ["jaxpr2triton", "jaxpr2triton.cli.main"])
def test_the_module_of_the_command_line_runs_it_too(module: str) -> None:
    """A module that did nothing would say that all is well."""
    command = [sys.executable, "-m", module, "dump", "no_such_file.py:f", "f32[8]"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "jaxpr2triton: no such file: no_such_file.py"


def test_a_warning_is_one_line(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jaxpr2triton", "dump", "model.py:softmax", "f32[8]", "--asm", "ptx"]
    environ = {**os.environ, "J2T_CACHE_DIR": str(model / "model.py"), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=model, env=environ)
    start = f"jaxpr2triton: warning: the folder of compiled kernels {model / 'model.py'} cannot be read ("
    (line,) = done.stderr.splitlines()
    assert line.startswith(start) and line.endswith("); kernels are compiled again")


# ------------------------------------------------------------------------------------------------- help
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_parse(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main.main([command, "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: jaxpr2triton {command} ")
    assert f"  jaxpr2triton {command} model.py:" in text


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: jaxpr2triton COMMAND FILE.py:FUNCTION [SPEC ...] [options]\n")
    assert all(f"  {command:9}{what}\n" in text for command, what in COMMANDS.items())
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert capsys.readouterr().out == f"jaxpr2triton {main.api.__version__}\n"


# ----------------------------------------------------------------------------------------- as a process
def process(*words: str, cwd: Path, tail: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), **variables}
    command = ["bash", "-c", f'set -o pipefail; "$0" -m jaxpr2triton "$@" {tail}', sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environ, check=False)


def test_check_as_a_process(model: Path) -> None:
    done = process("check", "model.py:softmax", "f32[4,10]", "--seeds", "1", cwd=model)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "all agree"


def test_an_error_as_a_process(model: Path) -> None:
    done = process("dump", "model.py:softmx", "f32[8]", cwd=model)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jaxpr2triton: there is no softmx in model.py; is it softmax?\n"


def test_a_reader_that_goes_away_is_no_error(model: Path) -> None:
    done = process("dump", "model.py:softmax", "f32[8,100]", cwd=model, tail="| true")
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=str,
)
def test_any_encoding_will_do(model: Path, variables: dict[str, str]) -> None:
    done = process("explain", "model.py:softmax", "f32[8,100]", cwd=model, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "softmax: (f32[8,100]) -> (f32[8,100])"
    written = process("dump", "model.py:softmax", "f32[8,100]", "-o", "out.py", cwd=model, **variables)
    assert (written.returncode, written.stderr) == (0, "")
    assert "(f32[8,100]) → (f32[8,100])" in (model / "out.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tail", "code"), [("| head -1", (0, 141)), ("2>&1 | true", (2, 141)), (">&-", (0,)), ("2>&- | true", (0, 141))]
)
def test_closed_streams_are_no_error(model: Path, tail: str, code: tuple[int, ...]) -> None:
    words = ("dump", "modle.py:softmax") if code[0] == 2 else ("dump", "model.py:softmax", "f32[8,100]")
    done = process(*words, cwd=model, tail=tail)
    assert done.stderr == ""
    assert done.returncode in code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_error(model: Path) -> None:
    done = process("explain", "model.py:softmax", "f32[8]", cwd=model, tail="> /dev/full")
    assert done.stderr == "jaxpr2triton: cannot write standard output: No space left on device\n"
    assert done.returncode == 2
