"""`fuse` and `transpile`: what a user touches."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, cast, overload

import jax

from jaxpr2triton._compat import is_staging, stay_in_place
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.errors import UserError
from jaxpr2triton.front import fused
from jaxpr2triton.front.arguments import Signature, Trace, check_arrays, labels, static_positions, trace
from jaxpr2triton.front.inner import Settings, all_of, with_options, within
from jaxpr2triton.front.program import GradProgram, Program, Residual, grad_program, plain_program
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Kernel, Leftover
from jaxpr2triton.ir.roles import Checkpoint, Roles, parse_roles
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.launch.interpret.interrupts import Interruptible
from jaxpr2triton.mistakes import instead_of
from jaxpr2triton.report.table import count as counted
from jaxpr2triton.trace import hoist
from jaxpr2triton.version import __version__

__all__ = ["GradProgram", "Kernel", "Leftover", "Program", "Residual", "__version__", "fuse", "transpile"]


@overload
def fuse(
    function: Callable[..., Any],
    /,
    *,
    backend: str = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: str = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: str = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: jax.Device | None = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> jax.stages.Wrapped: ...
@overload
def fuse(
    function: None = None,
    /,
    *,
    backend: str = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: str = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: str = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: jax.Device | None = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> Callable[[Callable[..., Any]], jax.stages.Wrapped]: ...
def fuse(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: str = "auto",
    strict: bool = False,
    roles: Mapping[str, str] | None = None,
    contractions: str = "auto",
    checkpoint: Checkpoint = None,
    exact_order: bool = False,
    schedule: str = "estimate",
    **jit_options: Any,
) -> Any:
    """Compile a function into Triton kernels: `jax.jit`, with another compiler behind it.

    It takes the function and the options that `jax.jit` takes, and gives what `jax.jit` gives: something to call,
    differentiate, batch, `.lower(...)` and so on. Seven options are new:

    backend   "auto"       the kernels on a CUDA or ROCm device, XLA on any other (or what J2T_BACKEND says)
              "triton"     the kernels, on a CUDA or ROCm device; an error elsewhere
              "interpret"  the kernels in Triton's interpreter, on any machine; slow, for tests
              "machine"    the kernels compiled for an NVIDIA device, and their PTX run with every access checked,
                           on any machine with a C compiler; for tests
              "xla"        plain XLA, everywhere
    strict    raise `NotFusible` if any equation would be left to XLA, on every machine
    roles     what axes become, instead of what the compiler chooses, by the names that `explain` shows:
              {"k": "unroll"} for all kernels that have such an axis, {"rnn_bwd_0.col": "lane"} for one kernel;
              "grid", "lane", "loop" or "unroll", and an error where the axis is not there or cannot be that, on
              every machine
    contractions
              "triton"     matrix products are kernels as well, with what they are made of and what is made of them, as
                           exact as `precision` and `jax.default_matmul_precision` say
              "xla"        XLA's library multiplies, outside of loops
              "auto"       whoever takes less time, by an estimate that `explain` prints
    checkpoint
              "sqrt"       of a loop of n steps a gradient keeps about the square root of n states, and as many at a
                           time for the steps between two of these, which are computed again on the way back
              a number     … keeps so many states
              None         … keeps what each step needs; the derivatives that the function itself takes are JAX's own
    exact_order
              take the steps of every loop one after the other, even where what is carried is `a * c + b` and could be
              combined in tiles of steps, with other roundings
    schedule  "estimate"   of the schedules of a kernel with loops the one that is estimated to take least is chosen
              "compile"    the best three are compiled, and the one is chosen whose machine code takes least, by the
                           model of `explain --cycles`; for NVIDIA devices

    A fused function inside another one is part of it, and the outer one's options count; but where it names an option
    otherwise than that one, this holds in it, and it has kernels of its own. Callbacks (`jax.debug.print`,
    `io_callback`) stay with XLA, in their order, and what is around them is fused; a function with references, or with
    collectives over an axis of a mesh, stays with XLA as a whole.
    """
    for option in jit_options:
        if option not in _JIT_OPTIONS:
            raise TypeError(_unexpected(option))
    _known_backend("backend", backend)
    if function is None:
        options = {"backend": backend, "strict": strict, "roles": roles, "contractions": contractions}
        options |= {"checkpoint": checkpoint, "exact_order": exact_order, "schedule": schedule}
        return functools.partial(fuse, **options, **jit_options)
    if not callable(function):
        raise UserError(f"fuse takes a function, not {function!r}")
    asked = parse_roles(program_name(function), roles, contractions, checkpoint, exact_order, schedule, backend)
    static = {option: jit_options.get(option) for option in ("static_argnums", "static_argnames")}
    jitted = jax.jit(_traced_when_called(function, backend, strict, asked, static), **jit_options)
    return Interruptible(jitted) if backend in ("interpret", "machine") else jitted


_OURS = frozenset({"backend", "strict", "roles", "contractions", "checkpoint", "exact_order", "schedule"})
_JIT_OPTIONS = frozenset(inspect.signature(jax.jit).parameters) - {"fun", "backend"}


def _unexpected(option: str) -> str:
    close = difflib.get_close_matches(option, sorted({*_OURS, *_JIT_OPTIONS}), 1)
    return f"fuse() got an unexpected keyword argument {option!r}" + (f". Did you mean {close[0]!r}?" if close else "")


def _known_backend(option: str, backend: str) -> str:
    if backend not in fused.BACKENDS:
        raise UserError(f"{option}={backend!r} is not a backend", hint="one of " + ", ".join(fused.BACKENDS))
    return backend


def _traced_when_called(
    function: Callable[..., Any], backend: str, strict: bool, roles: Roles, static: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function that `jax.jit` traces: it binds one primitive that carries the user's function as a jaxpr."""
    name = program_name(function)

    @functools.wraps(function)
    def fused_function(*args: Any, **kwargs: Any) -> Any:
        # without jit, or when jit looks for the operation that made a NaN (jax_debug_nans), nothing is to be compiled
        if cast(Any, jax.config).jax_disable_jit or not is_staging():
            return function(*args, **kwargs)
        environment = read_knobs().backend or "auto"
        chosen = backend if backend != "auto" else _known_backend("J2T_BACKEND", environment)
        traced = trace(function, args, kwargs, **static)
        # jit has made tracers of all arrays, so what is none is static
        leaves = [leaf for leaf in jax.tree.leaves((args, kwargs)) if isinstance(leaf, jax.core.Tracer)]
        if not stay_in_place(traced.jaxpr.effects):
            if strict and chosen != "xla":
                raise fused.side_effects(traced.jaxpr)
            outputs = run(traced.jaxpr, *traced.captured, *leaves)
        else:
            outputs = _bound(traced, leaves, name=name, backend=chosen, strict=strict, roles=roles)
        return jax.tree.unflatten(traced.out_tree, outputs)

    return fused_function


