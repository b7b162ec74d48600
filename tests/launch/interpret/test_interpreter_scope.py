"""Interpreting leaves `triton.language` as it was, whatever happens."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.compile.triton_shim import TRITON_LOCK
from jaxpr2triton.launch.interpret import interpreter
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.launch.interpret.memory import Memory
from tests.launch.handmade import SOFTMAX, add_kernel, make_kernel
from tests.launch.meeting import numbers_for, shift, with_line

LANGUAGE = (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.block_type, libdevice, cuda_libdevice)
PLACES = (*LANGUAGE, JITFunction, stock, stock.InterpreterBuilder)
X = np.random.default_rng(0).standard_normal((5, 300), dtype=np.float32)
A = np.arange(64, dtype=np.float32)


def everything() -> list[dict[str, Any]]:
    """Without `__annotations__`, which Python makes when somebody looks."""
    return [{name: value for name, value in vars(place).items() if name != "__annotations__"} for place in PLACES]


@pytest.fixture(autouse=True)
def nothing_changes() -> Any:
    before = everything()
    yield
    assert not TRITON_LOCK.locked()
    after = everything()
    for place, old, new in zip(PLACES, before, after):
        assert old.keys() == new.keys(), place
        assert not [name for name in old if old[name] is not new[name]], place


def fresh(name: str) -> Any:
    """A kernel that no cache knows."""
    return add_kernel(64, name)


def test_after_a_run() -> None:
    run_interpreted(SOFTMAX, [X])


def test_it_is_patched_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    load = Memory.load

    def watched(*args: Any) -> Any:
        seen.append(tl.load is ORIGINAL)
        return load(*args)

    monkeypatch.setattr(Memory, "load", watched)
    run_interpreted(SOFTMAX, [X])
    assert seen == [False] * 5


ORIGINAL = tl.load


def test_compiling_after_interpreting(no_cache: None) -> None:
    run_interpreted(SOFTMAX, [X])
    assert ".entry softmax" in str(compile_kernel(SOFTMAX, TARGETS["sm_90"]).code)
    run_interpreted(SOFTMAX, [X])


def test_after_an_error() -> None:
    with pytest.raises(CompilerBug):
        run_interpreted(make_kernel("bad", "tl.store(out_ptr, nowhere)", [], [("out", (), "int32")]), [])


@pytest.mark.parametrize("met", ["_all_meet(met_ptr, 3)", "nowhere", ""])
def test_after_an_error_of_programs_that_meet(met: str) -> None:
    kernel = with_line(shift(4), "_all_meet(met_ptr, 4)", met)
    with pytest.raises(CompilerBug):
        run_interpreted(kernel, [numbers_for(kernel)])


def interrupt(*args: Any) -> None:
    raise KeyboardInterrupt


def test_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "load", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_interpreted(SOFTMAX, [X])
    run_interpreted(SOFTMAX, [X])


def test_after_an_interrupt_while_patching(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        countdown = 100

        def __iter__(self) -> Any:
            for patch in plan:
                self.countdown -= 1
                if not self.countdown:
                    raise KeyboardInterrupt
                yield patch

    plan, shared = interpreter._plan(), Interrupting()
    monkeypatch.setattr(interpreter, "_plan", lambda: shared)
    with pytest.raises(KeyboardInterrupt):
        run_interpreted(SOFTMAX, [X])


@pytest.mark.parametrize("countdown", [1, 150, 10**9])
def test_after_an_interrupt_while_restoring(monkeypatch: pytest.MonkeyPatch, countdown: int) -> None:
    calls: list[None] = []
    restore = interpreter.restore

    def interrupted() -> None:
        calls.append(None)
        if len(calls) == 1 and countdown < 10**9:
            for patch in interpreter._plan()[:countdown]:
                if patch.name in vars(patch.owner) and callable(patch.original):
                    setattr(patch.owner, patch.name, patch.original)
            raise KeyboardInterrupt
        restore()

    monkeypatch.setattr(interpreter, "restore", interrupted)
    if countdown < 10**9:
        with pytest.raises(KeyboardInterrupt):
            run_interpreted(SOFTMAX, [X])
    else:
        run_interpreted(SOFTMAX, [X])
    assert len(calls) == (1 if countdown == 10**9 else 2)


def test_threads_interpret_and_compile_at_once(no_cache: None) -> None:
    failures: list[BaseException] = []

    def guarded(work: Any, *args: Any) -> None:
        try:
            for _ in range(3):
                work(*args)
        except BaseException as problem:
            failures.append(problem)

    def interpreted() -> None:
        (out,) = run_interpreted(fresh("add"), [A, A])
        np.testing.assert_array_equal(out, A + A)

    work = [(interpreted,)] * 3 + [(compile_kernel, fresh(f"add_{i}"), TARGETS["sm_90"]) for i in range(3)]
    threads = [threading.Thread(target=guarded, args=args) for args in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
