"""Derivatives of a program, as programs.

linearize    y = f x      becomes      y, r = forward x    and    dy = linear r dx
transpose    dy = linear r dx          becomes             dx = backward r dy
batch        y = f x      becomes      the program of a whole batch

What a rule of the user's closes over, arrays as well as tracers of a trace around, becomes leading operands of the
program that is derived with it: it is `captured`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
from jax.interpreters import ad

from jaxpr2triton._compat import side_effects_of
from jaxpr2triton.autodiff.residuals import choose
from jaxpr2triton.autodiff.tracing import flatten, prune, reached
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.hoisting import hoist
from jaxpr2triton.ir.jaxprs import nbytes_of
from jaxpr2triton.ir.operation_names import deed
from jaxpr2triton.ir.tracing import (
    again,
    argument_names,
    avals,
    is_differentiable,
    result_names,
    retrace,
    run,
    traced,
    with_result_names,
)
from jaxpr2triton.ir.value_names import distinct, value_names


class NotSplit(Exception):
    """A derivative is not two programs: its tangents have side effects, or JAX cannot linearize it (the cause)."""


@dataclass(frozen=True)
class Source:
    """Where a residual comes from: input, output or new residual number `index` of the forward program."""

    kind: str  # in (what is captured counts), out or new
    index: int
    eqn: Any = None  # the equation that makes it, unless it is an input


@dataclass(frozen=True)
class Split:
    """Two programs: `forward` gives the outputs and then the new residuals, `linear` takes residuals and tangents."""

    forward: Any
    linear: Any
    sources: tuple[Source, ...]
    nonzero_outputs: tuple[bool, ...]
    captured: tuple[Any, ...] = ()  # the leading operands of the forward program

    @property
    def nbytes(self) -> int:
        """The memory of what the forward program writes for the linear one alone."""
        return nbytes_of(*(aval for source, aval in zip(self.sources, avals(self.linear)) if source.kind == "new"))

    def residuals(self, inputs: Sequence[Any], outputs: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """The residuals among the values before and after the forward program."""
        places = {"in": [*self.captured, *inputs], "out": outputs, "new": new}
        return [places[source.kind][source.index] for source in self.sources]


@dataclass(frozen=True)
class Transposed:
    """The program from the other inputs and the nonzero cotangents to those cotangents of linear inputs that reach."""

    program: Any
    reaching: tuple[bool, ...]  # of each linear input, whether its cotangent is not just zero
    captured: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Batched:
    """The program of a batch, and where each output has its batch dimension: first, or nowhere."""

    program: Any
    out_dims: tuple[int | None, ...]
    captured: tuple[Any, ...] = ()


def linearize(
    jaxpr: Any,
    nonzero: Sequence[bool],
    recomputable: Callable[[Any], bool],
    prepare: Callable[[Any, int], Any] = lambda forward, num_outputs: forward,
) -> Split:
    """Split the derivative along the marked inputs; custom rules and checkpoints of the user's are honoured.

    Effects are the forward program's. Not if the linear program had some too, as where a rule tells tangents, or a
    checkpoint computes again what it tells: transposing it would tell them once more.

    `prepare` is given the forward program, with all that could be kept as its last outputs, and may take work out of
    its loops that is better done again.

    What a checkpointed part of the program computes is never a residual: JAX's own linearisation leaves it in the
    linear program, and only what that program asks for can be chosen.
    """
    num_outputs = len(jaxpr.jaxpr.outvars)
    forward, linear = _linearized(jaxpr, nonzero)
    forward, captured = hoist(forward)
    num_tangents = sum(nonzero)
    num_asked = len(linear.jaxpr.invars) - num_tangents
    moving = reached(linear, [False] * num_asked + [True] * num_tangents)
    linear, used = prune(linear, moving, keep=[False] * num_asked + [True] * num_tangents)
    nonzero_outputs, flags = [], iter(moving)
    for aval in jaxpr.out_avals:
        nonzero_outputs.append(is_differentiable(aval) and next(flags))

    flat = _by_results(prepare(flatten(forward), num_outputs))
    asked = [atom for atom, keep in zip(flat.jaxpr.outvars[num_outputs:], used) if keep]
    saved = choose(flat, num_outputs, asked, recomputable)
    sources, new = _sources(flat, num_outputs, saved)

    def with_residuals(*args: Any) -> list[Any]:
        wanted = [*flat.jaxpr.outvars[:num_outputs], *new]
        return _evaluate(flat, dict(zip(flat.jaxpr.invars, args)), wanted, effects=True)

    def from_residuals(*args: Any) -> list[Any]:
        values = _evaluate(flat, dict(zip(saved, args)), asked)
        return run(linear, *values, *args[len(saved) :])

    names = argument_names(flat)
    labels = {var: name for var, name in zip(flat.jaxpr.invars, names)}
    labels = value_names(flat.jaxpr) | labels
    outputs = result_names(jaxpr)
    residual_names = distinct([labels.get(var) or _label(source, outputs) for var, source in zip(saved, sources)])
    made = [name for name, source in zip(residual_names, sources) if source.kind == "new"]
    tangents = [f"d_{name}" for name, moves in zip(names[len(captured) :], nonzero) if moves]
    return Split(
        retrace(with_residuals, *avals(flat), names=names, results=[*outputs, *made]),
        retrace(
            from_residuals,
            *[var.aval for var in saved],
            *avals(linear)[len(asked) :],
            names=[*residual_names, *tangents],
        ),
        sources,
        tuple(nonzero_outputs),
        tuple(captured),
    )


def _linearized(jaxpr: Any, nonzero: Sequence[bool]) -> tuple[Any, Any]:
    """JAX's own linearisation: inputs → outputs and all that it would save; and all that, tangents → tangents."""
    linear: list[Any] = []

    def forward(*primals: Any) -> list[Any]:
        moving = [primal for primal, moves in zip(primals, nonzero) if moves]

        def partially_applied(*values: Any) -> tuple[list[Any], list[Any]]:
            rest = iter(values)
            outputs = run(jaxpr, *[next(rest) if moves else p for p, moves in zip(primals, nonzero)])
            return [out for out, aval in zip(outputs, jaxpr.out_avals) if is_differentiable(aval)], outputs

        try:
            _, pushforward, outputs = jax.linearize(partially_applied, *moving, has_aux=True)
        except (NotImplementedError, ValueError) as problem:  # JAX's own: some rules push forward, and that is all
            raise NotSplit from problem
        program, residuals = hoist(traced(pushforward, *moving))
        linear.append(program)
        return [*outputs, *residuals]

    program = traced(forward, *avals(jaxpr), names=argument_names(jaxpr))
    if side_effects_of(linear[0].effects):
        raise NotSplit
    return program, linear[0]


