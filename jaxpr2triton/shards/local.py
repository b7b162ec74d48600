"""What one device runs: the program for its part of what is split, cut where the devices have to meet.

s = reduce_sum[axes=(0,)] x; y = x / s        x:f32[8,4] split by 4 along its first dimension
    →   s' = reduce_sum[axes=(0,)] x          x:f32[2,4]        the first section
        s  = psum s'                          XLA's, all of a cut at once
        y  = x / s                                              the second section
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import (
    CALLS,
    bind_with,
    called_jaxpr,
    on_one_device,
    operands_of_call,
    scan_counts_of,
    source_of,
)
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.evaluate import outputs, read, variables
from jaxpr2triton.ir.hoisting import hoist
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Var
from jaxpr2triton.ir.scans import apart, scanned
from jaxpr2triton.ir.tracing import again, retrace, trace
from jaxpr2triton.shards.constraints import inputs_of
from jaxpr2triton.shards.flow import NONE, Classes, Flow, Parts, Path, bodies_of
from jaxpr2triton.shards.walks import CONSTRAINTS, CUT, Dim, How, shape_of

Value = Any
Split = Mapping[Dim, int | Fraction]  # into how many parts
Run = Callable[[Closed, Sequence[Value]], list[Value]]  # a program on one device
Meet = Callable[[Sequence[Value], Parts, How], Sequence[Value]]  # over the devices


def opened(closed: Closed) -> tuple[Closed, list[Value]]:
    """The program without calls, but in its loops, and what it held: its leading operands.

    Nothing is differentiated any more.
    """
    program, held = hoist(closed, calls=CALLS)

    def inline(eqn: Eqn, values: list[Value]) -> list[Value] | None:
        called = called_jaxpr(eqn.primitive.name, eqn.params)
        if called is None:
            return None
        body, consts = called
        with source_of(eqn):
            return outputs(body, consts, operands_of_call(eqn.primitive.name, eqn.params, values), inline)

    return again(program, lambda *args: outputs(program.jaxpr, program.consts, args, inline)), held


def run_local(
    jaxpr: Jaxpr,
    classes: Classes,
    split: Split,
    indices: Mapping[Dim, Value],
    args: Sequence[Value],
    go: Run,
    meet: Meet,
) -> list[Value]:
    """The outputs on one device, which has the part at `indices` of each class that is split."""
    flow = Flow(classes, frozenset(split))
    kinds = list(split)
    where = [jnp.asarray(indices[kind], jnp.int32) for kind in kinds]
    env: dict[Var, Value] = dict(zip(jaxpr.invars, args))
    for section in _sections(jaxpr, flow):

        def program(*operands: Value, section: Section = section) -> list[Value]:
            inside = dict(zip(section.needed, operands[len(kinds) :]))
            Part(flow, split, dict(zip(kinds, operands))).run(section.eqns, inside, ())
            return [inside[var] for var in section.made]

        if section.made:
            operands = [*where, *(env[var] for var in section.needed)]
            env.update(zip(section.made, go(retrace(program, *map(jax.typeof, operands)), operands)))
        for (parts, how), together in section.meetings.items():
            env.update(zip(together, meet([env[var] for var in together], parts, how)))
    return [read(env, atom) for atom in jaxpr.outvars]


@dataclass(frozen=True)
class Section:
    eqns: list[tuple[int, Eqn]]
    needed: list[Var]
    made: list[Var]
    meetings: dict[tuple[Parts, How], list[Var]]  # what is put together afterwards


@dataclass
class _Staged:
    """In which section each equation runs, and what is a part of a sum until that section ends."""

    jaxpr: Jaxpr
    stage: dict[Var, int]
    parts: dict[Var, tuple[Parts, How]]
    free: dict[Var, tuple[int, Eqn]]  # what is made of nothing is made wherever it is read
    eqns: dict[int, list[tuple[int, Eqn]]]


def _staged(jaxpr: Jaxpr, flow: Flow) -> _Staged:
    staged = _Staged(jaxpr, dict.fromkeys(jaxpr.invars, 0), {}, {}, {0: []})
    for number, eqn in enumerate(jaxpr.eqns):
        operands = [var for var in variables(eqn.invars) if var not in staged.free]
        at = max((staged.stage[var] + (var in staged.parts) for var in operands), default=0)
        after = flow.after(eqn, [NONE] * len(eqn.invars), (number,), inside=False)
        staged.eqns.setdefault(at, []).append((number, eqn))
        staged.stage.update(dict.fromkeys(eqn.outvars, at))
        staged.parts.update((var, (each, flow.how(eqn))) for var, each in zip(eqn.outvars, after) if each)
        if not operands and not any(after) and not eqn.effects:
            staged.free.update(dict.fromkeys(eqn.outvars, (number, eqn)))
    return staged


def _sections(jaxpr: Jaxpr, flow: Flow) -> Iterator[Section]:
    staged = _staged(jaxpr, flow)
    results = set(variables(jaxpr.outvars))
    for at, own in sorted(staged.eqns.items()):
        eqns = _with_free(own, staged.free)
        later = {var for n, each in staged.eqns.items() if n != at for _, eqn in each for var in variables(eqn.invars)}
        wanted = results | (later - set(staged.free))
        made = [var for _, eqn in own for var in eqn.outvars if var in wanted]
        meetings: dict[tuple[Parts, How], list[Var]] = {}
        for var in made:
            if var in staged.parts:
                meetings.setdefault(staged.parts[var], []).append(var)
        yield Section(eqns, inputs_of([eqn for _, eqn in eqns]), made, meetings)


def _with_free(eqns: Sequence[tuple[int, Eqn]], free: Mapping[Var, tuple[int, Eqn]]) -> list[tuple[int, Eqn]]:
    """The equations and those of which they read what is made of nothing, in order."""

    def read(eqn: Eqn) -> list[Var]:
        return [var for var in variables(eqn.invars) if var in free]

    needed = reachable((var for _, eqn in eqns for var in read(eqn)), lambda var: read(free[var][1]))
    return sorted((dict(eqns) | dict(free[var] for var in needed)).items(), key=lambda item: item[0])


@dataclass(frozen=True)
class Part:
    """Runs equations on the part that a device has."""

    flow: Flow
    split: Split
    indices: Mapping[Dim, Value]

    def shape(self, atom: Atom) -> tuple[int, ...]:
        return local_shape(self.flow.classes, self.split, atom)

    def run(self, eqns: Sequence[tuple[int, Eqn]], env: dict[Var, Value], path: Path) -> None:
        for number, eqn in eqns:
            values = [read(env, atom) for atom in eqn.invars]
            with source_of(eqn), on_one_device():
                results = self._results(eqn, values, (*path, number))
            for var, value in zip(eqn.outvars, results):
                if hasattr(value, "shape") and tuple(value.shape) != self.shape(var):
                    raise CompilerBug(f"`{eqn.primitive.name}` has a part of {value.shape}, not of {self.shape(var)}")
            env.update(zip(eqn.outvars, results))

    def within(self, jaxpr: Jaxpr, consts: Sequence[Value], values: Sequence[Value], path: Path) -> list[Value]:
        env: dict[Var, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *values]))
        self.run(list(enumerate(jaxpr.eqns)), env, path)
        return [read(env, atom) for atom in jaxpr.outvars]

    def _results(self, eqn: Eqn, values: list[Value], path: Path) -> list[Value]:
        if bodies_of(eqn):
            return self._around(eqn, values, path)
        if eqn.primitive.name in CONSTRAINTS:  # about the whole, of which this is a part
            return values
        masked = [self._first(value, (path, "operand", place)) for place, value in enumerate(values)]
        params = _local_params(eqn, [self.shape(var) for var in eqn.outvars], [self.shape(a) for a in eqn.invars])
        results = bind_with(eqn, params, masked)
        if eqn.primitive.name == "iota":
            d = eqn.params["dimension"]
            kind = self.flow.classes.of(eqn.outvars[0])[d]
            if kind is not None and kind in self.split:
                places = lax.broadcasted_iota(np.int32, params["shape"], d)
                places = lax.add(places, lax.broadcast(self.indices[kind] * params["shape"][d], params["shape"]))
                results = [lax.convert_element_type(places, params["dtype"])]  # each is rounded once
        return [self._cut(results[0], eqn.outvars[0])] if eqn.primitive.name in CUT else results

    def _cut(self, value: Value, var: Var) -> Value:
        """The part of what every device has made as a whole."""
        for d, (size, kind) in enumerate(zip(self.shape(var), self.flow.classes.of(var))):
            if kind is not None and kind in self.split and value.shape[d] != size:
                value = lax.dynamic_slice_in_dim(value, self.indices[kind] * size, size, d)
        return value

    def _first(self, value: Value, key: tuple[Path, str, int]) -> Value:
        """A value that only the first device has: it is added once, not by every device."""
        if not self.flow.first_only.get(key, False):
            return value
        first = functools.reduce(lax.bitwise_and, [lax.eq(self.indices[kind], 0) for kind in self.split])
        return lax.select(lax.broadcast(first, jnp.shape(value)), jnp.asarray(value), jnp.zeros_like(value))

    def _around(self, eqn: Eqn, values: list[Value], path: Path) -> list[Value]:
        match eqn.primitive.name:
            case "scan":
                return self._scan(eqn, values, path)
            case "while":
                return self._while(eqn, values, path)
            case "cond":
                branches = [
                    lambda *operands, n=n, branch=branch: self.within(branch.jaxpr, branch.consts, operands, (*path, n))
                    for n, branch in enumerate(eqn.params["branches"])
                ]
                return list(lax.switch(values[0], branches, *values[1:]))
            case name:
                (body,) = bodies_of(eqn)
                _, consts = called_jaxpr(name, eqn.params) or (body, ())
                return self.within(body, consts, operands_of_call(name, eqn.params, values), (*path, 0))

    def _body(self, closed: Closed, consts: Sequence[Value], carried: Sequence[Value], path: Path) -> list[Value]:
        results = self.within(closed.jaxpr, closed.consts, [*consts, *carried], (*path, 1))
        return [self._first(value, (path, "carried", place)) for place, value in enumerate(results)]

    def _initial(self, values: Sequence[Value], path: Path) -> list[Value]:
        return [self._first(value, (path, "initial", place)) for place, value in enumerate(values)]

    def _scan(self, eqn: Eqn, values: list[Value], path: Path) -> list[Value]:
        num_consts, num_carry = scan_counts_of(eqn.params)
        consts, rest = values[:num_consts], values[num_consts:]

        def step(carried: Sequence[Value], x: Sequence[Value]) -> tuple[list[Value], list[Value]]:
            return apart(self._body(eqn.params["jaxpr"], consts, [*carried, *x], path), num_carry)

        after, ys = scanned(eqn.params, step, self._initial(rest[:num_carry], path), rest[num_carry:])
        return [*after, *ys]

    def _while(self, eqn: Eqn, values: list[Value], path: Path) -> list[Value]:
        """Bound as it was, as the condition of a batched loop has one result for each lane."""
        ours, theirs = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        first, second, carried = values[:ours], values[ours : ours + theirs], values[ours + theirs :]
        initial = self._initial(carried, path)
        held = eqn.params["cond_jaxpr"]
        types = [*map(jax.typeof, initial)]
        go_on, more = trace(
            lambda *given: self.within(held.jaxpr, held.consts, [*given[:ours], *given[ours:]], (*path, 0)),
            *map(jax.typeof, first),
            *types,
        )
        body, others = trace(
            lambda *given: self._body(eqn.params["body_jaxpr"], given[:theirs], given[theirs:], path),
            *map(jax.typeof, second),
            *types,
        )
        params = {
            **eqn.params,
            **{"cond_jaxpr": go_on, "cond_nconsts": len(more) + ours},
            **{"body_jaxpr": body, "body_nconsts": len(others) + theirs},
        }
        return bind_with(eqn, params, [*more, *first, *others, *second, *initial])


def local_shape(classes: Classes, split: Split, atom: Atom) -> tuple[int, ...]:
    shape = shape_of(atom) if isinstance(atom, Var) else tuple(getattr(atom.aval, "shape", ()))
    return tuple(size // split.get(kind, 1) if kind else size for size, kind in zip(shape, classes.of(atom)))


def _local_params(eqn: Eqn, outs: Sequence[tuple[int, ...]], operands: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """The sizes that an equation names, for the part that a device has."""
    params = dict(eqn.params)
    for name in ("sharding", "out_sharding"):  # about the whole, of which this is a part
        if name in params:
            params[name] = None
    match eqn.primitive.name:
        case "broadcast_in_dim" | "iota":
            params["shape"] = outs[0]
        case "reshape":
            params["new_sizes"] = outs[0]
        case "dynamic_slice":
            params["slice_sizes"] = outs[0]
        case "slice":
            whole = eqn.invars[0].aval.shape
            ends = zip(params["limit_indices"], whole, operands[0])
            params["limit_indices"] = tuple(min(end, mine) if size != mine else end for end, size, mine in ends)
        case "gather":
            whole = eqn.invars[0].aval.shape
            sizes = zip(params["slice_sizes"], whole, operands[0])
            params["slice_sizes"] = tuple(mine if taken == size else taken for taken, size, mine in sizes)
    return params
