"""What there is to measure: all named programs, small ones to be compared, and at the sizes that people run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench import contractions, windows
from bench.device import large
from tests import contraction_programs, loop_programs, programs, window_programs
from tests.contraction import widened
from tests.works import both, works

FORWARD, GRADIENTS = "forward", "with gradients"
SMALL, FULL = "small", "full"
DRAWN = 200  # programs
ENDLESS = ("logistic_map", "nuts")  # millions of launches by XLA, which is not asked to run them
NARROW, WIDE, SINGLE = 3e-2, 1e-10, 2e-4  # of the largest value: the rounding of long sums adds up
TF32 = 2e-2  # … and where f32 is multiplied with ten bits, as XLA does where nobody says otherwise


@dataclass(frozen=True)
class Case:
    """A program and its arguments; what is timed, or compared with JAX on the CPU."""

    family: str
    name: str
    kind: str
    sizes: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    allowed: float | None  # of errors; None where they grow from step to step
    context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    reference: Callable[[Any], Any] = lambda arguments: arguments  # what the program is given on the CPU
    others: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    published: float | None = None
    source: str = ""
    seconds: float = 0.0  # that `jax.jit` takes for a call, about, where that is long

    @property
    def place(self) -> tuple[str, str, str, str]:
        return (self.family, self.name, self.kind, self.sizes)

    @property
    def endless(self) -> bool:
        return self.name in ENDLESS

    @functools.cached_property
    def shapes(self) -> tuple[Any, ...]:
        """The sizes of its arguments; of large ones nothing is drawn for it."""
        told = getattr(self.arguments, "sizes", None)
        found: tuple[Any, ...] = jax.eval_shape(self.arguments) if told is None else told()
        return found


def small_cases() -> Iterator[Case]:
    """To be compared."""
    for work in works():
        family = "loops" if isinstance(work.program, loop_programs.LoopProgram) else "rest"
        kind = GRADIENTS if work.is_gradient else FORWARD
        arguments = functools.partial(_arrays, work.arguments)
        tags = work.program.tags
        allowed = NARROW if "low" in tags else WIDE if "x64" in tags else SINGLE
        found = None if "chaotic" in tags else allowed
        yield Case(family, work.program.name, kind, SMALL, work.function(), arguments, found, work.precision)
    for contraction in contraction_programs.PROGRAMS:
        kind = FORWARD if contraction.grad is None else GRADIENTS
        place, allowed = ("contractions", contraction.name, kind, SMALL), max(SINGLE, contraction.tolerance)
        yield Case(*place, contraction.whole(), contraction.args, allowed, reference=widest)
    for window in window_programs.PROGRAMS:
        arguments = functools.partial(_arrays, functools.partial(_first, window))
        yield Case("windows", window.name, GRADIENTS, SMALL, window.with_gradients(), arguments, SINGLE)
    # two of them may have become the same program
    small = {(each.group, f"{each.name}, {each.sizes}", each.kind, SMALL): each for each in large.SMALL}
    for place, each in small.items():
        yield Case(*place, each.function, each.arguments, None if _is_chaotic(each) else SINGLE)


def _first(window: window_programs.WindowProgram) -> tuple[Any, ...]:
    return window.args(np.random.default_rng(0))


def widest(arguments: Any) -> Any:
    """The same with floats of 32 bits where they have fewer."""
    return jax.tree.map(widened, arguments)


def _arrays(made: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    return jax.tree.map(jnp.asarray, made())


def timed_cases() -> Iterator[Case]:
    """To be timed; loops come first, because they gain the most and change the most."""
    for loop in loop_programs.PROGRAMS:
        if loop.bench_args is not None:
            yield from _of(replace(loop, fn=loop.bench_fn), "loops")
    yield from _large_cases()
    for contraction in map(contractions.at_full_size, contraction_programs.PROGRAMS):
        kind = FORWARD if contraction.grad is None else GRADIENTS
        yield Case("contractions", contraction.name, kind, FULL, contraction.whole(), contraction.args, TF32)
    for title, fn, sizes in windows.everything():
        name, kind = title.split(": ")
        arguments = functools.partial(jax.tree.map, _drawn, sizes)
        yield Case("windows", name, kind, FULL, fn, arguments, TF32)
    for program in programs.PROGRAMS:
        if program.bench_args is not None:
            yield from _of(program, "rest")


def _of(program: programs.Program, family: str) -> Iterator[Case]:
    def made() -> tuple[Any, ...]:
        assert program.bench_args is not None
        return program.bench_args(np.random.default_rng(0))

    arguments = functools.partial(_arrays, made)
    allowed = None if "chaotic" in program.tags else NARROW if "low" in program.tags else TF32
    whole = {FORWARD: program.fn}
    if program.grad is not None:
        whole[GRADIENTS] = both(program.fn, program.grad)
    for kind, function in whole.items():
        yield Case(family, program.name, kind, FULL, function, arguments, allowed, program.precision)


def _large_cases() -> Iterator[Case]:
    for each in large.LARGE:
        place, allowed = (each.group, each.name, each.kind, each.sizes or FULL), None if _is_chaotic(each) else NARROW
        found = Case(*place, each.function, each.arguments, allowed, others=each.others)
        yield replace(found, published=each.published, source=each.source, seconds=each.jit_seconds)


def _is_chaotic(each: large.Large) -> bool:
    """Rounding decides where such a system goes, and which steps are taken on the way."""
    return each.name.startswith("Lorenz")


def _drawn(size: jax.ShapeDtypeStruct) -> jax.Array:
    """Positive, as variances are."""
    return jnp.asarray(np.random.default_rng(0).uniform(0.1, 0.5, size.shape), size.dtype)
