"""Ctrl-C while a kernel runs in Triton's interpreter.

XLA makes an error of its own out of every exception of a callback. Whoever called XLA turns that one back:

    JaxRuntimeError: INTERNAL: CpuCallback error … KeyboardInterrupt     →     KeyboardInterrupt
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

_noted: list[KeyboardInterrupt] = []  # those on their way through XLA


@contextlib.contextmanager
def noting_interrupts() -> Iterator[None]:
    """Inside of a callback."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        _noted.append(interrupt)
        raise


@contextlib.contextmanager
def delivering_interrupts() -> Iterator[None]:
    """Around a call of XLA that waits for its results."""
    _noted.clear()
    try:
        yield
    except jax.errors.JaxRuntimeError as problem:
        if not _noted:
            raise
        _noted.clear()
        raise KeyboardInterrupt from problem


def _of_the_jitted(name: str) -> property:
    return property(lambda self: getattr(self._jitted, name))


class Interruptible:
    """A function of `jax.jit`, which it is in all respects but one: its calls wait for their results, and Ctrl-C while
    they do is a `KeyboardInterrupt`.
    """

    def __init__(self, jitted: Any) -> None:
        functools.update_wrapper(self, jitted)
        self._jitted = jitted

    # Since Python 3.12 `isinstance` looks for these without `__getattr__`; in `vars(self)`, `functools.wraps` would
    # copy them to functions that are made of this one.
    trace, lower, eval_shape, clear_cache = map(_of_the_jitted, ("trace", "lower", "eval_shape", "clear_cache"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with delivering_interrupts():
            return waited_for(self._jitted(*args, **kwargs))

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)


def waited_for(results: Any) -> Any:
    """The results, when they are there; but at once on other devices, and where a program is being traced."""
    return jax.block_until_ready(results) if all(map(_is_on_host, jax.tree.leaves(results))) else results


def _is_on_host(leaf: Any) -> bool:
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    return concrete and all(device.platform == "cpu" for device in leaf.devices())
