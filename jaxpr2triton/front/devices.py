"""A fused program over several devices: JAX's partitioner asks it how it may be split, and for the part of a device.

Only dimensions that a program treats alike everywhere are split (see `shards`); all others are made whole first. With
one device, and inside a `shard_map`, nothing of this happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from jaxpr2triton.ir.jaxprs import Closed, Jaxpr
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.shards.constraints import is_constrained
from jaxpr2triton.shards.flow import Classes, Parts, can_split
from jaxpr2triton.shards.local import opened, run_local
from jaxpr2triton.shards.walks import Dim, How

Value = Any
Kinds = list[tuple[Dim | None, ...]]  # the class of each dimension of each array
Axes = dict[Dim, tuple[str, ...]]  # of the mesh, by the class that is split over them
Tell = Callable[[Exception], AbstractContextManager[None]]
Run = Callable[[Closed, Sequence[Value]], list[Value]]


@dataclass(frozen=True)
class Splittable:
    """A program of which something can be split."""

    program: Closed
    classes: Classes
    inputs: Kinds
    outputs: Kinds

    @property
    def jaxpr(self) -> Jaxpr:
        return self.program.jaxpr

    @property
    def rule(self) -> tuple[str, tuple[str, ...]]:
        """In the notation of `custom_partitioning`: `b d0, d1 -> b d2`, and the names of what has to be whole."""
        names: dict[Dim, str] = {}
        whole: list[str] = []

        def name(kind: Dim | None) -> str:
            if kind is not None:
                return names.setdefault(kind, f"s{len(names)}")
            whole.append(f"w{len(whole)}")
            return whole[-1]

        sides = [[" ".join(map(name, kinds)) for kinds in side] for side in (self.inputs, self.outputs)]
        return " -> ".join(", ".join(side) for side in sides), tuple(whole)


@dataclass(frozen=True)
class Constrained:
    """A program that says itself how something is to be shared out."""

    jaxpr: Jaxpr


def splittable(closed: Closed) -> Splittable | Constrained | None:
    """None where no dimension of what comes in or goes out can be split."""
    if closed.effects or not closed.in_avals or not closed.out_avals:
        return None
    plain = opened(closed)
    jaxpr = plain.jaxpr
    if plain.consts:
        return None
    if is_constrained(jaxpr):
        return Constrained(jaxpr)
    classes = Classes(jaxpr)
    sides = [[_with_words(atom, classes.of(atom)) for atom in atoms] for atoms in (jaxpr.invars, jaxpr.outvars)]
    kinds = {kind for side in sides for each in side for kind in each if kind is not None}
    good = {kind for kind in kinds if can_split(jaxpr, classes, frozenset({kind}))}
    if not good:
        return None
    inputs, outputs = ([tuple(k if k in good else None for k in each) for each in side] for side in sides)
    return Splittable(plain, classes, inputs, outputs)


def over_devices(found: Splittable, args: Sequence[Value], whole: Run, tell: Tell) -> list[Value]:
    """The outputs, by `whole` on each device's part; traceable while a program is lowered for several devices.

    Where a mistake of ours keeps it from the part of a device, `tell` is told, and every device runs all of it.
    """

    def program(*args: Value) -> tuple[Value, ...]:
        return tuple(map(_words, run(found.program, *_keys(found, args))))

    def partition(mesh: Any, arg_shapes: Any, result_shapes: Any) -> Any:
        axes = _chosen(found, mesh, [(s.shape, s.sharding) for s in (*arg_shapes, *result_shapes)])
        try:
            part = _part(found, mesh, axes, lambda program, operands: run(program, *operands))
            given = zip(arg_shapes, map(spec_of(mesh, axes), found.inputs))
            types = [jax.ShapeDtypeStruct(sharding.shard_shape(s.shape), s.dtype) for s, sharding in given]
            jax.make_jaxpr(part, axis_env=list(mesh.shape.items()))(*types)
        except Exception as problem:
            with tell(problem):
                axes = {}
        shardings = [tuple(map(spec_of(mesh, axes), kinds)) for kinds in (found.outputs, found.inputs)]
        return mesh, _part(found, mesh, axes, whole), *shardings

    rule, needed = found.rule
    call = custom_partitioning(program)
    call.def_partition(partition, sharding_rule=rule, need_replication_factors=needed)
    results = call(*map(_words, args))
    return [_as(atom.aval, value) for atom, value in zip(found.jaxpr.outvars, results)]


def _part(found: Splittable, mesh: Any, axes: Axes, go: Run) -> Callable[..., tuple[Value, ...]]:
    """What one device runs, if the classes are split over these axes."""

    def meet(values: Sequence[Value], parts: Parts, how: How) -> Sequence[Value]:
        names = tuple(name for kind in parts for name in axes[kind])
        return {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}[how](tuple(values), names)

    def part(*args: Value) -> tuple[Value, ...]:
        split = {kind: _count(mesh, names) for kind, names in axes.items()}
        indices = {kind: lax.axis_index(names) for kind, names in axes.items()}
        results = run_local(found.jaxpr, found.classes, split, indices, _keys(found, args), go, meet)
        return tuple(map(_words, results))

    return part


def spec_of(mesh: Any, axes: Axes) -> Callable[[tuple[Dim | None, ...]], NamedSharding]:
    """How an array with dimensions of these classes is sharded."""
    return lambda kinds: NamedSharding(mesh, PartitionSpec(*(axes.get(kind) if kind else None for kind in kinds)))


def _words(value: Value) -> Value:
    """Keys are split as the words that they are made of."""
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def _as(aval: Any, value: Value) -> Value:
    if not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return value
    return jax.random.wrap_key_data(value, impl=aval.dtype._impl.name)


def _keys(found: Splittable, args: Sequence[Value]) -> list[Value]:
    return [_as(var.aval, value) for var, value in zip(found.jaxpr.invars, args)]


def _with_words(atom: Any, kinds: tuple[Dim | None, ...]) -> tuple[Dim | None, ...]:
    return (*kinds, None) if jnp.issubdtype(atom.aval.dtype, jax.dtypes.prng_key) else kinds


def _chosen(found: Splittable, mesh: Any, given: Sequence[tuple[Any, Any]]) -> Axes:
    """The axes of the mesh that each class is split over: as the operands are, and then as the results should be."""
    chosen: dict[Dim, tuple[str, ...]] = {}
    for kinds, (shape, sharding) in zip([*found.inputs, *found.outputs], given):
        if not isinstance(sharding, NamedSharding):
            continue
        for kind, size, entry in zip(kinds, shape, sharding.spec):
            names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
            taken = {name for other in chosen.values() for name in other}
            if kind is None or kind in chosen or not names or taken & set(names) or size % _count(mesh, names):
                continue
            if can_split(found.jaxpr, found.classes, frozenset({*chosen, kind})):
                chosen[kind] = names
    return chosen


def _count(mesh: Any, names: Sequence[str]) -> int:
    count = 1
    for name in names:
        count *= mesh.shape[name]
    return count
