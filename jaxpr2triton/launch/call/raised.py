"""What a kernel on the host raises, raised again by whoever called XLA.

XLA makes an error of its own out of every exception of a callback. Ctrl-C, and what this package says to its user,
keep their type:

    JaxRuntimeError: INTERNAL: CpuCallback error … KeyboardInterrupt     →     KeyboardInterrupt
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

from jaxpr2triton.errors import Jaxpr2TritonError

KEPT = 16  # of as many threads, if need be
_noted: deque[BaseException] = deque(maxlen=KEPT)  # those on their way through XLA, the last one first
_any = threading.Event()  # whether kernels were lowered for the host in this process


def noting(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The callback; what it raises is for `called`."""
    _any.set()

    @functools.wraps(callback)
    def noted(*args: Any) -> Any:
        try:
            return callback(*args)
        except (KeyboardInterrupt, Jaxpr2TritonError) as problem:
            _noted.appendleft(problem)
            raise

    return noted


def called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The results of a call that may go to XLA, and there to kernels on the host: those are waited for."""
    try:
        results = function(*args, **kwargs)
        return _waited_for(results) if _any.is_set() else results
    except jax.errors.JaxRuntimeError as problem:
        found = _arrived(str(problem))
        if found is None:
            raise
        raise found from None
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            raise
        raise interrupt.with_traceback(None) from None  # it says what was being done: how we came there tells nothing


def _arrived(text: str) -> BaseException | None:
    """The exception that XLA's error tells of."""
    for each in _noted:
        said = [type(each).__name__, *str(each).splitlines()[:1]]
        if all(part in text for part in said):
            _noted.remove(each)
            return each
    return None


def _waited_for(results: Any) -> Any:
    """At once where they are on other devices, and where a program is being traced."""
    return jax.block_until_ready(results) if all(map(_is_on_host, jax.tree.leaves(results))) else results


def _is_on_host(leaf: Any) -> bool:
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    return concrete and all(device.platform == "cpu" for device in leaf.devices())
