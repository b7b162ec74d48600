"""What is derived from a program: its derivative, its transpose, its batch, … each made once in a process."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.extend.core as jex

from jaxpr2triton._compat import user_frame
from jaxpr2triton.autodiff import split
from jaxpr2triton.autodiff.stretches import in_stretches
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.roles import Checkpoint
from jaxpr2triton.normalize.arrays.associative import join_parts
from jaxpr2triton.normalize.arrays.structural import STRUCTURAL
from jaxpr2triton.normalize.loops.recompute import recompute_stored
from jaxpr2triton.normalize.numbers.round_compared import round_compared
from jaxpr2triton.progress import LOGGER
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

FREE = frozenset({"iota", "name", "copy_p", *STRUCTURAL, *DECOMPOSITIONS})  # no rows, but nothing more than those have
Made = TypeVar("Made")

_DERIVED: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
_DERIVED_LOCK = threading.Lock()


def derived(jaxpr: Any, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
    """What was made from this jaxpr before. Two threads may both make it, but both get the same one.

    What has captured tracers is made again each time, as it must not outlive their trace.
    """
    with _DERIVED_LOCK:
        table = _DERIVED.setdefault(jaxpr, {})
    if key in table:
        LOGGER.debug("%s: the program was made before", key[0])
    else:
        before = time.perf_counter()
        made = make()
        LOGGER.debug("%s: made a program in %.2f s", key[0], time.perf_counter() - before)
        if any(isinstance(value, jax.core.Tracer) for value in getattr(made, "captured", ())):
            return made
        table.setdefault(key, made)
    return table[key]


def recomputable(eqn: Any) -> bool:
    """Elementwise and index work costs nothing to do twice; a call does if all of its body does."""
    bodies = list(jex.jaxprs_in_params(eqn.params))
    if bodies:
        return eqn.primitive.name.startswith("custom_") and all(recomputable(e) for body in bodies for e in body.eqns)
    name = eqn.primitive.name
    return name in FREE or isinstance(TABLE.get(name), Pointwise | Indexing)


def split_program(jaxpr: Any, nonzero: tuple[bool, ...], checkpoint: Checkpoint = None) -> split.Split:
    """The forward and the linear program of a derivative along the marked inputs; in stretches if that keeps less."""

    def make() -> split.Split:
        scanned = _with_scans(jaxpr)
        plain = split.linearize(scanned, nonzero, recomputable, _prepare)
        written = in_stretches(scanned, nonzero, checkpoint)
        if written is scanned:
            return plain
        found = split.linearize(written, nonzero, recomputable, _prepare)
        return found if found.nbytes < plain.nbytes else plain

    return derived(jaxpr, ("linearize", nonzero, checkpoint), make)


def _with_scans(jaxpr: Any) -> Any:
    """Associative scans are found before JAX differentiates their recursions."""
    flat = flatten(jaxpr)
    joined = join_parts(flat)
    return jaxpr if joined is flat else joined


def _prepare(forward: Any, num_outputs: int) -> Any:
    """Loops do not store what is better computed again, and both programs round what they compare alike."""
    return round_compared(recompute_stored(forward, num_outputs, recomputable, flatten))


def transposed_program(jaxpr: Any, linear: tuple[bool, ...], nonzero: tuple[bool, ...]) -> split.Transposed:
    """The backward program."""
    key = ("transpose", linear, nonzero)
    with pointing_at_loops(jaxpr):
        return derived(jaxpr, key, lambda: split.transpose(jaxpr, linear, nonzero))


@contextlib.contextmanager
def pointing_at_loops(jaxpr: Any) -> Iterator[None]:
    """JAX says that it cannot go back through a `while_loop`, but not through which one."""
    try:
        yield
    except ValueError as problem:
        if "while_loop" not in str(problem):
            raise
        frames = [user_frame(eqn) for eqn in equations(jaxpr.jaxpr) if eqn.primitive.name == "while"]
        for frame in dict.fromkeys(filter(None, frames)):
            problem.add_note(f"  at   {frame}")
        problem.add_note("  try  a `lax.scan` as long as the loop may ever run, or a `fori_loop` with static bounds")
        raise
