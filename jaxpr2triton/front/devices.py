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
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpr2triton._compat import any_device, tiles_of, wrapped_keys
from jaxpr2triton.ir.jaxprs import Atom, Closed, Jaxpr, Var
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.normalize.foreign import call_implementations
from jaxpr2triton.shards.constraints import is_cut, why_nowhere_split
from jaxpr2triton.shards.flow import Classes, Parts, can_split
from jaxpr2triton.shards.local import opened, run_local
from jaxpr2triton.shards.meshes import Tiles, common_axes
from jaxpr2triton.shards.rule import Rule, handed_on, is_key, rule_of
from jaxpr2triton.shards.walks import CONSTRAINTS, Dim, How, shape_of

Value = Any
Kinds = list[tuple[Dim | None, ...]]  # the class of each dimension of each array
Axes = dict[Dim, tuple[str, ...]]  # of the mesh, by the class that is split over them
Tell = Callable[[Exception], AbstractContextManager[None]]
Run = Callable[[Closed, Sequence[Value]], list[Value]]


@dataclass(frozen=True)
class Splittable:
    """A program of which something can be split."""

    program: Closed
    held: Sequence[Value]  # its leading operands
    classes: Classes
    inputs: Kinds
    outputs: Kinds

    @property
    def jaxpr(self) -> Jaxpr:
        return self.program.jaxpr

    @property
    def rule(self) -> Rule:
        good = {kind for side in (self.inputs, self.outputs) for kinds in side for kind in kinds if kind is not None}
        return rule_of(self.jaxpr, self.classes, good)


@dataclass(frozen=True)
class Cut:
    """A program in which XLA does something on all devices."""

    jaxpr: Jaxpr
    held: Sequence[Value]  # its leading operands


def splittable(closed: Closed) -> Splittable | Cut | None:
    """None where no dimension of what comes in or goes out can be split."""
    plain, held = opened(call_implementations(closed, CONSTRAINTS))  # nothing is differentiated any more
    jaxpr = plain.jaxpr
    if not jaxpr.invars or why_nowhere_split(plain):
        return None
    if is_cut(jaxpr):
        return Cut(jaxpr, held)
    classes = Classes(jaxpr)
    sides = [[_with_words(atom, classes.of(atom)) for atom in atoms] for atoms in (jaxpr.invars, jaxpr.outvars)]
    kinds = {kind for side in sides for each in side for kind in each if kind is not None}
    good = {kind for kind in kinds if can_split(jaxpr, classes, frozenset({kind}))}
    if not good and not handed_on(jaxpr, classes):
        return None
    inputs, outputs = ([tuple(k if k in good else None for k in each) for each in side] for side in sides)
    return Splittable(plain, held, classes, inputs, outputs)


def over_devices(found: Splittable, args: Sequence[Value], count: int, whole: Run, tell: Tell) -> list[Value]:
    """The outputs, by `whole` on each device's part; traceable while a program is lowered for `count` devices.

    Where a mistake of ours keeps it from the part of a device, `tell` is told, and every device runs all of it.
    """

    def program(*args: Value) -> tuple[Value, ...]:
        return tuple(map(_words, run(found.program, *_keys(found, args))))

    def partition(_: Any, arg_shapes: Any, result_shapes: Any) -> Any:
        mesh, given = _laid_out(count, (*arg_shapes, *result_shapes))
        axes = _chosen(found, mesh, given)
        try:
            part = _part(found, mesh, axes, lambda program, operands: run(program, *operands))
            parts = zip(arg_shapes, map(spec_of(mesh, axes), found.inputs))
            types = [jax.ShapeDtypeStruct(sharding.shard_shape(s.shape), s.dtype) for s, sharding in parts]
            jax.make_jaxpr(part, axis_env=list(mesh.shape.items()))(*types)
        except Exception as problem:
            with tell(problem):
                axes = {}
        shardings = [tuple(map(spec_of(mesh, axes), kinds)) for kinds in (found.outputs, found.inputs)]
        return mesh, _part(found, mesh, axes, whole), *shardings

    def infer(_: Any, arg_shapes: Any, result_shapes: Any) -> Any:  # XLA's older partitioner has no rules
        mesh, given = _laid_out(count, arg_shapes)
        return tuple(map(spec_of(mesh, _chosen(found, mesh, given)), found.outputs))

    rule = found.rule
    call = custom_partitioning(program)
    call.def_partition(
        partition,
        infer_sharding_from_operands=infer,
        decode_shardings=False,
        sharding_rule=rule.text,
        need_replication_factors=rule.whole,
        **rule.sizes,
    )
    results = call(*map(_words, [*found.held, *args]))
    return [_as(atom.aval, value) for atom, value in zip(found.jaxpr.outvars, results)]