def _by_results(flat: Any) -> Any:
    """Derivatives in terms of a result rather than of an operand as well, so that only one of them is to be kept.

    r = rsqrt x;  d = div r x    →    d = integer_pow[y=3] r
    """
    roots = {eqn.outvars[0]: eqn.invars[0] for eqn in flat.jaxpr.eqns if eqn.primitive.name == "rsqrt"}

    def is_slope(eqn: Any) -> bool:
        top = eqn.invars[0] if eqn.primitive.name == "div" else None
        return not isinstance(top, jex.Literal) and top in roots and roots[top] is eqn.invars[1]

    if not any(is_slope(eqn) for eqn in flat.jaxpr.eqns):
        return flat

    def cubed(eqn: Any, values: list[Any]) -> list[Any] | None:
        return [jax.lax.integer_pow(values[0], 3)] if is_slope(eqn) else None

    def rewritten(*args: Any) -> list[Any]:
        env = dict(zip(flat.jaxpr.invars, args))
        evaluate.run(flat.jaxpr.eqns, env, cubed)
        return [evaluate.read(env, atom) for atom in flat.jaxpr.outvars]

    return again(flat, rewritten)


def _sources(flat: Any, num_outputs: int, saved: Sequence[Any]) -> tuple[tuple[Source, ...], list[Any]]:
    """Where each saved variable is to be had, and those that the forward program has to return besides its outputs."""
    inputs = {var: k for k, var in enumerate(flat.jaxpr.invars)}
    outputs = {
        atom: k
        for k, atom in reversed(list(enumerate(flat.jaxpr.outvars[:num_outputs])))
        if not isinstance(atom, jex.Literal)
    }
    producer = {var: eqn for eqn in flat.jaxpr.eqns for var in eqn.outvars}
    sources: list[Source] = []
    new: list[Any] = []
    for var in saved:
        if var in inputs:
            sources.append(Source("in", inputs[var]))
        elif var in outputs:
            sources.append(Source("out", outputs[var], producer[var]))
        else:
            sources.append(Source("new", len(new), producer[var]))
            new.append(var)
    return tuple(sources), new


def _evaluate(jaxpr: Any, env: dict[Any, Any], wanted: Sequence[Any], effects: bool = False) -> list[Any]:
    """The wanted variables, from the known ones, running no equation that they do not need, nor have effects."""
    known = dict(env)
    evaluate.run(evaluate.needed(jaxpr.jaxpr.eqns, wanted, env, effects), known)
    return [evaluate.read({**known, **env}, atom) for atom in wanted]


def _label(source: Source, outputs: Sequence[str]) -> str:
    if source.kind == "out":
        return outputs[source.index] or ("out" if len(outputs) == 1 else f"out{source.index}")
    return deed(source.eqn.primitive.name)


def transpose(jaxpr: Any, linear: Sequence[bool], nonzero: Sequence[bool]) -> Transposed:
    """The backward program of one that is linear in the marked inputs."""
    _, used = prune(jaxpr, list(nonzero))
    return transpose_to(jaxpr, linear, nonzero, [use for use, is_linear in zip(used, linear) if is_linear])


