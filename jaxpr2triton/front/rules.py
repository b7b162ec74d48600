"""The rules of the primitive, from JAX's public registries: what transformations bind in its place.

    jvp        two programs, `forward` (with the chosen residuals) and `linear`
    transpose  of `linear` the backward program
    vmap       the program of the batch
    dce        the program of the outputs that somebody reads
    remat      what a checkpoint does not keep again, with the same effects

Where a mistake of ours keeps one of them from its program, JAX does the same to the jaxpr, and a `BugWarning` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
from jax.interpreters import ad, batching
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import is_recomputed, set_lowering_of_high_level
from jaxpr2triton.autodiff import split
from jaxpr2triton.autodiff.parts import parts_of, run_in_parts
from jaxpr2triton.autodiff.tracing import lower, prune
from jaxpr2triton.errors import NotFusible
from jaxpr2triton.front.derived_programs import derived, pointing_at_loops, split_program, transposed_program
from jaxpr2triton.front.fused import bind, fused_p
from jaxpr2triton.front.options import Settings
from jaxpr2triton.ir.tracing import avals, is_differentiable, run
from jaxpr2triton.mistakes import instead_of


def backward_name(name: str) -> str:
    return f"{name[:-4]}_bwd" if name.endswith("_lin") else f"{name}_transposed"


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, name: str, **params: Any) -> Any:
    settings = Settings(**params)
    nonzero = tuple(type(t) is not ad.Zero and is_differentiable(a) for t, a in zip(tangents, avals(jaxpr)))
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    if not any(nonzero):
        return bind(jaxpr, primals, name, settings), zeros
    moving = [tangent for tangent, moves in zip(tangents, nonzero) if moves]
    try:
        halves = split_program(jaxpr, nonzero, settings.roles.checkpoint)
    except split.NotSplit as refusal:
        if settings.refuses_xla:
            raise not_split(name) from refusal
        return split.plain_jvp(jaxpr, nonzero, primals, moving, _in_parts(name, settings))
    except Exception as problem:
        with settings.instead_of(problem, name, "JAX differentiates it, and XLA runs that"):
            return split.plain_jvp(jaxpr, nonzero, primals, moving)
    results = bind(halves.forward, [*halves.captured, *primals], f"{name}_fwd", settings)
    outputs, new = results[: len(zeros)], results[len(zeros) :]
    if not any(halves.nonzero_outputs):
        return outputs, zeros
    operands = [*halves.residuals(primals, outputs, new), *moving]
    directions = iter(bind(halves.linear, operands, f"{name}_lin", settings))
    return outputs, [next(directions) if moves else zero for moves, zero in zip(halves.nonzero_outputs, zeros)]


def _in_parts(name: str, settings: Settings) -> Callable[..., list[Any]]:
    """What is beside and in the checkpoints that have effects stays fused; they themselves are JAX's."""

    def evaluated(jaxpr: Any, *args: Any) -> list[Any]:
        (found,) = derived(jaxpr, ("parts",), lambda: [parts_of(jaxpr)])
        if found is None:
            return run(jaxpr, *args)
        return run_in_parts(jaxpr, found, lambda part, values: bind(part, values, name, settings), args)

    return evaluated


def not_split(name: str) -> NotFusible:
    return NotFusible(
        f"the derivative of {name} stays with XLA: a derivative rule in it has side effects, or cannot be linearized",
        hint="differentiate outside of the fused function, or leave it to XLA (drop strict=True)",
    )


