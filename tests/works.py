"""All named programs and their gradients, as what can be fused, explained and called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from tests import loop_programs, programs
from tests.programs import Program

PROGRAMS: tuple[Program, ...] = (*programs.PROGRAMS, *loop_programs.PROGRAMS)


@dataclass(frozen=True)
class Work:
    """A program, or the program and its gradient."""

    program: Program
    is_gradient: bool

    def __str__(self) -> str:
        return f"{self.program.name} {'gradient' if self.is_gradient else 'forward'}"

    def precision(self) -> AbstractContextManager[Any]:
        return self.program.precision()

    def arguments(self, seed: int = 0) -> tuple[Any, ...]:
        return self.program.args(np.random.default_rng(seed))

    def function(self, transform: Callable[..., Any] = lambda function: function) -> Callable[..., Any]:
        """The program's function is transformed, and then differentiated."""
        changed = transform(self.program.fn)
        return changed if self.program.grad is None or not self.is_gradient else both(changed, self.program.grad)


def both(function: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
    """The results, and the gradients of the sum of those that are floating-point numbers."""

    def forward_and_backward(*args: Any) -> tuple[Any, Any]:
        def of_some(*some: Any) -> Any:
            given = dict(zip(argnums, some))
            return function(*(given.get(n, arg) for n, arg in enumerate(args)))

        results, pull = jax.vjp(of_some, *(args[n] for n in argnums))
        return results, pull(jax.tree.map(cotangent, results))

    return forward_and_backward


def cotangent(result: Any) -> Any:
    if jnp.issubdtype(result.dtype, jnp.inexact):
        return jnp.ones_like(result)
    return np.zeros(result.shape, jax.dtypes.float0)


def works(names: tuple[str, ...] = ()) -> Iterator[Work]:
    """Programs whose names begin so, or all, each before its gradient; without those that are too long to be tested."""
    for program in PROGRAMS:
        if program.name.startswith(names or "") and "long" not in program.tags:
            yield Work(program, False)
            if program.grad is not None:
                yield Work(program, True)


def explained(work: Work, *args: Any) -> Counter[str]:
    """What `explain` says is launched: how often each kernel."""
    if not work.is_gradient:
        return launched_names(j2t.transpile(work.program.fn, *args).explain_json())
    facts = j2t.transpile(work.program.fn, *args, grad=work.program.grad).explain_json()
    return launched_names(facts["forward"]) + launched_names(facts["backward"])


def launched_names(facts: Mapping[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for kernel in facts["kernels"]:
        found[kernel["name"]] += kernel["launches"]
    return found
