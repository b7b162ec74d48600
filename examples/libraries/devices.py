"""A batch over several devices: collectives beside those of `jax.jit`, values, and where results lie.

Devices are made up by JAX on any computer. What has a batch is split along it, all else is on every device:

    gru, training step                 1, under `jax.jit` 2
    fitted_by_adam, training step      2, under `jax.jit` 1 and 1 in each step of a loop
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from examples.libraries.example import Example
from jaxpr2triton import fuse

COLLECTIVE = re.compile(r" (all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all)(?:-start)?\(")
COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) \(.*\{$")
STEPS = re.compile(r"(?:body|condition)=%?([\w.\-]+)")
CALLED = re.compile(r"(?:body|condition|calls|to_apply|\w+_computations?)=\{?((?:%?[\w.\-]+(?:, )?)+)")
RATE = 0.01
ALLOWED = 3e-4


@dataclass(frozen=True)
class Collectives:
    """Those of a compiled program."""

    once: int
    in_steps: int  # in each step of a loop

    def __str__(self) -> str:
        return f"{self.once}" + (f" and {self.in_steps} in each step of a loop" if self.in_steps else "")

    def few(self, others: Collectives) -> bool:
        """Whether no more of them run than of others."""
        if self.in_steps or not others.in_steps:
            return self.in_steps <= others.in_steps and self.once + self.in_steps <= others.once + others.in_steps
        return True


def collectives_of(text: str) -> Collectives:
    """Of the text of a compiled program."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if start := COMPUTATION.match(line):
            lines = found.setdefault(start[1], [])
        lines.append(line)
    inside: set[str] = set()
    pending = STEPS.findall(text)
    while pending:
        name = pending.pop()
        if name not in inside:
            inside.add(name)
            named = (names for line in found.get(name, ()) for names in CALLED.findall(line))
            pending += [each.strip("% ") for names in named for each in names.split(",")]
    counts = {name: sum(bool(COLLECTIVE.search(line)) for line in lines) for name, lines in found.items()}
    in_steps = sum(count for name, count in counts.items() if name in inside)
    return Collectives(sum(counts.values()) - in_steps, in_steps)


@dataclass(frozen=True)
class Split:
    """One function over several devices."""

    library: str
    what: str
    ours: Collectives
    theirs: Collectives
    error: float  # the largest, of numbers of size 1
    lies_alike: bool  # whether each result lies as under `jax.jit`

    allowed: float

    @property
    def good(self) -> bool:
        return not self.faults

    @property
    def faults(self) -> list[str]:
        faults = [] if self.ours.few(self.theirs) else ["more"]
        faults += [] if self.lies_alike else ["lies elsewhere"]
        return faults + ([] if self.error <= self.allowed else [f"wrong by {self.error:.1e}"])

    def __str__(self) -> str:
        said = f"{self.library}.{self.what}: collectives {self.ours}, under `jax.jit` {self.theirs}"
        return "; ".join([said, *(fault.upper() for fault in self.faults)])


def several(count: int) -> None:
    """Let there be so many devices; before JAX has looked for any."""
    jax.config.update("jax_num_cpu_devices", count)


def splits_of(library: str, example: Example) -> Iterator[Split]:
    """Forward, the gradient, and a training step if something that is no batch can be trained."""
    args = tuple(example.arguments(jax.random.key(0)))
    mesh = jax.make_mesh((len(jax.devices()),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = [PartitionSpec("batch") if number in example.batched else PartitionSpec() for number in range(len(args))]
    placed = [jax.device_put(arg, NamedSharding(mesh, spec)) for arg, spec in zip(args, specs)]
    for what, function in _functions(example, args):
        theirs = jax.jit(function).lower(*placed).compile()
        ours = jax.jit(fuse(function, backend="interpret")).lower(*placed).compile()
        wanted, found = (jax.tree.leaves(each(*placed)) for each in (theirs, ours))
        yield Split(
            library,
            what,
            *(collectives_of(each.as_text()) for each in (ours, theirs)),
            error=max(map(_error, found, wanted)),
            lies_alike=all(a.sharding.is_equivalent_to(b.sharding, a.ndim) for a, b in zip(found, wanted)),
            allowed=example.allowed or ALLOWED,
        )


def _functions(example: Example, args: Sequence[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    function = example.function
    yield example.name, function
    if not example.gradient:
        return

    def loss(*args: Any) -> jax.Array:
        results = jax.tree.leaves(function(*args))
        return sum((jnp.mean(x**2) for x in results if jnp.issubdtype(x.dtype, jnp.inexact)), jnp.float32(0))

    floating = [n for n, arg in enumerate(args) if all(map(_is_floating, jax.tree.leaves(arg)))]
    yield f"{example.name}, gradient", jax.grad(loss, floating)
    trained = [n for n in floating if n not in example.batched]
    if not trained:
        return

    def step(*args: Any) -> Any:
        value, slopes = jax.value_and_grad(loss, trained)(*args)
        return value, [jax.tree.map(lambda p, g: p - RATE * g, args[n], g) for n, g in zip(trained, slopes)]

    yield f"{example.name}, training step", step


def _is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact))


def _error(found: jax.Array, wanted: jax.Array) -> float:
    if jnp.issubdtype(wanted.dtype, jax.dtypes.prng_key):
        found, wanted = map(jax.random.key_data, (found, wanted))
    one, other = (np.asarray(x).astype(np.float64) for x in (found, wanted))
    scale = max(float(np.abs(other).max(initial=0.0)), 1.0)
    return float(np.abs(one - other).max(initial=0.0)) / scale