def _transpose(cotangents: Sequence[Any], *args: Any, jaxpr: Any, name: str, **params: Any) -> list[Any]:
    settings = Settings(**params)
    linear = tuple(ad.is_undefined_primal(arg) for arg in args)
    nonzero = tuple(type(ct) is not ad.Zero for ct in cotangents)
    operands = [arg for arg, is_linear in zip(args, linear) if not is_linear]
    operands += [ct for ct, is_nonzero in zip(cotangents, nonzero) if is_nonzero]
    try:
        back = transposed_program(jaxpr, linear, nonzero)
    except Exception as problem:
        instead = "JAX makes its gradient, and XLA runs that"
        with settings.instead_of(problem, name, instead), pointing_at_loops(jaxpr):
            results = iter(split.plain_transpose(jaxpr, linear, nonzero, operands))
            return [next(results) if is_linear else None for is_linear in linear]
    operands = [*back.captured, *operands]
    results = iter(bind(back.program, operands, backward_name(name), settings) if any(back.reaching) else ())
    reaches = iter(back.reaching)
    return [
        None if not is_linear else next(results) if next(reaches) else ad.Zero(arg.aval)
        for arg, is_linear in zip(args, linear)
    ]


def _batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, name: str, **params: Any) -> Any:
    settings = Settings(**params)
    key = ("batch", tuple(dims), axis.size, axis.name, axis.spmd_name, tuple(jax.typeof(arg) for arg in args))
    try:
        batch = derived(jaxpr, key, lambda: split.batch(jaxpr, args, dims, axis.size, axis.name, axis.spmd_name))
    except Exception as problem:
        with settings.instead_of(problem, name, "JAX batches it, and XLA runs that"):
            batched, out_dims = split.plain_batch(jaxpr, dims, axis.size, axis.name, axis.spmd_name)
            return batched(*args), list(out_dims)
    return bind(batch.program, [*batch.captured, *args], f"{name}_vmap", settings), list(batch.out_dims)


def _dce(used_outputs: list[bool], *rest: Any) -> tuple[list[bool], Any]:
    eqn = rest[-1]  # since 0.12 the references that are still alive come before it
    if not any(used_outputs) and not eqn.effects:
        return [False] * len(eqn.invars), None
    jaxpr = eqn.params["jaxpr"]
    try:
        program, used_inputs = derived(jaxpr, ("prune", tuple(used_outputs)), lambda: prune(jaxpr, used_outputs))
    except Exception as problem:
        with instead_of(problem, eqn.params["name"], eqn.params["strict"], "all of its outputs are computed"):
            return [True] * len(eqn.invars), eqn
    if all(used_outputs) and all(used_inputs):
        return used_inputs, eqn
    return used_inputs, eqn.replace(
        invars=[atom for atom, used in zip(eqn.invars, used_inputs) if used],
        outvars=[var for var, used in zip(eqn.outvars, used_outputs) if used],
        params={**eqn.params, "jaxpr": program},
        effects=program.effects,
    )


def _remat(
    policy: Callable[..., Any], unknown: Sequence[bool], there: Sequence[bool], eqn: Any
) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
    """What JAX does where there is no rule, but for effects: what is computed a second time tells it a second time.

    It is the equation before, and that after; which outputs are known after only, and which are there again; what has
    to be kept.
    """
    wanted = [atom for atom, again in zip(eqn.invars, there) if not again and not isinstance(atom, jex.Literal)]
    none, every = [False] * len(eqn.outvars), [True] * len(eqn.outvars)
    if any(unknown):
        return None, eqn, every, every, wanted
    if not is_recomputed(policy(eqn.primitive, *[atom.aval for atom in eqn.invars], **eqn.params)):
        return eqn, None, none, none, []
    return eqn, eqn, none, every, wanted


def _to_low(*args: Any, jaxpr: Any, name: str, **params: Any) -> list[Any]:
    """Since 0.11 some functions, such as `custom_root`, stay high-level as long as one may ask for a derivative."""
    settings = Settings(**params)
    try:
        low = derived(jaxpr, ("lower",), lambda: lower(jaxpr))
    except Exception as problem:
        with settings.instead_of(problem, name, "XLA runs the whole program"):
            return run(jaxpr, *args)
    return bind(low.program, [*low.captured, *args], name, settings)


ad.primitive_jvps[fused_p] = _jvp
ad.primitive_transposes[fused_p] = _transpose
batching.fancy_primitive_batchers[fused_p] = _batch
pe.dce_rules[fused_p] = _dce
pe.partial_eval_jaxpr_custom_rules[fused_p] = _remat
set_lowering_of_high_level(fused_p, _to_low)