def lying_as_before(jaxpr: Jaxpr, args: Sequence[Value], results: Sequence[Value], count: int) -> list[Value]:
    """The results of a program that is cut; where one has a dimension of an argument, both are split alike.

    Along what has to be whole, a loop hands on nothing of how its operands lie, and XLA's own equations behind it
    would leave the result whole. Under `jax.jit` it lies as that argument does.
    """
    classes = Classes(jaxpr)
    given = [(var, arg) for var, arg in zip(jaxpr.invars, args) if not is_key(var.aval)]

    def is_held(kind: Dim) -> bool:
        return kind not in classes.why and not can_split(jaxpr, classes, frozenset({kind}))

    def as_before(atom: Atom, result: Value) -> Value:
        if not isinstance(atom, Var) or is_key(atom.aval):
            return result
        own = _factors(classes, atom, "a")
        held = {factor for factor, kind in zip(own, classes.all_of(atom)) if is_held(kind)}
        for var, arg in given:
            theirs = _factors(classes, var, "b")
            if var is not atom and held & {*theirs}:
                return _alike(result, arg, own, theirs, count)
        return result

    return list(map(as_before, jaxpr.outvars, results))


def _factors(classes: Classes, var: Var, others: str) -> list[str]:
    """A name for each dimension: that of its class and size, or one of its own."""
    kinds = classes.all_of(var)
    return [
        f"{others}{d}" if size < 2 or kinds.index(kind) < d else f"s{id(kind[0])}_{kind[1]}_{size}"
        for d, (kind, size) in enumerate(zip(kinds, shape_of(var)))
    ]


def _alike(result: Value, arg: Value, own: Sequence[str], theirs: Sequence[str], count: int) -> Value:
    """The result; XLA is told that it lies along these factors as the argument does."""

    def partition(_: Any, arg_shapes: Any, result_shapes: Any) -> Any:
        mesh, given = _laid_out(count, (*arg_shapes, result_shapes))
        _, second, last = (NamedSharding(mesh, PartitionSpec(*(names or None for names in each))) for each in given)
        return mesh, lambda result, arg: result, last, (last, second)

    def infer(_: Any, arg_shapes: Any, result_shapes: Any) -> Any:  # XLA's older partitioner has no rules
        mesh, (_, given) = _laid_out(count, arg_shapes)
        known = dict(zip(theirs, given))
        return NamedSharding(mesh, PartitionSpec(*(known.get(factor) or None for factor in own)))

    call = custom_partitioning(lambda result, arg: result)
    call.def_partition(
        partition,
        infer_sharding_from_operands=infer,
        decode_shardings=False,
        sharding_rule=f"{' '.join(own)}, {' '.join(theirs)} -> {' '.join(own)}",
    )
    return call(result, arg)


def _part(found: Splittable, mesh: Any, axes: Axes, go: Run) -> Callable[..., tuple[Value, ...]]:
    """What one device runs, if the classes are split over these axes."""

    def meet(values: Sequence[Value], parts: Parts, how: How) -> Sequence[Value]:
        names = tuple(name for kind in parts for name in axes[kind])
        numbers = tuple(value.astype(np.int32) if value.dtype == np.bool_ else value for value in values)
        together = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}[how](numbers, names)
        return [each.astype(value.dtype) for each, value in zip(together, values)]

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
    return jax.random.key_data(value) if is_key(value) else value


def _as(aval: Any, value: Value) -> Value:
    return wrapped_keys(value, aval.dtype) if is_key(aval) else value


def _keys(found: Splittable, args: Sequence[Value]) -> list[Value]:
    return [_as(var.aval, value) for var, value in zip(found.jaxpr.invars, args)]


def _with_words(atom: Any, kinds: tuple[Dim | None, ...]) -> tuple[Dim | None, ...]:
    return (*kinds, None) if is_key(atom.aval) else kinds


def _laid_out(count: int, arrays: Sequence[Any]) -> tuple[Mesh, list[list[tuple[str, ...]]]]:
    """A mesh that all arrays are sharded over, and for each the axes of its dimensions."""
    tiles = [tiles_of(array.sharding, len(array.shape)) for array in arrays]
    sizes, specs = common_axes(count, [None if each is None else Tiles(*each) for each in tiles])
    names = [f"devices_{axis}" for axis in range(len(sizes))]
    mesh = Mesh(np.full(sizes, any_device()), names)
    return mesh, [[tuple(names[n] for n in dim) for dim in spec] for spec in specs]


def _chosen(found: Splittable, mesh: Any, given: Sequence[list[tuple[str, ...]]]) -> Axes:
    """The axes of the mesh that each class is split over: as the operands are, and then as the results should be."""
    chosen: dict[Dim, tuple[str, ...]] = {}
    for kinds, spec in zip([*found.inputs, *found.outputs], given):
        for kind, names in zip(kinds, spec):
            taken = {name for other in chosen.values() for name in other}
            if kind is None or kind in chosen or not names or taken & set(names):
                continue
            divides = found.classes.granule[kind] % _count(mesh, names) == 0
            if divides and can_split(found.jaxpr, found.classes, frozenset({*chosen, kind})):
                chosen[kind] = names
    return chosen


def _count(mesh: Any, names: Sequence[str]) -> int:
    count = 1
    for name in names:
        count *= mesh.shape[name]
    return count