def transpose_to(jaxpr: Any, linear: Sequence[bool], nonzero: Sequence[bool], reaching: Sequence[bool]) -> Transposed:
    """The same, when it is known which cotangents are not just zero."""
    inner_avals, names = avals(jaxpr), argument_names(jaxpr)
    fixed = [aval for aval, is_linear in zip(inner_avals, linear) if not is_linear]
    cotangents = [aval for aval, is_nonzero in zip(jaxpr.out_avals, nonzero) if is_nonzero]

    def backward(*args: Any) -> list[Any]:
        results = plain_transpose(jaxpr, linear, nonzero, args)
        return [result for result, reaches in zip(results, reaching) if reaches]

    labels = [name for name, is_linear in zip(names, linear) if not is_linear]
    made = [name for name, is_linear in zip(names, linear) if is_linear]
    made = [name for name, reaches in zip(made, reaching, strict=True) if reaches]
    labels += [f"ct{k}" if len(cotangents) > 1 else "ct" for k in range(len(cotangents))]
    program, captured = hoist(traced(backward, *fixed, *cotangents, names=labels))
    return Transposed(with_result_names(program, made), tuple(reaching), tuple(captured))


def batch(
    jaxpr: Any, args: Sequence[Any], dims: Sequence[int | None], size: int, axis_name: Any, spmd_name: Any
) -> Batched:
    batched, out_dims = plain_batch(jaxpr, dims, size, axis_name, spmd_name)
    # the tracers themselves carry sharding and mesh axes that an abstract value would lose
    program, captured = hoist(traced(batched, *args, names=argument_names(jaxpr)))
    return Batched(with_result_names(program, result_names(jaxpr)), out_dims, tuple(captured))


# ---------------------------------------------------------------------------------------------- nothing but JAX
def plain_split(jaxpr: Any, nonzero: Sequence[bool]) -> Split:
    """Without a choice of residuals: all that JAX itself would save."""
    forward, linear = _linearized(jaxpr, nonzero)
    forward, captured = hoist(forward)
    num_saved = len(linear.jaxpr.invars) - sum(nonzero)
    sources = tuple(Source("new", index) for index in range(num_saved))
    return Split(forward, linear, sources, tuple(map(is_differentiable, jaxpr.out_avals)), tuple(captured))


def plain_jvp(
    jaxpr: Any,
    nonzero: Sequence[bool],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    evaluate_it: Callable[..., list[Any]] = run,
) -> tuple[list[Any], list[Any]]:
    """The outputs and their tangents, for tangents of the marked inputs; as JAX makes them, and no program.

    `evaluate_it` gives the outputs of the program for inputs.
    """

    def partially_applied(*values: Any) -> list[Any]:
        rest = iter(values)
        return evaluate_it(jaxpr, *[next(rest) if moves else primal for primal, moves in zip(primals, nonzero)])

    moving = tuple(primal for primal, moves in zip(primals, nonzero) if moves)
    outputs, directions = jax.jvp(partially_applied, moving, tuple(tangents))
    moved = [
        direction if is_differentiable(aval) else ad.Zero(aval.to_tangent_aval())
        for direction, aval in zip(directions, jaxpr.out_avals)
    ]
    return outputs, moved


def plain_transpose(jaxpr: Any, linear: Sequence[bool], nonzero: Sequence[bool], args: Sequence[Any]) -> list[Any]:
    """The cotangents of all inputs that are marked as linear; `args` are the others and the nonzero cotangents."""
    moving = [aval for aval, is_linear in zip(avals(jaxpr), linear) if is_linear]
    num_fixed = len(linear) - len(moving)

    def partially_applied(*values: Any) -> list[Any]:
        rest, others = iter(values), iter(args[:num_fixed])
        outputs = run(jaxpr, *[next(rest) if is_linear else next(others) for is_linear in linear])
        return [out for out, is_nonzero in zip(outputs, nonzero) if is_nonzero]

    return list(jax.linear_transpose(partially_applied, *moving)(list(args[num_fixed:])))


def plain_batch(
    jaxpr: Any, dims: Sequence[int | None], size: int, axis_name: Any, spmd_name: Any
) -> tuple[Callable[..., list[Any]], tuple[int | None, ...]]:
    """The function of a batch, and where each output has its batch dimension."""
    out_dims = tuple(0 if moves else None for moves in reached(jaxpr, [dim is not None for dim in dims], axis_name))
    options: dict[str, Any] = {}
    if axis_name is not None:
        options["axis_name"] = axis_name
    if spmd_name:
        options["spmd_axis_name"] = spmd_name
    batched = jax.vmap(
        lambda *values: run(jaxpr, *values), in_axes=tuple(dims), out_axes=list(out_dims), axis_size=size, **options
    )
    return batched, out_dims
