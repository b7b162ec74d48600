"""Ctrl-C while a kernel runs in the interpreter: a `KeyboardInterrupt`, though XLA stands in between."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.launch import primitive

CHECKOUT = Path(__file__).parents[2]
X = jnp.ones(8)


def endless(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.9 + y), c), x, jnp.ones((200_000, 8)))[0]


def several(x: Any) -> Any:
    return jnp.sort(jnp.cos(jnp.sort(jnp.sin(x)))) * 2


def fused(function: Any) -> Any:
    return j2t.fuse(function, backend="interpret")


def transpiled(function: Any) -> Any:
    return j2t.transpile(function, X)


def interrupted(call: Callable[[], Any]) -> None:
    """The call, and then some work that never ends by itself."""
    with pytest.raises(KeyboardInterrupt):
        call()
        while True:
            time.sleep(0.01)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are started; the first of them is interrupted."""
    names: list[str] = []
    original = primitive.run_interpreted

    def run(kernel: Any, arrays: Any) -> Any:
        names.append(kernel.name)
        if len(names) == 1:
            _thread.interrupt_main()
        return original(kernel, arrays)

    monkeypatch.setattr(primitive, "run_interpreted", run)
    return names


@pytest.mark.parametrize("make", [fused, transpiled])
def test_a_long_kernel_is_interrupted(make: Any) -> None:
    call = make(endless)
    threading.Timer(1.0, _thread.interrupt_main).start()
    start = time.monotonic()
    interrupted(lambda: call(X))
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("make", [fused, transpiled])
@pytest.mark.parametrize("again", [False, True])
def test_nothing_else_runs_after_an_interrupt(make: Any, again: bool, started: list[str]) -> None:
    call = make(several)
    if again:  # from the second call on XLA is called without any code of JAX's
        started.append("")
        np.testing.assert_allclose(call(X), several(X), rtol=1e-6)
        assert len(started) > 2
        started.clear()
    interrupted(lambda: call(X))
    assert len(started) == 1
    np.testing.assert_allclose(call(X), several(X), rtol=1e-6)


@pytest.mark.parametrize("transformed", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())])
def test_under_a_transformation(transformed: Any, started: list[str]) -> None:
    interrupted(lambda: transformed(fused(several))(X[None] if transformed is jax.vmap else X))
    assert len(started) == 1


def test_everything_is_as_before(started: list[str]) -> None:
    handler, interval = signal.getsignal(signal.SIGINT), sys.getswitchinterval()
    interrupted(lambda: fused(several)(X))
    assert (signal.getsignal(signal.SIGINT), sys.getswitchinterval()) == (handler, interval)
    assert threading.active_count() < 10


def test_a_loop_of_xla_around_kernels_ends(started: list[str]) -> None:
    """It is ended with an error, for what the interrupted kernel gives may keep it going forever."""
    inner = fused(lambda x: x + 1)
    with pytest.raises((KeyboardInterrupt, jax.errors.JaxRuntimeError, ValueError)):
        jax.jit(lambda x: jax.lax.while_loop(lambda c: jnp.isnan(c).any() | (c < 9).all(), inner, x))(X)
        while True:
            time.sleep(0.01)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_line_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def f(x):\n"
        "    return jax.lax.scan(lambda c, y: (jnp.tanh(c * 0.9 + y), c), x, jnp.ones((200_000, 8)))[0]\n"
    )
    started = tmp_path / "started"
    patched = (
        "import sys, pathlib\n"
        "from jaxpr2triton import cli\n"
        "from jaxpr2triton.launch import primitive\n"
        "original = primitive.run_interpreted\n"
        "def run(*args):\n"
        "    pathlib.Path('started').touch()\n"
        "    return original(*args)\n"
        "primitive.run_interpreted = run\n"
        "sys.exit(cli.main())\n"
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
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
