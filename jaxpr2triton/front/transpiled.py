"""The programs of a function, for arguments of certain shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from jaxpr2triton._compat import stay_in_place
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.errors import ScheduleWarning, UserError, warn
from jaxpr2triton.front.arguments import Signature, check_arrays, labels, static_positions, trace
from jaxpr2triton.front.inner import all_of, with_options, within
from jaxpr2triton.front.naming import program_name, title_of
from jaxpr2triton.front.options import KERNELS, Options, Settings, refuse_options_of_others
from jaxpr2triton.front.program import GradProgram, Program, grad_program, plain_program
from jaxpr2triton.front.whole import side_effects, symbolic_shape
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.recorded import Recorded
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.report.table import count as counted
from jaxpr2triton.trace import hoist


def transpiled(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    grad: bool | int | Sequence[int] | None = None,
    for_target: str | None = None,
    asker: str = "transpile",
) -> Program | GradProgram:
    """See `transpile`; the asker has options of its own, of which it may be that one of `kwargs` was meant."""
    name, static = program_name(function), options.static
    settings = options.settings(name, KERNELS)
    read_knobs()  # a misspelt one is an error here too
    settings = replace(settings, target=None if for_target is None else target_named(for_target))
    argnums = _argnums(name, grad, len(args))
    refuse_options_of_others(function, name, kwargs, asker)
    jax.jit(function, **static)  # checks these two
    fixed, fixed_names = static_positions(function, len(args), **static)
    keywords = sorted(kwargs)  # the order in which JAX flattens them
    moving = [*(i not in fixed for i in range(len(args))), *(key not in fixed_names for key in keywords)]
    values = tuple(itertools.compress((*args, *map(kwargs.get, keywords)), moving))
    names = tuple(itertools.compress(labels(function, len(args), keywords), moving))
    check_arrays(name, names, values)
    traced = trace(function, args, kwargs, **static)
    if (symbolic := symbolic_shape(traced.jaxpr)) is not None:
        what = f"{name} has an argument of a symbolic shape, {symbolic}, and kernels are made for numbers"
        raise UserError(what, hint="transpile it for each shape that you need")
    if (alone := all_of(traced.jaxpr)) is not None:  # of what a fused function was made: what it names holds here
        settings = within(alone, settings)
    hoisted, captured = hoist(with_options(traced.jaxpr, settings), traced.captured)
    jaxpr, settings = _flattened(hoisted, name, settings), replace(settings, backend=KERNELS)
    if not stay_in_place(jaxpr.effects):
        raise side_effects(jaxpr, "call it through `fuse`")
    signature = Signature(name, names, jax.tree.structure(values), traced.avals, title_of(function))
    out_tree = traced.out_tree
    if argnums is None:
        program = plain_program(jaxpr, captured, signature, out_tree, settings)
        _tell_unused(settings.roles.schedules, name, program)
        return program
    for argnum in argnums if isinstance(argnums, tuple) else (argnums,):
        if argnum in fixed:
            raise UserError(f"grad={grad}: argument {argnum} of {name} is static")
    shifted = jax.tree.map(lambda argnum: sum(moving[:argnum]), argnums)
    halves = grad_program(jaxpr, captured, signature, out_tree, shifted, settings)
    _tell_unused(settings.roles.schedules, name, halves.forward, halves.backward)
    return halves


def _tell_unused(records: Sequence[Recorded], name: str, *programs: Program) -> None:
    """Name the schedules that are for no kernel of these programs."""
    if not records:
        return
    keys = {each.key for program in programs for each in program.summary.schedules}
    if others := sorted({each.kernel for each in records if each.key not in keys}):
        warn(
            f"{counted(len(others), 'schedule')} of {', '.join(others)} ignored: {name} has no such kernel, on this "
            "device and in this version",
            ScheduleWarning,
        )


def _flattened(jaxpr: Any, name: str, settings: Settings) -> Any:
    try:
        return flatten(jaxpr)
    except Exception as problem:
        with settings.instead_of(problem, name, "the calls in it are written out later"):
            return jaxpr


def _argnums(name: str, grad: Any, count: int) -> int | tuple[int, ...] | None:
    """`grad` as non-negative argument numbers."""
    if grad is None or grad is False:
        return None
    if grad is True:
        grad = 0
    numbers = (grad,) if isinstance(grad, int) else tuple(grad)
    for number in numbers:
        if not isinstance(number, int) or not -count <= number < count:
            raise UserError(f"grad={grad!r}: {name} is given {counted(count, 'positional argument')}, numbered from 0")
    positive = tuple(number % count for number in numbers)
    return positive[0] if isinstance(grad, int) else positive
