"""Ctrl-C while a kernel runs in the interpreter: a `KeyboardInterrupt`, though XLA stands in between."""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.launch.call import primitive

CHECKOUT = Path(__file__).parents[3]
X = jnp.ones(8)
# what Python says of an interrupt that comes while the garbage collector calls JAX
LOST = re.compile(r"Exception ignored in: <function _xla_gc_callback .*?KeyboardInterrupt: \n", re.DOTALL)


def endless(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.9 + y), c), x, jnp.ones((200_000, 8)))[0]


def several(x: Any) -> Any:
    return jnp.sort(jnp.cos(jnp.sort(jnp.sin(x)))) * 2


def fused(function: Any) -> Any:
    return j2t.fuse(function, backend="interpret")


def transpiled(function: Any) -> Any:
    return j2t.transpile(function, X)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are started; the first of them is interrupted."""
    names: list[str] = []
    original = primitive.run_interpreted

    def run(kernel: Any, arrays: Any) -> Any:
        names.append(kernel.name)
        if len(names) == 1:
            raise KeyboardInterrupt
        return original(kernel, arrays)

    monkeypatch.setattr(primitive, "run_interpreted", run)
    return names


@pytest.fixture
def heard() -> Iterator[None]:
    """Interrupts are heard, which workers of a test runner need not do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("make", [fused, transpiled])
def test_a_long_kernel_is_interrupted(make: Any, heard: None) -> None:
    call = make(endless)
    threading.Timer(3.0, _thread.interrupt_main).start()  # it runs by then
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(X)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("make", [fused, transpiled])
def test_nothing_else_runs_after_an_interrupt(make: Any, started: list[str]) -> None:
    call = make(several)
    with pytest.raises(KeyboardInterrupt):
        call(X)
    assert len(started) == 1
    np.testing.assert_allclose(call(X), several(X), rtol=1e-6)


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel: Any, arrays: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(primitive, "run_interpreted", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: no"):
        fused(several)(X)


def test_a_function_for_the_interpreter_is_one_of_jit() -> None:
    """Its attributes are those of `jax.jit`, transformations see through it, and classes bind it."""
    call = fused(several)
    assert isinstance(call, jax.stages.Wrapped) and call.__name__ == "several"
    assert "several" in call.lower(X).as_text()
    np.testing.assert_allclose(jax.jit(call)(X), several(X), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(call)(X[None]), several(X)[None], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: call(x).sum())(X), jax.grad(lambda x: several(x).sum())(X), rtol=1e-6)

    class Model:
        scale = 3.0

        @functools.partial(j2t.fuse, backend="interpret", static_argnums=0)
        def scaled(self, x: Any) -> Any:
            return x * self.scale

    np.testing.assert_allclose(Model().scaled(X), X * 3.0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_line_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def f(x):\n"
        "    return jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.9 + y), c), x, jnp.ones((200_000, 8)))[0]\n"
    )
    started = tmp_path / "started"
    patched = (
        "import pathlib, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        "from jaxpr2triton.cli import main\n"
        "from jaxpr2triton.launch.call import primitive\n"
        "original = primitive.run_interpreted\n"
        "def run(*args):\n"
        "    pathlib.Path('started').touch()\n"
        "    return original(*args)\n"
        "primitive.run_interpreted = run\n"
        "sys.exit(main.main())\n"
    )
    command = [sys.executable, "-c", patched, "check", "model.py:f", "f32[8]"]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not started.exists():
            time.sleep(0.05)
            assert process.poll() is None
        time.sleep(0.5)
        for _ in range(4):  # one that comes while the garbage collector calls JAX is lost
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=10)
                break
        else:
            process.kill()
    assert (process.returncode, out, LOST.sub("", err)) == (130, "", "")


INTERRUPTED = """
import os, signal, threading
import jax, jax.numpy as jnp
import jaxpr2triton as j2t
from jaxpr2triton.launch.call import primitive

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
original, running = primitive.run_interpreted, threading.Event()

def run(*args):
    running.set()
    return original(*args)

def interrupt(done):
    running.wait()
    while not done.wait(1.0):  # one that comes while the garbage collector calls JAX is lost
        os.kill(os.getpid(), signal.SIGINT)

def told(call):
    done = threading.Event()
    running.clear()
    threading.Thread(target=interrupt, args=(done,), daemon=True).start()
    try:
        call(jnp.ones(8))
    except BaseException as problem:
        done.set()
        print(type(problem).__name__, "KeyboardInterrupt" in repr(problem))

def endless(x):
    return jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.9 + y), c), x, jnp.ones((200_000, 8)))[0]

def refusing(x):
    raise KeyboardInterrupt

primitive.run_interpreted = run
f = j2t.fuse(endless)
told(f)
told(j2t.fuse(lambda x: f(x) + 1))
told(jax.jit(f))
told(jax.jit(lambda x: jax.pure_callback(refusing, x, x)))
print(j2t.fuse(lambda x: x + 1)(1.0))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_where_the_environment_chose_the_interpreter() -> None:
    """Whoever calls a fused function has a `KeyboardInterrupt`; whoever calls a `jit` around it what JAX makes of one.

    After that all goes on.
    """
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "J2T_BACKEND": "interpret"}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], env=environ, capture_output=True, text=True, timeout=100)
    ours, theirs = "KeyboardInterrupt True\n", "JaxRuntimeError True\n"
    assert (done.stdout, done.returncode) == (2 * ours + 2 * theirs + "2.0\n", 0)
