"""What is seen of long work: a line on a terminal that goes away, and nothing anywhere else."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton import progress
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.cycles import model
from jaxpr2triton.pipeline import stages
from jaxpr2triton.progress import CLEAR, Work, counted, during, working
from tests.programs import windows

X = np.ones((4, 8), np.float32)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        return [re.sub(r"\d+ s$", "? s", line) for line in dict.fromkeys(self.getvalue().split(CLEAR)[1:])]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal, looked at often by somebody without patience."""
    stream = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))  # pytest has its own between phases of a test
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(progress, "PERIOD", 0.005)
    return stream


def wait_for(text: str, stream: Terminal) -> None:
    end = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.005)


def two_kernels(x: Any) -> Any:
    return windows(jnp.sin(x)) * 3.0


def test_a_terminal_shows_stage_and_kernel_and_is_clear_at_the_end(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, kernels = stages.emit, iter((1, 2))

    def slowly(plan: Any, graph: Any) -> Any:
        wait_for(f"jaxpr2triton: planning two_kernels: emit, kernel {next(kernels)} of 2, 0 s", terminal)
        return emit(plan, graph)

    monkeypatch.setattr(stages, "emit", slowly)
    j2t.transpile(two_kernels, X)
    assert terminal.getvalue().endswith(CLEAR)
    assert "\n" not in terminal.getvalue()


def test_under_jit_and_grad_too(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = stages.emit

    def slowly(plan: Any, graph: Any) -> Any:
        wait_for("jaxpr2triton: planning ", terminal)
        return emit(plan, graph)

    monkeypatch.setattr(stages, "emit", slowly)
    fused = j2t.fuse(lambda x: jnp.sin(x).sum(), backend="interpret")
    np.testing.assert_allclose(jax.jit(jax.grad(fused))(X), np.cos(X), 1e-6)
    assert terminal.getvalue().endswith(CLEAR)


def test_modelling_shows_which_kernel_is_compiled(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives what each kernel would by itself."""
    compile_kernel, kernels = model.compile_kernel, iter((1, 2))

    def slow(kernel: Any, target: Any) -> Any:
        wait_for(f"modelling cycles on sm_90: kernel {next(kernels)} of 2", terminal)
        return compile_kernel(kernel, target)

    program = j2t.transpile(two_kernels, X, for_target="sm_90")
    one, other = program.kernels
    alone = {each: model.cycles_of(each, target_named("sm_90")) for each in (one, other)}
    monkeypatch.setattr(model, "compile_kernel", slow)
    found = model.cycles_of_all([one, other, one], target_named("sm_90"))
    assert found == alone and next(kernels, None) is None
    assert terminal.getvalue().endswith(CLEAR)


def test_short_work_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    before = time.monotonic()
    j2t.transpile(two_kernels, X)
    assert terminal.getvalue() == "" and time.monotonic() - before < 60


@pytest.mark.parametrize("stream", [io.StringIO(), None], ids=["a file", "nothing"])
def test_nothing_is_shown_elsewhere(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    threads = threading.active_count()
    with working("waiting"):
        assert threading.active_count() == threads
    assert stream is None or stream.getvalue() == ""


def test_nor_where_lines_cannot_be_cleared(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with working("waiting"):
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_nor_on_what_has_been_closed(terminal: Terminal) -> None:
    terminal.close()
    with working("waiting"):
        time.sleep(0.05)


def test_two_threads_share_one_line(terminal: Terminal) -> None:
    """The one that was first has it."""
    both = threading.Barrier(2)

    def second() -> None:
        both.wait()
        with working("second"):
            time.sleep(0.1)
        both.wait()

    other = threading.Thread(target=second)
    other.start()
    with working("first"):
        both.wait()
        both.wait()
        wait_for("first", terminal)
    other.join()
    assert "second" not in terminal.getvalue() and terminal.getvalue().endswith(CLEAR)
    with working("third"):
        wait_for("third", terminal)


def test_errors_leave_no_line_behind(terminal: Terminal) -> None:
    with pytest.raises(ZeroDivisionError), working("dividing"):
        wait_for("dividing", terminal)
        raise ZeroDivisionError
    assert terminal.getvalue().endswith(CLEAR)


def test_lines_fit_the_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with working("something with a very long name"):
        wait_for("jaxpr2triton: somet", terminal)
    assert all(len(line) < 20 for line in terminal.shown())


def test_stages_are_timed_and_places_told() -> None:
    with working("testing") as work:
        with during("one"):
            assert [(item, work.place) for item in counted("kernel", "ab")] == [
                ("a", "kernel 1 of 2"),
                ("b", "kernel 2 of 2"),
            ]
            assert str(work) == "jaxpr2triton: testing: one, kernel 2 of 2, 0 s"
        once = work.seconds["one"]
        with during("one"), during("two"):
            pass
    assert list(work.seconds) == ["one", "two"] and work.seconds["one"] > once


def test_nobody_has_to_look() -> None:
    with during("one"):
        assert list(counted("kernel", "ab")) == ["a", "b"]
    assert str(Work("nothing", started=time.perf_counter())) == "jaxpr2triton: nothing: 0 s"
