"""Kernels that the host runs, called from what XLA's partitioner asks for.

A part of a program is lowered when the whole one is compiled already, and only what the whole one has announced before
may be called then. So that announces one callback, which is told which kernel it is for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

Call = Callable[..., tuple[np.ndarray, ...]]


class Callbacks:
    """What the one callback may be told to run."""

    def __init__(self, index: int) -> None:
        self.index = index  # among the callbacks of the whole program
        self._calls: list[Call] = []
        self._lock = threading.Lock()

    def add(self, call: Call) -> int:
        with self._lock:
            self._calls.append(call)
            return len(self._calls) - 1

    def __call__(self, number: Any, *arrays: Any) -> tuple[np.ndarray, ...]:
        return self._calls[int(np.asarray(number))](*arrays)


def reserve_callbacks(ctx: Any) -> Callbacks:
    """The callback of a program that is being lowered."""
    module = ctx.module_context
    callbacks = Callbacks(len(module.host_callbacks))
    module.add_host_callback(callbacks)
    return callbacks


_THROUGH: ContextVar[Callbacks | None] = ContextVar("through", default=None)


@contextmanager
def calling_through(callbacks: Callbacks | None) -> Iterator[None]:
    """Kernels launched inside are called through this callback."""
    token = _THROUGH.set(callbacks)
    try:
        yield
    finally:
        _THROUGH.reset(token)


def callbacks_here() -> Callbacks | None:
    return _THROUGH.get()


def lower_call(ctx: Any, callbacks: Callbacks, call: Call, args: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """A call in a part of a program."""
    number = np.int32(callbacks.add(call))
    inner = ctx.replace(avals_in=[jax.core.ShapedArray((), number.dtype), *ctx.avals_in], avals_out=list(outputs))
    lowering = jax.ffi.ffi_lowering("xla_ffi_python_cpu_callback", has_side_effect=False)
    return list(lowering(inner, mlir.ir_constant(number), *args, index=np.uint64(callbacks.index)))
