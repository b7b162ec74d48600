"""Loops that are very long, interrupted, or wrong."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.loop_programs import chains, equations, recurrent

# how long a loop is


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def gradient(fn: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    return jax.grad(lambda *args: sum(jnp.sum(out) for out in jax.tree.leaves(fn(*args))), argnums)


KEY = jax.eval_shape(lambda: jax.random.key(0))
WEIGHTS = {"w": floats(6, 8), "u": floats(8, 8), "b": floats(8)}
OF_LENGTH: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "noisy_chain": lambda steps: (chains.noisy_chain_of(steps), KEY, floats(1, 12), floats(12, 1)),
    "drawn_chain": lambda steps: (chains.drawn_chain(steps), KEY, floats(1, 12), floats(12, 1)),
    "inference_gradient": lambda steps: (
        *(gradient(chains.inference(steps), 0), floats(1), floats(1), floats(1, 12), floats(12, 1)),
    ),
    "logistic_map_gradient": lambda steps: (gradient(chains.logistic_map(steps), 0), floats()),
    "ensemble": lambda steps: (equations.ensemble(equations.rk4_step, steps, 0.01), floats(7, 3), floats(7, 3)),
    "rnn_gradient": lambda steps: (gradient(recurrent.rnn, 0, 1), WEIGHTS, floats(steps, 3, 6), floats(3, 8)),
}


def length(kernel: j2t.Kernel) -> int:
    """In statements: long numbers may need a line more."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(kernel.source)))


@pytest.mark.compile
@pytest.mark.parametrize("name", OF_LENGTH)
def test_kernels_are_as_long_for_few_steps_as_for_ten_million(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_CACHE", "0")
    short = j2t.transpile(*OF_LENGTH[name](10), exact_order=True)
    started = time.perf_counter()
    program = j2t.transpile(*OF_LENGTH[name](10_000_000), exact_order=True)
    lengths = [length(kernel) for kernel in program.kernels if "range(" in kernel.source]
    assert lengths == [length(kernel) for kernel in short.kernels if "range(" in kernel.source]
    assert "1000000" in program.source and "1000000" not in short.source
    for kernel in program.kernels:
        compile_kernel(kernel, TARGETS["sm_90"])
    assert time.perf_counter() - started < 10


# interrupts

CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
import jax, jax.numpy as jnp, numpy as np
from jax import lax
import jaxpr2triton as j2t

def steps(x):
    def step(x, _):
        x = 4 * x * (1 - x)
        if isinstance(x, jax.core.Tracer):
            print("traced", flush=True)
        return x, None
    return lax.scan(step, x, None, length=100_000_000)[0]

x = np.float32(0.3)
jax.config.update("jax_platforms", "cpu")
run = j2t.fuse(steps, backend="interpret") if sys.argv[1] == "fused" else j2t.transpile(steps, x)
print(run(x))
"""


@pytest.mark.skipif(os.name != "posix", reason="interrupts are signals")
@pytest.mark.parametrize("how", ["fused", "transpiled"])
def test_a_long_run_can_be_interrupted(how: str) -> None:
    words = [sys.executable, "-c", CHILD, how]
    where = {**os.environ, "PYTHONPATH": str(Path(j2t.__file__).parents[1])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=where) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "traced\n"
            time.sleep(1.5)  # it runs now, or is still compiled
            child.send_signal(signal.SIGINT)
            printed, errors = child.communicate(timeout=30)
        finally:
            child.kill()
    assert "KeyboardInterrupt" in errors and "KernelFallback" not in errors  # XLA hands it on as an error of its own
    assert child.returncode != 0 and printed == ""


# mistakes


def shorter(x: Any) -> Any:
    return lax.scan(lambda c, _: (c[:1], None), x, None, length=2)


def narrower(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: c.astype(jnp.float16), x)


def more(x: Any) -> Any:
    return lax.scan(lambda c, _: ((c, c), None), x, None, length=2)


def complexer(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 1, lambda c: c + 1j, x)


def undecided(x: Any) -> Any:
    return lax.while_loop(lambda c: c < 1, lambda c: c + 1, x)


def forked(x: Any) -> Any:
    return lax.scan(lambda c, _: (lax.cond(c[0] > 0, lambda: c, lambda: c[:1]), None), x, None, length=2)


X = np.ones(3, np.float32)


@pytest.mark.parametrize("wrong", [shorter, narrower, more, complexer, undecided, forked])
def test_mistakes_in_bodies_are_jaxs_own_errors_at_the_users_line(wrong: Callable[..., Any]) -> None:
    with pytest.raises(TypeError) as theirs:
        jax.jit(wrong)(X)
    fused = j2t.fuse(wrong, backend="interpret")
    summed = jax.grad(lambda x: jnp.sum(fused(x)))
    for call in (
        lambda: fused(X),
        lambda: j2t.transpile(wrong, X),
        lambda: summed(X),
        lambda: jax.vmap(fused)(X[None]),
    ):
        with pytest.raises(TypeError) as ours:
            call()
        assert str(ours.value) == str(theirs.value)
        lines = [(frame.filename, frame.name) for frame in traceback.extract_tb(ours.value.__traceback__)]
        assert (__file__, wrong.__name__) in lines