def _bound(traced: Trace, leaves: Sequence[Any], *, name: str, strict: bool, **settings: Any) -> list[Any]:
    around = Settings(strict=strict, **settings)
    try:
        program, captured = hoist(with_options(traced.jaxpr, around), traced.captured)
    except Exception as problem:
        with instead_of(problem, name, strict, "XLA runs the whole program"):
            return run(traced.jaxpr, *traced.captured, *leaves)
    return fused.bind(program, [*captured, *leaves], name=name, strict=strict, **settings)


def program_name(function: Callable[..., Any]) -> str:
    """A name for the function's kernels: `layer_norm`, and `lambda_at_12` for a lambda, after its line."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    code = _lambda_code(function)
    if code is not None and name == code.co_name:
        return f"lambda_at_{code.co_firstlineno}"
    clean = re.sub(r"\W+", "_", name).strip("_") or "program"
    return f"f_{clean}" if clean[0].isdigit() else clean


def _title(function: Callable[..., Any]) -> str:
    """Where a lambda is, as it has no name: `lambda at model.py:12`."""
    code = _lambda_code(function)
    return "" if code is None else f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _lambda_code(function: Callable[..., Any]) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) and code.co_name == "<lambda>" else None


@overload
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: None = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: str = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: str = ...,
    for_target: str | None = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    **kwargs: Any,
) -> Program: ...
@overload
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: int | Sequence[int],
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: str = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: str = ...,
    for_target: str | None = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    **kwargs: Any,
) -> GradProgram: ...
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: bool | int | Sequence[int] | None = None,
    strict: bool = False,
    roles: Mapping[str, str] | None = None,
    contractions: str = "auto",
    checkpoint: Checkpoint = None,
    exact_order: bool = False,
    schedule: str = "estimate",
    for_target: str | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> Program | GradProgram:
    """The kernels of a function for arguments of these shapes (arrays, or `jax.ShapeDtypeStruct`), to look at and run.

    Without `grad` the result is a `Program`. With it, a `GradProgram`: `grad` is an argument's number or several, as
    `argnums` of `jax.grad` (True means 0). Static arguments are given here and left out when the program is called.
    `roles`, `contractions`, `checkpoint`, `exact_order` and `schedule` are as in `fuse`. `for_target` is the device
    that kernels are planned for (sm_90, gfx942, …), instead of what J2T_TARGET says, or else the local one, or else
    sm_90.
    """
    if not callable(function):
        raise UserError(f"transpile takes a function, not {function!r}")
    name = program_name(function)
    asked = parse_roles(name, roles, contractions, checkpoint, exact_order, schedule)
    read_knobs()  # a misspelt one is an error here too
    target = None if for_target is None else target_named(for_target)
    argnums = _argnums(name, grad, len(args))
    jax.jit(function, static_argnums=static_argnums, static_argnames=static_argnames)  # checks these two
    fixed, fixed_names = static_positions(function, len(args), static_argnums, static_argnames)
    keywords = sorted(kwargs)  # the order in which JAX flattens them
    moving = [*(i not in fixed for i in range(len(args))), *(key not in fixed_names for key in keywords)]
    values = tuple(itertools.compress((*args, *map(kwargs.get, keywords)), moving))
    names = tuple(itertools.compress(labels(function, len(args), keywords), moving))
    check_arrays(name, names, values)
    traced = trace(function, args, kwargs, static_argnums, static_argnames)
    around = Settings(fused.KERNELS, strict, asked, target)
    if (alone := all_of(traced.jaxpr)) is not None:  # a fused function: what it names holds here
        around = within(alone, around)
        strict, asked = around.strict, around.roles
    hoisted, captured = hoist(with_options(traced.jaxpr, around), traced.captured)
    jaxpr = _flattened(hoisted, name, strict)
    if not stay_in_place(jaxpr.effects):
        raise fused.side_effects(jaxpr, "call it through `fuse`")
    signature = Signature(name, names, jax.tree.structure(values), traced.avals, _title(function))
    out_tree = traced.out_tree
    if argnums is None:
        return plain_program(jaxpr, captured, signature, out_tree, strict, asked, target)
    for argnum in argnums if isinstance(argnums, tuple) else (argnums,):
        if argnum in fixed:
            raise UserError(f"grad={grad}: argument {argnum} of {name} is static")
    shifted = jax.tree.map(lambda argnum: sum(moving[:argnum]), argnums)
    return grad_program(jaxpr, captured, signature, out_tree, shifted, strict, asked, target)


def _flattened(jaxpr: Any, name: str, strict: bool) -> Any:
    try:
        return flatten(jaxpr)
    except Exception as problem:
        with instead_of(problem, name, strict, "the calls in it are written out later"):
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
