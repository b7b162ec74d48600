"""Whatever goes wrong in this compiler: the results stay right, one warning says whose it is, `strict` raises."""

from __future__ import annotations

import platform
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton import api, mistakes
from jaxpr2triton.autodiff import split
from jaxpr2triton.cli import main
from jaxpr2triton.front import lowering, planning, rules, transpiled
from jaxpr2triton.launch.call import primitive
from jaxpr2triton.pipeline import compile as pipeline
from jaxpr2triton.pipeline import compiled_program as running
from jaxpr2triton.pipeline import stages
from tests.programs import windows

X = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
ERRORS = (ValueError("no\nmore"), RecursionError("too deep"), MemoryError(), KeyError("row"))
# The functions that do the work of stages, each with the module that calls it.
STAGES = {"lower": pipeline, "normalize": stages, "partition": pipeline, "schedule": stages, "emit": stages}


@pytest.fixture(autouse=True)
def _left_to_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_RAISE")
    monkeypatch.setenv("J2T_CACHE", "0")
    monkeypatch.setattr(mistakes, "_told", set())


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets a function of the compiler raise, if it is called with what `when` is true of."""

    def broken(module: Any, name: str, error: BaseException, when: Callable[..., bool] = lambda *args: True) -> None:
        inner = getattr(module, name)

        def mistaken(*args: Any, **options: Any) -> Any:
            if when(*args):
                raise error
            return inner(*args, **options)

        monkeypatch.setattr(module, name, mistaken)

    return broken


def weights(x: Any) -> Any:
    return jax.nn.softmax(x * 2, axis=-1)


def decayed(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + x, x)


def energy(x: Any) -> Any:
    return (weights(x) * x).sum()


def same(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, expected)


def mistaken(call: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """The results, and the text of the one warning."""
    with pytest.warns(j2t.BugWarning) as caught:
        found = jax.block_until_ready(call(*args))
    (warning,) = caught
    return found, str(warning.message)


def says(warning: str, instead: str) -> bool:
    return f"\n  The results are right: {instead}.\n" in warning


def first_line(error: Exception) -> str:
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def cuda_text(function: Any, *args: Any) -> str:
    return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


# ------------------------------------------------------------------------------------------- while compiling
@pytest.mark.parametrize("error", ERRORS, ids=first_line)
@pytest.mark.parametrize("function", [weights, decayed])
@pytest.mark.parametrize("stage", [*STAGES, "launch_kernel"])
def test_fuse(stage: str, function: Callable[..., Any], error: Exception, breaks: Callable[..., None]) -> None:
    breaks(STAGES.get(stage, running), stage, error)
    found, text = mistaken(j2t.fuse(lambda x: function(x), backend="interpret"), X)
    same(found, jax.jit(function)(X))
    start = rf"a bug in jaxpr2triton, in program lambda_at_\d+: {re.escape(first_line(error))}\n  in   jaxpr2triton/"
    assert re.match(start, text)


def unfolded(text: str) -> str:
    """In one line, whatever the width it was folded for."""
    return " ".join(text.split())


@pytest.mark.parametrize("function", [weights, decayed])
@pytest.mark.parametrize("stage", STAGES)
def test_transpile(stage: str, function: Callable[..., Any], breaks: Callable[..., None]) -> None:
    breaks(STAGES[stage], stage, KeyError("row"))
    program, _ = mistaken(j2t.transpile, function, X)
    assert program.kernels == () and "def " not in program.source
    assert {left.why.split(",")[0] for left in program.leftovers} == {"a mistake in jaxpr2triton (KeyError: 'row'"}
    kinds = {(left.primitive, left.why) for left in program.leftovers}
    assert unfolded(program.explain()).count("a mistake in jaxpr2triton (KeyError: 'row', at ") == len(kinds) > 0
    same(program(X), jax.jit(function)(X))


@pytest.mark.parametrize("how", ["fuse", "transpile", "lowering"])
@pytest.mark.parametrize("function", [weights, decayed])
@pytest.mark.parametrize("stage", STAGES)
def test_strict_raises_the_error_itself(
    how: str, function: Callable[..., Any], stage: str, breaks: Callable[..., None]
) -> None:
    error = KeyError("row")
    breaks(STAGES[stage], stage, error)
    calls = {
        "fuse": lambda: j2t.fuse(function, backend="interpret", strict=True)(X),
        "lowering": lambda: cuda_text(j2t.fuse(function, strict=True), X),
        "transpile": lambda: j2t.transpile(function, X, strict=True),
    }
    with pytest.raises(KeyError) as caught:
        calls[how]()
    assert caught.value is error
    note = error.__notes__[0]  # later ones are of the kernels that it keeps from being made
    assert note.startswith(f"a bug in jaxpr2triton, in program {function.__name__}: KeyError: 'row'\n")
    assert "\n  The results are right: drop strict=True, and XLA does what it concerns.\n" in note


@pytest.mark.parametrize("function", [weights, decayed])
@pytest.mark.parametrize("stage", STAGES)
def test_all_is_raised_where_mistakes_are_to_be_raised(
    stage: str, function: Callable[..., Any], breaks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_RAISE", "1")
    error = RecursionError("too deep")
    breaks(STAGES[stage], stage, error)
    for call in (j2t.fuse(lambda x: function(x), backend="interpret"), lambda x: j2t.transpile(function, x)):
        with pytest.raises(RecursionError) as caught:
            call(X)
        assert caught.value is error


def test_the_warning(breaks: Callable[..., None]) -> None:
    breaks(stages, "emit", KeyError("row"))
    _, text = mistaken(j2t.transpile, energy, X)
    versions = f"jaxpr2triton {j2t.__version__}, jax {jax.__version__}, triton {metadata.version('triton')}"
    assert re.sub(r"\.py:\d+\n", ".py:…\n", text) == (
        "a bug in jaxpr2triton, in program energy: KeyError: 'row'\n"
        "  in   jaxpr2triton/pipeline/stages.py:…\n"
        f"  at   test_mistakes.py:{weights.__code__.co_firstlineno + 1} (weights)\n"
        "  The results are right: XLA runs what could not be compiled, and `explain` tells what that is.\n"
        "  Please report it with this message, the function or its jaxpr (`jax.make_jaxpr`), and the traceback that\n"
        f"  J2T_RAISE=1 shows. This is {versions}, Python {platform.python_version()}."
    )


def test_the_equation_that_something_goes_wrong_with_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # it is called with an equation, in a function of ours
    monkeypatch.setattr("jaxpr2triton.plan.partition.program.why_not", None)
    _, text = mistaken(j2t.transpile, lambda x: jnp.tan(x + 1), X)
    assert "TypeError: 'NoneType' object is not callable\n  in   jaxpr2triton/plan/partition/program.py:" in text
    assert "  at   test_mistakes.py:" in text


def test_once_for_each_program_and_place(breaks: Callable[..., None]) -> None:
    breaks(stages, "normalize", KeyError("row"))
    function = j2t.fuse(weights, backend="interpret")
    mistaken(lambda: (function(X), function(X[:2]), function(X[:3])))
    mistaken(j2t.fuse(lambda x: weights(x), backend="interpret"), X)


def test_a_warning_that_is_an_error_is_not_caught_again(breaks: Callable[..., None]) -> None:
    breaks(stages, "normalize", KeyError("row"))
    with pytest.raises(j2t.BugWarning):
        j2t.fuse(weights, backend="interpret")(X)


def test_interrupts_pass(breaks: Callable[..., None]) -> None:
    for stage in STAGES:
        breaks(STAGES[stage], stage, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            j2t.transpile(weights, X)


@pytest.mark.parametrize("room", [30, 50, 70])
def test_recursion_that_is_too_deep_wherever_it_is(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def cramped(module: Any, name: str) -> None:
        inner = getattr(module, name)

        def called(*args: Any) -> Any:
            limit, depth = sys.getrecursionlimit(), sum(1 for _ in traceback.walk_stack(None))
            sys.setrecursionlimit(depth + room)
            try:
                return inner(*args)
            finally:
                sys.setrecursionlimit(limit)

        monkeypatch.setattr(module, name, called)

    def both(x: Any) -> Any:
        return (weights(decayed(x)) * jnp.sort(x)).sum()

    expected = jax.grad(both)(X)
    for module, name in ((planning, "compile_jaxpr"), (split, "linearize"), (split, "transpose")):
        cramped(module, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", j2t.BugWarning)
        same(jax.grad(fuse(lambda x: both(x)))(X), expected)
        assert cuda_text(jax.grad(j2t.fuse(lambda x: both(x))), X)


# ---------------------------------------------------------------------------------------- as little as can be
def test_a_region_without_loops_is_lost_alone(breaks: Callable[..., None]) -> None:
    def both(x: Any) -> Any:
        return jnp.cos(windows(jnp.sin(x)))

    for stage in ("emit", "schedule"):
        breaks(STAGES[stage], stage, ValueError(stage), lambda made, *_: "cos" in str(getattr(made, "jaxpr", made)))
        program, _ = mistaken(j2t.transpile, both, X)
        assert [kernel.name for kernel in program.kernels] == ["both_0"]
        assert [(left.primitive, left.why[:16]) for left in program.leftovers] == [
            ("reduce_window_sum", "its windows have"),
            ("cos", "a mistake in jax"),
        ]
        same(program(X), jax.jit(both)(X))


def test_a_loop_is_lost_alone(breaks: Callable[..., None]) -> None:
    def both(x: Any) -> Any:
        return decayed(x), lax.fori_loop(0, 4, lambda _, c: jnp.cos(c) * 2, x[0])

    breaks(stages, "emit", ValueError(), lambda plan, graph: "cos" in str(plan.jaxpr))
    program, _ = mistaken(j2t.transpile, both, X)
    (left,) = program.leftovers
    assert left.primitive == "scan" and left.why.startswith("a mistake in jaxpr2triton (ValueError, at ")
    assert "sin(" in program.source and "cos(" not in program.source
    same(program(X), jax.jit(both)(X))


def test_limits_are_no_mistakes() -> None:
    program = j2t.transpile(lambda x: lax.fori_loop(0, 3, lambda _, c: windows(c) + 1, x), X)
    (left,) = program.leftovers
    assert "its windows have 4,097 elements" in left.why and program.compiled.mistakes == ()


@pytest.mark.parametrize("function", [weights, decayed])
def test_a_role_of_a_kernel_that_is_lost_is_no_mistake_of_the_users(
    function: Callable[..., Any], breaks: Callable[..., None]
) -> None:
    (kernel,) = j2t.transpile(function, X).kernels
    roles = {kernel.axes[0].name: "lane"}
    breaks(stages, "schedule", KeyError("row"))
    program, _ = mistaken(lambda: j2t.transpile(function, X, roles=roles))
    assert not program.kernels
    with pytest.warns(j2t.BugWarning):
        pair = j2t.transpile(lambda x: function(x).sum(), X, roles=roles, grad=True)
    same(pair(X), jax.value_and_grad(lambda x: function(x).sum())(X))


def test_roles_are_given_up_before_kernels(breaks: Callable[..., None]) -> None:
    breaks(stages, "emit", KeyError("row"), lambda plan, graph: bool(plan.roles))
    program, text = mistaken(lambda: j2t.transpile(weights, X, roles={"col": "loop"}))
    assert [str(axis.role) for axis in program.kernels[0].axes] == ["grid", "lane"]
    assert "The results are right: the kernels are made in another way." in text
    same(program(X), jax.jit(weights)(X))


# --------------------------------------------------------------------------------------------------- lowering
def fails_on_smaller(region: Any, name: str, shrink: int = 0, *rest: Any) -> bool:
    return shrink > 0


LOWERING: dict[str, tuple[Any, str, Callable[..., bool], int, str]] = {
    "planning": (pipeline, "partition", lambda *args: True, 0, "XLA runs the whole program"),
    "alternatives": (running, "schedule", fails_on_smaller, 1, "kernel weights has other schedules"),
    "compiling": (primitive, "compile_kernel", lambda *args: True, 0, "XLA runs what the kernel was made for"),
    "calling": (primitive, "ffi_call", lambda *args: True, 0, "XLA runs what the kernel was made for"),
    "lowering": (lowering, "compiled_program", lambda *args: True, 0, "XLA runs the whole program"),
}


@pytest.mark.parametrize("error", [RecursionError("too deep"), KeyError("row")], ids=first_line)
@pytest.mark.parametrize("where", LOWERING)
def test_lowering_for_cuda(where: str, error: Exception, breaks: Callable[..., None]) -> None:
    module, name, when, calls, instead = LOWERING[where]
    breaks(module, name, error, when)
    text, warning = mistaken(cuda_text, j2t.fuse(weights), X)
    assert text.count("custom_call @triton_kernel_call_ffi") == calls
    assert ("exponential" in text) == (not calls)
    assert first_line(error) in warning and says(warning, instead)


@pytest.mark.parametrize("where", ["compiling", "calling"])
def test_lowering_under_strict(where: str, breaks: Callable[..., None]) -> None:
    module, name, when, *_ = LOWERING[where]
    breaks(module, name, KeyError("row"), when)
    with pytest.raises(KeyError):
        cuda_text(j2t.fuse(weights, strict=True), X)


# -------------------------------------------------------------------------------------------- transformations
def gradients(wrap: Callable[..., Any]) -> Any:
    return jax.grad(wrap(lambda x: energy(x)))(X)


def jacobians(wrap: Callable[..., Any]) -> Any:
    return jax.jvp(wrap(lambda x: (weights(x), jnp.argmax(x))), (X,), (X,))[0]


def batches(wrap: Callable[..., Any]) -> Any:
    return jax.vmap(wrap(lambda x, y: (weights(x), y * 2)), in_axes=(1, None), out_axes=(1, None))(X, X[0])


def unused(wrap: Callable[..., Any]) -> Any:
    return jax.jit(lambda x: wrap(lambda x: (weights(x), jnp.sin(x)))(x)[1])(X)


def constants(wrap: Callable[..., Any]) -> Any:
    return wrap(lambda x: weights(x) + jnp.asarray(X))(X)


DERIVED: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "linearize": (split, "linearize", gradients, "JAX differentiates it, and XLA runs that"),
    "jvp": (split, "linearize", jacobians, "JAX differentiates it, and XLA runs that"),
    "transpose": (split, "transpose", gradients, "JAX makes its gradient, and XLA runs that"),
    "batch": (split, "batch", batches, "JAX batches it, and XLA runs that"),
    "dce": (rules, "prune", unused, "all of its outputs are computed"),
    "hoist": (api, "hoist", constants, "XLA runs the whole program"),
}


def fuse(function: Callable[..., Any], **options: Any) -> Any:
    return j2t.fuse(function, backend="interpret", **options)


@pytest.mark.parametrize("error", ERRORS, ids=first_line)
@pytest.mark.parametrize("name", DERIVED)
def test_transformations(name: str, error: Exception, breaks: Callable[..., None]) -> None:
    module, function, program, instead = DERIVED[name]
    breaks(module, function, error)
    found, text = mistaken(program, fuse)
    same(found, program(jax.jit))
    assert first_line(error) in text and says(text, instead)


@pytest.mark.parametrize("how", ["strict", "raise"])
@pytest.mark.parametrize("name", DERIVED)
def test_transformations_raise(
    name: str, how: str, breaks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, function, program, _ = DERIVED[name]
    breaks(module, function, MemoryError())
    if how == "raise":
        monkeypatch.setenv("J2T_RAISE", "1")
    with pytest.raises(MemoryError):
        program(lambda function: fuse(function, strict=how == "strict"))


def test_calls_that_cannot_be_written_out_at_once(breaks: Callable[..., None]) -> None:
    breaks(transpiled, "flatten", KeyError("row"))
    program, text = mistaken(j2t.transpile, weights, X)
    assert says(text, "the calls in it are written out later")
    assert len(program.kernels) == 1 and not program.leftovers
    same(program(X), jax.jit(weights)(X))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("linearize", "the forward program saves all that JAX would save"),
        ("transpose", "the backward program makes all gradients, zeros included"),
    ],
)
def test_pairs_of_programs(name: str, instead: str, breaks: Callable[..., None]) -> None:
    breaks(split, name, RecursionError())
    pair, text = mistaken(lambda: j2t.transpile(energy, X, grad=True))
    assert says(text, instead)
    assert pair.forward.kernels and pair.backward.kernels
    same(pair(X), jax.value_and_grad(energy)(X))
    with pytest.raises(RecursionError):
        j2t.transpile(energy, X, grad=True, strict=True)


@jax.custom_jvp
def wrong_rule(x: Any) -> Any:
    return x


@wrong_rule.defjvp
def _wrong_rule(primals: Any, tangents: Any) -> Any:
    raise ZeroDivisionError("in the user's rule")


def endless(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 1, lambda c: c + 1, x).sum()


@pytest.mark.parametrize("raised", ["0", "1"])
@pytest.mark.parametrize("function", [lambda x: wrong_rule(x).sum(), endless])
def test_what_jax_cannot_do_either_is_the_users(
    function: Callable[..., Any], raised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_RAISE", raised)
    with pytest.raises((ZeroDivisionError, ValueError)) as theirs:
        jax.grad(jax.jit(function))(X)
    with pytest.raises((ZeroDivisionError, ValueError)) as ours:
        jax.grad(fuse(function))(X)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
    if function is endless:
        assert any("test_mistakes.py" in note for note in ours.value.__notes__)


# ----------------------------------------------------------------------------------------------- command line
@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "model.py").write_text("import jax\n\ndef weights(x):\n    return jax.nn.softmax(x, axis=-1)\n")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


SAID = "jaxpr2triton: warning: a bug in jaxpr2triton, in program weights: KeyError: 'row' in jaxpr2triton/pipeline/"


@pytest.mark.parametrize("command", ["dump", "explain", "show --stage partition", "check --seeds 1 --allow-none"])
def test_command_line(
    command: str, model: None, breaks: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(stages, "emit", KeyError("row"))
    name, *words = command.split()
    assert main.main([name, "model.py:weights", "f32[4,10]", *words]) == 0
    out, err = capsys.readouterr()
    assert SAID in err and " at model.py:4 (weights)" in err
    expected = {
        "dump": "#   left to XLA: ",
        "explain": "reduce_max at model.py:4 (weights): a mistake in jaxpr2triton (KeyError: 'row', at jaxpr2triton/",
        "show": "region[",
        "check": "NOTHING CHECKED",
    }
    assert expected[name] in (unfolded(out) if name == "explain" else out)


def test_command_line_where_mistakes_are_raised(
    model: None, breaks: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J2T_RAISE", "1")
    breaks(stages, "emit", KeyError("row"))
    assert main.main(["dump", "model.py:weights", "f32[4,10]"]) == 3
    assert capsys.readouterr().err == "jaxpr2triton: internal error: KeyError: 'row' (--debug shows the traceback)\n"
