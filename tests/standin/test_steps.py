"""Many steps, threads and processes: what is donated, captured, waited for, and left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.contraction_programs import PROGRAMS as CONTRACTIONS
from tests.programs import layer_norm
from tests.standin.checks import noting_kernels
from tests.standin.record import live, recording

pytestmark = pytest.mark.standin

Step = Callable[..., Any]
X = (512, 256)


def array(*shape: int) -> Any:
    return jax.device_put(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def training(fused: Step, **options: Any) -> Step:
    """One step of gradient descent, with a state of two arrays."""

    def loss(params: Any, x: Any, target: Any) -> Any:
        return ((fused(x, *params) - target) ** 2).mean()

    def step(params: Any, x: Any, target: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, target))

    return jax.jit(step, **options)


def test_what_is_donated_is_written_in_place() -> None:
    step = training(j2t.fuse(layer_norm, backend="triton"), donate_argnums=0)
    params, x, target = step((array(256), array(256)), array(*X), array(*X)), array(*X), array(*X)
    for _ in range(3):
        before = {each.unsafe_buffer_pointer() for each in params}
        params = step(params, x, target)
        assert {each.unsafe_buffer_pointer() for each in params} == before


def test_twenty_steps_wait_for_nothing() -> None:
    """With donation every address comes back, so that what was captured is launched as it is."""
    counts = {}
    for name, options in (("donated", {"donate_argnums": 0}), ("kept", {})):
        with noting_kernels() as meant:
            step = training(j2t.fuse(layer_norm, backend="triton"), **options)
            params, x, target = step((array(256), array(256)), array(*X), array(*X)), array(*X), array(*X)
            with recording() as record:
                for _ in range(20):
                    params = step(params, x, target)
                jax.block_until_ready(params)
        assert not meant.problems(record.launches) and not record.refusals
        counts[name] = record.counts
    assert counts["donated"].synchronisations == counts["kept"].synchronisations == 0
    assert counts["donated"].graphs == counts["kept"].graphs == 20
    assert counts["donated"].updates == 0 < counts["kept"].updates
    assert counts["donated"].captures <= counts["kept"].captures


def test_a_training_step_keeps_its_scalars_on_the_device() -> None:
    """Loss, gradient, clipping by the norm of all gradients, and Adam: nobody waits for the norm or the loss."""
    (program,) = (each for each in CONTRACTIONS if each.name == "training_step")
    with noting_kernels() as meant:
        fused = j2t.fuse(program.fn, backend="triton", contractions="triton", strict=True)
        step = jax.jit(fused, donate_argnums=(0, 1, 2))
        *state, x, y = jax.device_put(program.args())
        *state, loss = step(*state, x, y)
        with recording() as record:
            for _ in range(5):
                *state, loss = step(*state, x, y)
            jax.block_until_ready((state, loss))
    assert not meant.problems(record.launches) and not record.refusals
    assert record.counts.synchronisations == record.counts.copies == 0


def test_modules_are_loaded_before_anything_is_captured() -> None:
    with recording() as record:
        step = training(j2t.fuse(lambda *args: layer_norm(*args), backend="triton"))
        params, x, target = (array(256), array(256)), array(*X), array(*X)
        for _ in range(3):
            params = step(params, x, target)
        jax.block_until_ready(params)
    assert record.of("capture") and record.of("module")
    assert not any(module["capturing"] for module in record.of("module"))


def test_fifty_steps_leave_nothing_behind() -> None:
    step = training(j2t.fuse(layer_norm, backend="triton"), donate_argnums=0)
    params, x, target = (array(256), array(256)), array(*X), array(*X)
    for _ in range(3):
        params = step(params, x, target)
    jax.block_until_ready(params)
    before = live()
    for _ in range(50):
        params = step(params, x, target)
    jax.block_until_ready(params)
    assert live() == before


def test_a_kernel_is_loaded_once() -> None:
    """Also for functions that JAX compiles again."""
    with recording() as record:
        for _ in range(3):
            jax.block_until_ready(j2t.fuse(lambda x: jax.numpy.sin(x) + 17, backend="triton")(array(100)))
            jax.clear_caches()
            gc.collect()
    assert len(record.launches) == 3 and record.counts.modules == 1


def test_threads_share_modules() -> None:
    """Eight of them call four programs twenty times."""
    functions = [
        j2t.fuse(lambda x, s, b, n=number: layer_norm(x, s, b) * (n + 2), backend="triton") for number in range(4)
    ]
    args = array(*X), array(256), array(256)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                jax.block_until_ready(functions[number % 4](*args))
        except BaseException as error:  # it belongs to the test, not to the thread
            errors.append(error)

    with noting_kernels() as meant, recording() as record:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert meant.launched(record.launches).total() == 160
    assert not meant.problems(record.launches) and not record.refusals
    assert record.counts.modules == 4


PROCESS = """
from tests.standin.start import started
started()
import jax, jax.numpy as jnp
import jaxpr2triton as j2t
from tests.standin.record import recording
fused = j2t.fuse(lambda x: jnp.sin(x) * 2, backend="triton", strict=True)
x = jnp.ones(1000)
with recording() as record:
    for _ in range(20):
        x = fused(x)
    jax.block_until_ready(x)
print(len(record.launches), record.refusals)
"""


def test_two_processes_at_once() -> None:
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS], cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0].splitlines()[-1] for process in processes] == ["20 []", "20 []"]
