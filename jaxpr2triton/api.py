"""`fuse` and `transpile`: what a user touches."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast, overload

import jax

from jaxpr2triton import fused
from jaxpr2triton._compat import user_frame
from jaxpr2triton.arguments import Call, Signature, check_arrays, static_positions
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.errors import NotFusible, UserError
from jaxpr2triton.ir.roles import Roles, parse_roles
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.mistakes import instead_of
from jaxpr2triton.program import GradProgram, Program, Residual, grad_program, plain_program
from jaxpr2triton.report.table import count as counted
from jaxpr2triton.trace import hoist
from jaxpr2triton.version import __version__

__all__ = ["GradProgram", "Program", "Residual", "__version__", "fuse", "transpile"]


@overload
def fuse(function: Callable[..., Any], /, **options: Any) -> jax.stages.Wrapped: ...
@overload
def fuse(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], jax.stages.Wrapped]: ...
def fuse(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: str = "auto",
    strict: bool = False,
    roles: Mapping[str, str] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    **jit_options: Any,
) -> Any:
    """Compile a function into Triton kernels: `jax.jit`, with another compiler behind it.

    It takes the function and the options that `jax.jit` takes, and gives what `jax.jit` gives: something to call,
    differentiate, batch, `.lower(...)` and so on. Three options are new:

    backend   "auto"       the kernels on a CUDA or ROCm device, XLA on any other (or what J2T_BACKEND says)
              "triton"     the kernels, on a CUDA or ROCm device; an error elsewhere
              "interpret"  the kernels in Triton's interpreter, on any machine; slow, for tests
              "xla"        plain XLA, everywhere
    strict    raise `NotFusible` if any equation would be left to XLA, on every machine
    roles     what axes become, instead of what the compiler chooses, by the names that `explain` shows:
              {"k": "unroll"} for all kernels that have such an axis, {"rnn_bwd_0.col": "lane"} for one kernel;
              "grid", "lane", "loop" or "unroll", and an error where the axis is not there or cannot be that

    A fused function inside another one is part of it: the outer one's options count. A function with side effects
    (`jax.debug.print`, references, collectives over a named axis) stays with XLA as a whole.
    """
    options = dict(
        backend=backend,
        strict=strict,
        roles=roles,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        **jit_options,
    )
    _known_backend("backend", backend)
    if function is None:
        return functools.partial(fuse, **options)
    if not callable(function):
        raise UserError(f"fuse takes a function, not {function!r}")
    for option in ("backend", "strict", "roles"):
        options.pop(option)
    asked = parse_roles(program_name(function), roles)
    return jax.jit(_traced_when_called(function, backend, strict, asked), **options)


def _known_backend(option: str, backend: str) -> str:
    if backend not in fused.BACKENDS:
        raise UserError(f"{option}={backend!r} is not a backend", hint="one of " + ", ".join(fused.BACKENDS))
    return backend


def _traced_when_called(function: Callable[..., Any], backend: str, strict: bool, roles: Roles) -> Callable[..., Any]:
    """The function that `jax.jit` traces: it binds one primitive that carries the user's function as a jaxpr."""
    name = program_name(function)

    @functools.wraps(function)
    def fused_function(*args: Any, **kwargs: Any) -> Any:
        if cast(Any, jax.config).jax_disable_jit:
            return function(*args, **kwargs)
        # jit has made tracers of all arrays, so an argument without one is static, or holds nothing
        values = (*args, *kwargs.values())
        dynamic = [any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)) for value in values]
        call = Call(function, args, kwargs, tuple(dynamic))
        jaxpr, out_tree = call.trace()
        chosen = backend if backend != "auto" else _known_backend("J2T_BACKEND", read_knobs().backend or "auto")
        if jaxpr.effects:  # their order is XLA's to keep
            if strict and chosen != "xla":
                raise _side_effects(jaxpr, "leave it to XLA (drop strict=True)")
            outputs = run(jaxpr, *call.leaves)
        else:
            outputs = _bound(jaxpr, call.leaves, name=name, backend=chosen, strict=strict, roles=roles)
        return jax.tree.unflatten(out_tree, outputs)

    return fused_function


def _bound(jaxpr: Any, leaves: Sequence[Any], *, name: str, strict: bool, **settings: Any) -> list[Any]:
    try:
        program, constants = hoist(jaxpr)
    except Exception as problem:
        with instead_of(problem, name, strict, "XLA runs the whole program"):
            return run(jaxpr, *leaves)
    return fused.bind(program, [*constants, *leaves], name=name, strict=strict, **settings)


def _side_effects(jaxpr: Any, way_out: str) -> NotFusible:
    first = next(eqn for eqn in flatten(jaxpr).jaxpr.eqns if eqn.effects)
    frame = user_frame(first)
    return NotFusible(
        f"cannot compile `{first.primitive.name}`: it has side effects, so the whole function stays with XLA",
        where=str(frame) if frame else None,
        hint=f"take the side effect out of the function, or {way_out}",
    )


def program_name(function: Callable[..., Any]) -> str:
    """A name for the function's kernels: `layer_norm`, and `lambda` for a lambda."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    clean = re.sub(r"\W+", "_", name).strip("_") or "program"
    return f"f_{clean}" if clean[0].isdigit() else clean


def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: bool | int | Sequence[int] | None = None,
    strict: bool = False,
    roles: Mapping[str, str] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> Any:
    """The kernels of a function for arguments of these shapes (arrays, or `jax.ShapeDtypeStruct`), to look at and run.

    Without `grad` the result is a `Program`. With it, a `GradProgram`: `grad` is an argument's number or several, as
    `argnums` of `jax.grad` (True means 0). Static arguments are given here and left out when the program is called.
    `roles` are as in `fuse`.
    """
    if not callable(function):
        raise UserError(f"transpile takes a function, not {function!r}")
    name = program_name(function)
    asked = parse_roles(name, roles)
    argnums = _argnums(name, grad, len(args))
    fixed, fixed_names = static_positions(function, len(args), static_argnums, static_argnames)
    moving = [*(i not in fixed for i in range(len(args))), *(key not in fixed_names for key in kwargs)]
    call = Call(function, args, kwargs, tuple(moving))
    check_arrays(name, call.names, call.values)
    traced, out_tree = call.trace()
    hoisted, constants = hoist(traced)
    jaxpr = _flattened(hoisted, name, strict)
    if jaxpr.effects:
        raise _side_effects(jaxpr, "call it through `fuse`")
    avals = tuple(var.aval for var in traced.jaxpr.invars)
    signature = Signature(name, call.names, jax.tree.structure(call.values), avals)
    if argnums is None:
        return plain_program(jaxpr, constants, signature, out_tree, strict, asked)
    for argnum in argnums if isinstance(argnums, tuple) else (argnums,):
        if argnum in fixed:
            raise UserError(f"grad={grad}: argument {argnum} of {name} is static")
    shifted = jax.tree.map(lambda argnum: sum(moving[:argnum]), argnums)
    return grad_program(jaxpr, constants, signature, out_tree, shifted, strict, asked)


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
