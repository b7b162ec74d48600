"""Triton compiles in a process that can be ended."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from jaxpr2triton.errors import BackendError, KernelFallback, KernelRefused
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call import primitive
from jaxpr2triton.launch.compile import helper
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.launch.handmade import add_kernel, make_kernel

SM_90 = TARGETS["sm_90"]
pytestmark = pytest.mark.usefixtures("no_cache")

ENDLESS = """
    row = tl.arange(0, 4)
    state = tl.load(a_ptr + row[:, None] * 4 + row[None, :])
    for t in range(5):
        most = tl.max(tl.permute(state, (1, 0)), axis=0)
        state = most[None, :] + state
    tl.store(out_ptr + row[:, None] * 4 + row[None, :], state)
"""


def endless(name: str = "endless") -> Kernel:
    return make_kernel(name, ENDLESS, [("a", (4, 4), "float32")], [("out", (4, 4), "float32")])


def broken(name: str, statement: str) -> Kernel:
    kernel = add_kernel(64, name)
    return dataclasses.replace(kernel, source=f"import os\n{kernel.source}\n{statement}\n")


def refusal(kernel: Kernel) -> str:
    with pytest.raises(KernelRefused) as caught:
        compile_kernel(kernel, SM_90)
    return str(caught.value)


def test_a_kernel_that_triton_does_not_come_back_from_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "SECONDS", 2)
    assert refusal(endless()) == "Triton does not come back from kernel endless within 2 seconds"
    assert compile_kernel(add_kernel(64, "after_it"), SM_90).name == "after_it"


def test_a_kernel_that_triton_breaks_down_over_is_refused() -> None:
    assert refusal(broken("broken", "os.abort()")) == "Triton breaks down over kernel broken: Aborted"
    assert compile_kernel(add_kernel(64, "after_that"), SM_90).name == "after_that"


def test_one_helper_compiles_all_kernels() -> None:
    compile_kernel(add_kernel(64, "first"), SM_90)
    (before,) = helper._helpers
    compile_kernel(add_kernel(64, "second"), SM_90)
    assert helper._helpers == [before]


def test_a_helper_that_is_gone_is_replaced() -> None:
    compile_kernel(add_kernel(64, "one"), SM_90)
    helper._end()
    assert compile_kernel(add_kernel(64, "two"), SM_90).name == "two"


def test_an_interrupt_ends_the_helper() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_kernel(endless("interrupted"), SM_90)
    finally:
        signal.signal(signal.SIGINT, before)
    assert helper._helpers == []


def test_a_compiler_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    helper._end()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BackendError) as caught:
        compile_kernel(add_kernel(64, "never"), SM_90)
    assert str(caught.value) == "Triton's compiler does not start: triton_compiler.py ends with status 1"


def test_within_another_program_triton_compiles_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    helper._end()
    monkeypatch.setattr(sys, "executable", "")
    assert compile_kernel(add_kernel(64, "here"), SM_90).name == "here"
    assert refusal(broken("wrong", "1 / 0")).endswith("ZeroDivisionError: division by zero")
    assert helper._helpers == []


def test_a_copy_of_the_process_has_a_helper_of_its_own() -> None:
    program = """
import os, sys
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile import helper
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.launch.handmade import add_kernel

compile_kernel(add_kernel(64, "ours"), TARGETS["sm_90"])
(mine,) = helper._helpers
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    compile_kernel(add_kernel(64, "ours_again"), TARGETS["sm_90"])
    assert helper._helpers == [mine]
else:
    compile_kernel(add_kernel(64, "theirs"), TARGETS["sm_90"])
    assert helper._helpers[0].process.pid != mine.process.pid
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_xla_runs_what_triton_does_not_come_back_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "SECONDS", 2)
    x = np.ones((4, 4), np.float32)
    region = jax.make_jaxpr(lambda a: a + 4.0)(x)
    with pytest.warns(KernelFallback, match="does not come back from kernel left_to_xla within 2 seconds"):
        (found,) = primitive.launch_kernel(endless("left_to_xla"), region, [x], "machine", False)
    np.testing.assert_array_equal(found, x + 4)


def test_a_python_that_cannot_be_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is this computer's trouble, and no mistake of ours."""
    helper._end()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(BackendError) as caught:
        compile_kernel(add_kernel(64, "nowhere"), SM_90)
    assert str(caught.value) == (
        "the process in which Triton compiles cannot be started: /no/such/python (No such file or directory)\n"
        "  try  sys.executable has to be a Python that can be run"
    )
